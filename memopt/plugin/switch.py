"""Switches memopt on and off inside TensorFlow: for the process, a `with` block, a function."""

from __future__ import annotations

import atexit
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import cache, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar, overload

from memopt.display import Displayed, Overview, Table
from memopt.flags import Flags
from memopt.kernels.choice import RULES
from memopt.options import Level
from memopt.passes.recomputation import AUTO_SCOPE
from memopt.planning.compile_ahead import start_compiling
from memopt.plugin.bridge import register
from memopt.plugin.configs import note_session_configs, tag_functions, untag_functions
from memopt.plugin.functions import rewrite_function
from memopt.plugin.policy import (
    Policy,
    Unset,
    current_policy,
    pop_policy,
    push_policy,
    set_policy,
)
from memopt.plugin.process import Process
from memopt.plugin.records import RECORDS
from memopt.plugin.repeated import REPEATED
from memopt.plugin.rewriting import rewrite
from memopt.plugin.scopes import mark_function, scope_text
from memopt.plugin.xla import watch_traced_functions
from memopt.rematerialization.algorithms import BEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from os import PathLike

    from memopt.options import Budget
    from memopt.plugin.records import GraphRecord

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound="Callable[..., Any]")


class _Inherited:
    """The default of an option that is then taken from the policy of `enable`."""

    def __repr__(self) -> str:
        return "<that of enable>"


INHERITED: Final[Any] = _Inherited()

_tags: list[Any] = []
"""The configuration of functions before `enable`; one or none."""


@dataclass(frozen=True, repr=False)
class PluginStatus(Displayed):
    """How memopt is registered with TensorFlow in this process.

    Attributes:
        registered: By device type ("CPU", "GPU") the mechanism in use: "symbol" (TensorFlow's own
            registration function for plugins), "shim" (a small C library, loaded as a plugin) or
            "transforms" (functions are rewritten when they are traced, without Grappler).
        failures: By mechanism why it did not work.
        policy: The policy that holds in this thread; `None` if memopt is off.
    """

    registered: dict[str, str]
    failures: dict[str, str]
    policy: Policy | None

    def _overview(self) -> Overview:
        rows = [(device, f"registered by {how}") for device, how in self.registered.items()]
        rows += [(how, f"failed: {reason}") for how, reason in self.failures.items()]
        state = "off" if self.policy is None else f"on, {self.policy!r}"
        return Overview("PluginStatus", state, (Table(("", ""), tuple(rows)),))

    def __str__(self) -> str:
        ways = ", ".join(f"{device} by {how}" for device, how in self.registered.items())
        lines = [f"registered: {ways or 'not yet'}"]
        lines += [f"not by {how}: {reason}" for how, reason in self.failures.items()]
        lines.append(f"policy: {self.policy or 'off'}")
        return "\n".join(lines)


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


@overload
def optimize_function(function: F, /) -> F: ...


@overload
def optimize_function(
    *,
    enabled: bool = True,
    level: str = INHERITED,
    budget: Budget | int | str | None = INHERITED,
    min_nodes: int = INHERITED,
    only_lower: bool = INHERITED,
    only: Literal["training", "all"] = INHERITED,
    report_dir: str | PathLike[str] | None = INHERITED,
    from_config: bool = INHERITED,
    deadline_ms: int = INHERITED,
    planning_seconds: float = INHERITED,
    disable_fusions: bool = INHERITED,
    target_scope: str = INHERITED,
    algorithm: str = INHERITED,
    scheduler: str = INHERITED,
    small_node_limit: int = INHERITED,
    kernels: str | PathLike[str] = INHERITED,
    pass_options: Sequence[str] = INHERITED,
    same_bits: bool = INHERITED,
    verbose: int = INHERITED,
) -> Callable[[F], F]: ...


def optimize_function(  # noqa: PLR0913 - the fields of Policy, by keyword
    function: F | None = None,
    /,
    *,
    enabled: bool = True,
    level: str = INHERITED,
    budget: Budget | int | str | None = INHERITED,
    min_nodes: int = INHERITED,
    only_lower: bool = INHERITED,
    only: Literal["training", "all"] = INHERITED,
    report_dir: str | PathLike[str] | None = INHERITED,
    from_config: bool = INHERITED,
    deadline_ms: int = INHERITED,
    planning_seconds: float = INHERITED,
    disable_fusions: bool = INHERITED,
    target_scope: str = INHERITED,
    algorithm: str = INHERITED,
    scheduler: str = INHERITED,
    small_node_limit: int = INHERITED,
    kernels: str | PathLike[str] = INHERITED,
    pass_options: Sequence[str] = INHERITED,
    same_bits: bool = INHERITED,
    verbose: int = INHERITED,
) -> F | Callable[[F], F]:
    """Decorate a function with what is to be done to its graph, above or below `@tf.function`.

    Such a function is rewritten without `enable`, but not after `disable`. It must not have been
    called yet. An option that is not given is that of `enable`, or else its default there.

    Args:
        function: The function, or a `tf.function`.
        enabled: Whether it is to be rewritten; `False` leaves it alone when memopt is on.
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
        The decorated function, or a decorator if no function is given.

    Raises:
        OptionsError: The value of an option is not valid.
        PluginError: Another plugin rewrites graphs in this process.
    """
    options = {
        "level": level,
        "budget": budget,
        "min_nodes": min_nodes,
        "only_lower": only_lower,
        "only": only,
        "report_dir": report_dir,
        "from_config": from_config,
        "deadline_ms": deadline_ms,
        "planning_seconds": planning_seconds,
        "disable_fusions": disable_fusions,
        "target_scope": target_scope,
        "algorithm": algorithm,
        "scheduler": scheduler,
        "small_node_limit": small_node_limit,
        "kernels": kernels,
        "pass_options": pass_options,
        "same_bits": same_bits,
        "verbose": verbose,
    }
    given = {name: value for name, value in options.items() if value is not INHERITED}
    text = scope_text(given, enabled=enabled)

    def decorate(decorated: F) -> F:
        if enabled:
            install()
        marked: F = mark_function(decorated, text)
        return marked

    return decorate if function is None else decorate(function)


def plugin_status() -> PluginStatus:
    """How memopt is registered with TensorFlow in this process, and which mechanisms failed."""
    process = Process()
    policy = current_policy()
    return PluginStatus(
        dict(process.registered),
        dict(process.failures),
        None if isinstance(policy, Unset) else policy,
    )


def last_reports() -> tuple[GraphRecord, ...]:
    """The records of the last graphs that TensorFlow compiled, the oldest first.

    Each says what was predicted; `measured_peak_bytes` is what was measured, where somebody looked:
    the callback `memopt.keras.MemoryReport`.
    """
    return RECORDS.last()


def install() -> Process:
    """Register memopt with TensorFlow, without a policy.

    Raises:
        PluginError: Another plugin rewrites graphs in this process.
    """
    register()
    process = Process()
    note_session_configs(process)
    watch_traced_functions(process)
    process.rewrite = rewrite
    process.rewrite_function = rewrite_function
    _let_go_at_exit()
    return process


@cache
def _let_go_at_exit() -> None:
    """Drop the callbacks at exit: TensorFlow's threads may still run while Python shuts down."""
    process = Process()

    def let_go() -> None:
        process.rewrite = None
        process.rewrite_function = None

    atexit.register(let_go)


def _tag(policy: Policy) -> Any:
    number = Process().number_of(repr(astuple(policy)))
    return tag_functions(number, disable_fusions=policy.disable_fusions)


def _untag() -> None:
    while _tags:
        untag_functions(_tags.pop())
