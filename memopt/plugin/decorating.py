"""A decorator that says what is to be done to the graph of one function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

from memopt.plugin.installing import install
from memopt.plugin.scopes import mark_function, scope_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from memopt.options import Budget

F = TypeVar("F", bound="Callable[..., Any]")


class _Inherited:
    """The default of an option that is then taken from the policy of `enable`."""

    def __repr__(self) -> str:
        return "<that of enable>"


INHERITED: Final[Any] = _Inherited()


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
