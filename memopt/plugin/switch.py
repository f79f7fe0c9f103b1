"""Switches memopt on and off inside TensorFlow: for the process, or a `with` block."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import astuple
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from memopt.flags import Flags
from memopt.kernels.choice import RULES
from memopt.options import Level
from memopt.passes.recomputation import AUTO_SCOPE
from memopt.planning.compile_ahead import start_compiling
from memopt.plugin.configs import tag_functions, untag_functions
from memopt.plugin.installing import install
from memopt.plugin.policy import (
    Policy,
    pop_policy,
    push_policy,
    set_policy,
)
from memopt.plugin.process import Process
from memopt.plugin.repeated import REPEATED
from memopt.rematerialization.algorithms import BEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from os import PathLike

    from memopt.options import Budget

P = ParamSpec("P")
R = TypeVar("R")

_tags: list[Any] = []
"""The configuration of functions before `enable`; one or none."""


def _environment_first(function: Callable[P, R]) -> Callable[P, R]:
    """A function of a policy's options, those of MEMOPT_FLAGS in place of the defaults."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        # Python reports an unknown option before a bad value in the environment.
        signature(function).bind(*args, **kwargs)
        options: dict[str, Any] = {**Policy.flagged(Flags.from_environment()), **kwargs}
        return function(*args, **options)

    return call


@_environment_first
def enable(  # noqa: PLR0913 - the fields of Policy, by keyword
    *,
    level: str = Level.ORDERED,
    budget: Budget | int | str | None = None,
    min_nodes: int = 32,
    only_lower: bool = True,
    only: Literal["training", "all"] = "training",
    report_dir: str | PathLike[str] | None = None,
    from_config: bool = False,
    deadline_ms: int = 120_000,
    planning_seconds: float = 5.0,
    disable_fusions: bool = False,
    target_scope: str = AUTO_SCOPE,
    algorithm: str = BEST,
    scheduler: str = BEST,
    small_node_limit: int = 0,
    kernels: str | PathLike[str] = RULES,
    pass_options: Sequence[str] = (),
    same_bits: bool = True,
    verbose: int = 0,
) -> Policy:
    """Rewrite every training step that TensorFlow compiles from now on.

    The policy holds for all threads, until `disable`. Functions that ran before are optimized
    again: in this thread when they run next, in others when they next change an option of
    TensorFlow's. A v1 session keeps what it has optimized.

    An option that is not given is taken from MEMOPT_FLAGS before its default.

    Args:
        level: How much is done: a `Level` or its name. ORDERED saves memory without recomputation;
            with a budget it recomputes.
        budget: The most memory that may be in use at any moment of a step, everything included:
            bytes, "6GiB", "60%" of what the step itself adds at its peak when it runs unchanged, or
            "device" for what the device's allocator may use, less a fifth for what it loses.
            On several devices it is that of each, or "GPU:0=6GiB,GPU:1=8GiB". A step that cannot
            keep it runs at the lowest peak that was found, with a warning.
        min_nodes: Graphs with fewer nodes are left alone.
        only_lower: Whether a graph stays as it is that is predicted to need hardly less rewritten.
        only: "training" for graphs that compute gradients, "all" for all.
        report_dir: A folder for one JSON report for each graph that is rewritten.
        from_config: Whether `memory_optimization` and `memory_optimizer_target_node_name_scope` of
            the user's RewriterConfig take precedence.
        deadline_ms: Milliseconds after which a graph is left as it is.
        planning_seconds: Seconds that a plan for a budget may take; 0 for as long as it takes.
        disable_fusions: Whether TensorFlow's remapper is off, which fuses operations.
        target_scope: The name scope of gradient operations; "auto" finds them by structure.
        algorithm: How a budget is kept: see `Rematerialization`.
        scheduler: How the order of execution is found.
        small_node_limit: MiB; smaller results are not recomputed for their own sake.
        kernels: Whose memory and times are predicted: "rules" for what memopt knows of TensorFlow's
            kernels; "measured" for what was measured on this machine, where kernels that were not
            yet are run first, each alone; or a file that `profile_kernels` wrote.
        pass_options: Options of passes, such as "ordering{smallest_bytes=65536}".
        same_bits: Of functions that XLA compiles: whether they stay as they are if they would
            compute other last bits, since XLA fuses other operations. All others keep their bits
            anyway.
        verbose: 1 for one line for each rewritten step, through Python's `logging` ("memopt").

    Returns:
        The policy.

    Raises:
        OptionsError: The value of an option is not valid.
        PluginError: Another plugin rewrites graphs in this process.
    """
    policy = Policy(
        level=level,
        budget=budget,
        min_nodes=min_nodes,
        only_lower=only_lower,
        only=only,
        report_dir=report_dir,
        from_config=from_config,
        deadline_ms=deadline_ms,
        planning_seconds=planning_seconds,
        disable_fusions=disable_fusions,
        target_scope=target_scope,
        algorithm=algorithm,
        scheduler=scheduler,
        small_node_limit=small_node_limit,
        kernels=kernels,
        pass_options=pass_options,
        same_bits=same_bits,
        verbose=verbose,
    )
    process = install()
    with process.lock:
        _untag()
        _tags.append(_tag(policy))
        set_policy(policy)
    if policy.budget is not None:
        start_compiling()
    return policy


