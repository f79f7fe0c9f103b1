"""The public ways to rewrite a graph and a function that can be called, and to plan on numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from memopt.buffers.kernel_call import Runtime
from memopt.cluster import VirtualCluster
from memopt.costs.choice import AUTO
from memopt.errors import InvalidGraphError, OptionsError, PluginError
from memopt.files.whole_files import write_bytes
from memopt.flags import Flags
from memopt.graph.final import is_final
from memopt.io import as_item
from memopt.item import is_compiled
from memopt.kernels.choice import RULES, choose_kernels, choose_times, memory_of_kernels
from memopt.optimizer import MemoryOptimizer
from memopt.options import DEFAULT_TARGET_SCOPE, Budget, Level, as_texts, check_whole
from memopt.passes import Rematerialization
from memopt.report.dot import dot_text
from memopt.report.memory_log import memory_log_lines
from memopt.sequencing.orders import BEST

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from memopt.cluster import Device
    from memopt.costs.cost_model import CostModel
    from memopt.io import GraphSource
    from memopt.item import GrapplerItem
    from memopt.result import OptimizationResult


def optimize(  # noqa: PLR0913 - the options of the optimizer and of the item, by keyword
    graph: GraphSource,
    *,
    level: str | None = None,
    devices: VirtualCluster | Iterable[Device | str] | None = None,
    target_scope: str = DEFAULT_TARGET_SCOPE,
    rule: str = "list",
    all_ports: bool = False,
    pass_options: Sequence[str] = (),
    costs: CostModel | str = AUTO,
    kernels: str | os.PathLike[str] | None = None,
    as_grappler: bool = False,
    after_grappler: bool = False,
    deadline_ms: int = 0,
    budget: Budget | int | str | None = None,
    algorithm: str | None = None,
    scheduler: str | None = None,
    small_node_limit: int | None = None,
    dump_dot: str | None = None,
    dump_memlog: str | None = None,
    fetch: Sequence[str] | None = None,
    feed: Sequence[str] | None = None,
    keep: Sequence[str] = (),
) -> OptimizationResult:
    """Rewrite a graph so that a step needs less memory, with the same results.

    Args:
        graph: A GraphDef, MetaGraphDef, ConcreteFunction, path of a graph file, or GrapplerItem.
        level: How much is done; see `Level`. Without, HEURISTICS, or ORDERED with a budget.
        devices: What the step runs on: a cluster, or devices or their descriptions
            ("GPU:0=GPU:16GiB"). Without, this machine's, as TensorFlow lists them.
        target_scope: The name scope of gradient operations; "auto" finds them by structure.
        rule: How operations that are cheap to recompute are told: "list" (Grappler's) or "cost".
        all_ports: Recompute for readers of every output port, not only of the first.
        pass_options: Options of passes, such as "swapping{improved=true}".
        costs: How long operations take; see `choose_costs` and `choose_planning_costs`.
        kernels: Whose memory and times are predicted: "rules" for what memopt knows of TensorFlow's
            kernels, by default; "measured" for what was measured on this machine, where kernels
            that were not yet are run first, each alone; or a file that `profile_kernels` wrote.
            Measured times count where `costs` names a model.
        as_grappler: Do exactly what Grappler does, though its sums may differ in their last bits.
        after_grappler: Rewrite what Grappler makes of the step under TensorFlow's defaults. The
            result has those bits if it runs with Grappler off (`disable_meta_optimizer`), as
            `memopt.verify` runs it.
        deadline_ms: Milliseconds after which no further pass starts; 0 for no deadline.
        budget: What may be in use at any moment of the step, everything included: bytes, "6GiB", or
            "60%" of what the step itself adds at its peak when it runs unchanged; on several
            devices that of each, or "GPU:0=6GiB,GPU:1=8GiB".
        algorithm: How a budget is kept, and as in what follows: see `Rematerialization`.
        scheduler: How the order is found.
        small_node_limit: MiB; what makes no more than this is not recomputed for its own sake.
        dump_dot: A file for the large tensors before and after, as a DOT graph.
        dump_memlog: A file for the memory in use at each operation of the rewritten step.
        fetch: Tensors and operations that the caller asks for; found out if not given.
        feed: Tensors that the caller gives; found out if not given.
        keep: Further nodes that must stay as they are called.

    Raises:
        FileError: The path holds no graph.
        InvalidGraphError: The graph breaks a rule, or a named node is missing.
        OptionsError: An option is not valid, or XLA compiles the function: see `rewrite`.
        BudgetError: The step cannot be made to keep to the budget.
    """
    given = Flags(
        level, budget, algorithm, scheduler, small_node_limit, dump_dot, dump_memlog, kernels
    )
    flags = Flags.from_environment().overridden_by(given)
    check_whole("deadline_ms", deadline_ms)
    check_whole("small_node_limit", flags.small_node_limit or 0)
    optimizer = MemoryOptimizer(
        level_of(flags),
        target_scope,
        rule,
        all_ports,
        pass_options=as_texts("pass_options", pass_options),
        costs=costs,
        as_grappler=as_grappler,
        deadline_ms=deadline_ms,
        budget=flags.budget,
        rematerialization=Rematerialization(
            algorithm=flags.algorithm or BEST,
            scheduler=flags.scheduler or BEST,
            small_node_limit=flags.small_node_limit or 0,
        ),
    )
    cluster = None
    if optimizer.pipeline().repeated:
        cluster = VirtualCluster.of(devices)
    item = as_item(graph, fetch, feed)
    if after_grappler:
        item = _settled_item(item)
    optimizer = _predicting(optimizer, item, flags.kernels or RULES)
    result = optimizer.optimize(cluster, replace(item, keep=(*item.keep, *as_texts("keep", keep))))
    _dump(result, flags)
    return result


def _predicting(
    optimizer: MemoryOptimizer, item: GrapplerItem, kernels: str | os.PathLike[str]
) -> MemoryOptimizer:
    """The optimizer with what an item will run on, and with measured kernels if asked for."""
    runtime = None
    if is_final(item.graph_def):
        from memopt.plugin.work import runtime_here

        runtime = runtime_here()
    measured = choose_kernels(kernels, item, runtime or Runtime())
    known = memory_of_kernels(measured, item)
    if known is not None:
        runtime = replace(runtime or Runtime(), measurements=known)
    return replace(optimizer, runtime=runtime, costs=choose_times(optimizer.costs, measured, item))


def _settled_item(item: GrapplerItem) -> GrapplerItem:
    """What Grappler makes of a step.

    Raises:
        OptionsError: Nothing.
    """
    if is_final(item.graph_def):
        return item
    from memopt.plugin.settled_item import settle_item

    settled = settle_item(item)
    if settled is None:
        raise OptionsError("after_grappler: Grappler is off, or makes nothing of the step")
    return settled


def level_of(flags: Flags) -> str:
    """The level that is meant: with a budget, and nothing else said, the one that keeps it."""
    return flags.level or (Level.HEURISTICS if flags.budget is None else Level.ORDERED)


def rewrite(  # noqa: PLR0913 - the options of optimize, by keyword
    function: ConcreteFunction,
    *,
    graph_def: GraphDef | None = None,
    after_grappler: bool | None = None,
    level: str | None = None,
    devices: VirtualCluster | Iterable[Device | str] | None = None,
    target_scope: str = DEFAULT_TARGET_SCOPE,
    rule: str = "list",
    all_ports: bool = False,
    pass_options: Sequence[str] = (),
    costs: CostModel | str = AUTO,
    kernels: str | os.PathLike[str] | None = None,
    as_grappler: bool = False,
    deadline_ms: int = 0,
    budget: Budget | int | str | None = None,
    algorithm: str | None = None,
    scheduler: str | None = None,
    small_node_limit: int | None = None,
    dump_dot: str | None = None,
    dump_memlog: str | None = None,
    fetch: Sequence[str] | None = None,
    feed: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    same_bits: bool = True,
) -> ConcreteFunction:
    """A function that computes the same and needs less memory.

    It is called like the original, has the same structure of inputs and outputs, and reads and
    updates the same variables.

    A function that XLA compiles (`jit_compile=True`) is compiled in several forms, in a process of
    its own, until one keeps the budget; without a budget it gets what costs no time. Of the options
    `algorithm`, `scheduler` and `same_bits` count for it.

    Args:
        function: The function, from `tf.function(...).get_concrete_function(...)`.
        graph_def: A graph that `optimize` made of this function, instead of options; if not given,
            the function is optimized with the options that follow.
        after_grappler: Whether Grappler works on the function before memopt and is off for the
            result, which then has the bits of the function under TensorFlow's defaults. By default
            for a training step of which no node is named (in `fetch`, `feed` or `keep`) and where
            Grappler is on. Other functions are rewritten as they are, and can be differentiated.
        level: How much is done; see `Level`. Without, HEURISTICS, or ORDERED with a budget.
        devices: What the step runs on: a cluster, or devices or their descriptions
            ("GPU:0=GPU:16GiB"). Without, this machine's, as TensorFlow lists them.
        target_scope: The name scope of gradient operations; "auto" finds them by structure.
        rule: How operations that are cheap to recompute are told: "list" (Grappler's) or "cost".
        all_ports: Recompute for readers of every output port, not only of the first.
        pass_options: Options of passes, such as "swapping{improved=true}".
        costs: How long operations take; see `choose_costs` and `choose_planning_costs`.
        kernels: Whose memory and times are predicted: "rules" for what memopt knows of TensorFlow's
            kernels, by default; "measured" for what was measured on this machine, where kernels
            that were not yet are run first, each alone; or a file that `profile_kernels` wrote.
            Measured times count where `costs` names a model.
        as_grappler: Do exactly what Grappler does, though its sums may differ in their last bits.
        deadline_ms: Milliseconds after which no further pass starts; 0 for no deadline.
        budget: What may be in use at any moment of the step, everything included: bytes, "6GiB", or
            "60%" of what the step itself adds at its peak when it runs unchanged; on several
            devices that of each, or "GPU:0=6GiB,GPU:1=8GiB".
        algorithm: How a budget is kept, and as in what follows: see `Rematerialization`.
        scheduler: How the order is found.
        small_node_limit: MiB; what makes no more than this is not recomputed for its own sake.
        dump_dot: A file for the large tensors before and after, as a DOT graph.
        dump_memlog: A file for the memory in use at each operation of the rewritten step.
        fetch: Tensors and operations that the caller asks for; found out if not given.
        feed: Tensors that the caller gives; found out if not given.
        keep: Further nodes that must stay as they are called.
        same_bits: Of a function that XLA compiles: whether it is refused if it computes other last
            bits, since XLA fuses other operations. All other functions keep their bits anyway.

    Raises:
        InvalidGraphError: The graph cannot be rewritten, or `graph_def` is not of this function.
        OptionsError: An option is not valid, or one is given beside `graph_def`.
        BudgetError: The step cannot be made to keep to the budget.
    """
    from memopt.runtime.function import build_function

    optimized = partial(
        optimize,
        level=level,
        devices=devices,
        target_scope=target_scope,
        rule=rule,
        all_ports=all_ports,
        pass_options=pass_options,
        costs=costs,
        kernels=kernels,
        as_grappler=as_grappler,
        deadline_ms=deadline_ms,
        budget=budget,
        algorithm=algorithm,
        scheduler=scheduler,
        small_node_limit=small_node_limit,
        dump_dot=dump_dot,
        dump_memlog=dump_memlog,
        fetch=fetch,
        feed=feed,
        keep=keep,
    )
    if is_compiled(function):
        if graph_def is not None:
            raise OptionsError("XLA compiles the function: no graph can be given for it")
        return _rewrite_compiled(function, optimized.keywords, same_bits=same_bits)
    if graph_def is None:
        needs_names = bool(fetch or feed or keep or as_grappler)
        if after_grappler or (after_grappler is None and not needs_names):
            function = _settled(function, is_asked=bool(after_grappler))
        graph_def = optimized(function).graph_def
    elif after_grappler is not None or _differ_from_defaults(optimized.keywords):
        raise OptionsError("options have no effect on a graph that is given")
    return build_function(graph_def, function)


def _rewrite_compiled(
    function: ConcreteFunction, options: Mapping[str, Any], *, same_bits: bool
) -> ConcreteFunction:
    """A form of a function that needs less when XLA has compiled it.

    Raises:
        OptionsError: An option has no effect on it.
        BudgetError: The budget cannot be kept.
    """
    from memopt.xla.entry import CompiledOptions, rewrite_compiled

    given = {name: value for name, value in options.items() if _differ_from_defaults({name: value})}
    others = sorted(given.keys() - {"level", "budget", "algorithm", "scheduler"})
    if others:
        raise OptionsError(f"{', '.join(others)}: no effect on a function that XLA compiles")
    level = Level.parse(given.get("level", Level.ORDERED))
    if level == Level.NO_MEM_OPT:
        return function
    if level != Level.ORDERED:
        raise OptionsError(f"level {level} has no effect on a function that XLA compiles")
    flags = Flags.from_environment().overridden_by(Flags(budget=given.get("budget")))
    chosen = CompiledOptions(
        budget=None if flags.budget is None else Budget.parse(flags.budget),
        same_bits=same_bits,
        algorithm=given.get("algorithm", BEST),
        scheduler=given.get("scheduler", BEST),
    )
    return rewrite_compiled(function, chosen).function


def _settled(function: ConcreteFunction, *, is_asked: bool) -> ConcreteFunction:
    """What Grappler makes of a function; itself where that cannot be.

    Raises:
        InvalidGraphError: It was asked for, and what Grappler made cannot be built again.
        OptionsError: It was asked for.
        PluginError: It was asked for, and another plugin rewrites graphs in this process.
    """
    from memopt.plugin.settled import settle

    try:
        settled = settle(function)
    except (InvalidGraphError, PluginError):
        if is_asked:
            raise
        settled = None
    if settled is None and is_asked:
        raise OptionsError(
            f"after_grappler: Grappler makes nothing of function {function.graph.name}, or it "
            "computes no gradients"
        )
    return settled or function


def _differ_from_defaults(options: Mapping[str, Any]) -> bool:
    """Whether any of these options of `optimize` is not at its default."""
    parameters = signature(optimize).parameters
    return any(value != parameters[name].default for name, value in options.items())


def _dump(result: OptimizationResult, flags: Flags) -> None:
    """Write what was asked for beside the result.

    Raises:
        OptionsError: The level does not look at the memory of the real step.
        FileError: A file cannot be written.
    """
    if not flags.dump_dot and not flags.dump_memlog:
        return
    runtime = result.report.runtime
    if runtime is None:
        raise OptionsError(f"a dump is made at level {Level.ORDERED}, or with a budget")
    if flags.dump_dot:
        text = dot_text({"before": runtime.before, "after": runtime.after})
        write_bytes(flags.dump_dot, text.encode())
    if flags.dump_memlog:
        lines = memory_log_lines(runtime.after)
        write_bytes(flags.dump_memlog, "".join(f"{line}\n" for line in lines).encode())