def disable() -> None:
    """Leave all graphs unchanged from now on, those of decorated functions too."""
    process = Process()
    with process.lock:
        _untag()
        set_policy(None)
        REPEATED.clear()


@_environment_first
def enabled(  # noqa: PLR0913 - the fields of Policy, by keyword
    *,
    level: str = Level.ORDERED,
    budget: Budget | int | str | None = None,
    min_nodes: int = 32,
    only_lower: bool = True,
    only: Literal["training", "all"] = "training",
    report_dir: str | PathLike[str] | None = None,
    from_config: bool = False,
    deadline_ms: int = 120_000,
    planning_seconds: float = 5.0,
    disable_fusions: bool = False,
    target_scope: str = AUTO_SCOPE,
    algorithm: str = BEST,
    scheduler: str = BEST,
    small_node_limit: int = 0,
    kernels: str | PathLike[str] = RULES,
    pass_options: Sequence[str] = (),
    same_bits: bool = True,
    verbose: int = 0,
) -> AbstractContextManager[Policy]:
    """Rewrite training steps that this thread compiles inside the `with` statement.

    Bodies of functions that TensorFlow does not inline are compiled by threads of its own; for them
    the policy of the process holds. An option that is not given is taken from MEMOPT_FLAGS before
    its default.

    Args:
        level: How much is done: a `Level` or its name. ORDERED saves memory without recomputation;
            with a budget it recomputes.
        budget: The most memory that may be in use at any moment of a step, everything included:
            bytes, "6GiB", "60%" of what the step itself adds at its peak when it runs unchanged, or
            "device" for what the device's allocator may use, less a fifth for what it loses.
            On several devices it is that of each, or "GPU:0=6GiB,GPU:1=8GiB". A step that cannot
            keep it runs at the lowest peak that was found, with a warning.
        min_nodes: Graphs with fewer nodes are left alone.
        only_lower: Whether a graph stays as it is that is predicted to need hardly less rewritten.
        only: "training" for graphs that compute gradients, "all" for all.
        report_dir: A folder for one JSON report for each graph that is rewritten.
        from_config: Whether `memory_optimization` and `memory_optimizer_target_node_name_scope` of
            the user's RewriterConfig take precedence.
        deadline_ms: Milliseconds after which a graph is left as it is.
        planning_seconds: Seconds that a plan for a budget may take; 0 for as long as it takes.
        disable_fusions: Whether TensorFlow's remapper is off, which fuses operations.
        target_scope: The name scope of gradient operations; "auto" finds them by structure.
        algorithm: How a budget is kept: see `Rematerialization`.
        scheduler: How the order of execution is found.
        small_node_limit: MiB; smaller results are not recomputed for their own sake.
        kernels: Whose memory and times are predicted: "rules" for what memopt knows of TensorFlow's
            kernels; "measured" for what was measured on this machine, where kernels that were not
            yet are run first, each alone; or a file that `profile_kernels` wrote.
        pass_options: Options of passes, such as "ordering{smallest_bytes=65536}".
        same_bits: Of functions that XLA compiles: whether they stay as they are if they would
            compute other last bits, since XLA fuses other operations. All others keep their bits
            anyway.
        verbose: 1 for one line for each rewritten step, through Python's `logging` ("memopt").

    Returns:
        A context manager that gives the policy.

    Raises:
        OptionsError: The value of an option is not valid.
        PluginError: Another plugin rewrites graphs in this process.
    """
    policy = Policy(
        level=level,
        budget=budget,
        min_nodes=min_nodes,
        only_lower=only_lower,
        only=only,
        report_dir=report_dir,
        from_config=from_config,
        deadline_ms=deadline_ms,
        planning_seconds=planning_seconds,
        disable_fusions=disable_fusions,
        target_scope=target_scope,
        algorithm=algorithm,
        scheduler=scheduler,
        small_node_limit=small_node_limit,
        kernels=kernels,
        pass_options=pass_options,
        same_bits=same_bits,
        verbose=verbose,
    )
    return _enabled(policy)


@contextmanager
def _enabled(policy: Policy) -> Iterator[Policy]:
    install()
    before = _tag(policy)
    token = push_policy(policy)
    try:
        yield policy
    finally:
        pop_policy(token)
        untag_functions(before)


def _tag(policy: Policy) -> Any:
    number = Process().number_of(repr(astuple(policy)))
    return tag_functions(number, disable_fusions=policy.disable_fusions)


def _untag() -> None:
    while _tags:
        untag_functions(_tags.pop())
