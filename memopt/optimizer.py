"""MemoryOptimizer: which passes run at which level, and verification around each of them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from memopt.collector import collector_paused
from memopt.costs.choice import AUTO, choose_costs, choose_planning_costs
from memopt.display import DisplayedFields
from memopt.errors import BudgetError, OptionsError
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.optimization.best_attempt import Attempts
from memopt.optimization.device_limits import MemoryLimits, device_memory, find_limits
from memopt.optimization.infeasible_budget import refusal
from memopt.optimization.pipeline import Pipeline
from memopt.optimization.prepared import Prepared, Simulators, Source, find_parts, verify_item
from memopt.optimization.settling import settle
from memopt.optimization.side_by_side import run_parts
from memopt.options import DEFAULT_TARGET_SCOPE, Budget, Level
from memopt.passes import (
    AddnScheduling,
    BypassBarriers,
    BypassCalls,
    BypassOptionals,
    CheckpointLoops,
    EffectsBeforeData,
    Fission,
    FoldBranches,
    FoldShapes,
    MergeAddends,
    NarrowBroadcasts,
    Ordering,
    Pass,
    PinSums,
    Recomputation,
    RelaxAllocator,
    Rematerialization,
    RunningSums,
    SerialLoops,
    Swapping,
)
from memopt.rematerialization.rewriting.function_budgets import BodyLimits
from memopt.rematerialization.rewriting.scope_budgets import parse_scopes
from memopt.result import OptimizationReport, OptimizationResult, RuntimeMemory
from memopt.shapes.properties import Properties
from memopt.simulation.virtual_scheduler import SchedulerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.buffers.kernel_call import Runtime
    from memopt.cluster import VirtualCluster
    from memopt.costs.cost_model import CostModel
    from memopt.item import GrapplerItem
    from memopt.optimization.prepared import Part
    from memopt.options import Options


@dataclass(frozen=True, repr=False)
class MemoryOptimizer(DisplayedFields):
    """Rewrites a graph so that a step needs less memory, with the same results.

    Every graph is verified before the first pass and after each one. A pass that fails, or whose
    result does not verify, is undone and reported; the others go on. Bodies of functions that the
    graph calls are rewritten too, as Grappler does.

    Attributes:
        level: How much is done: a `Level` or its name, in any case.
        target_scope: The name scope of gradient operations, as
            `memory_optimizer_target_node_name_scope` in RewriterConfig; "auto" finds them.
        rule: How operations that are cheap to recompute are told: "list" (Grappler's) or "cost".
        all_ports: Recompute for readers of every output port, not only of the first.
        pass_options: Options of passes as `str(pass_)` prints them, such as
            "swapping{improved=true}"; they replace what the level sets.
        costs: How long operations take; see `choose_costs` and `choose_planning_costs`.
        scheduler: How the simulation counts; by default as Grappler does, but for copies on the
            host, which count on the device only if `as_grappler`.
        as_grappler: Do exactly what Grappler does: know no more shapes than it infers, accumulate
            sums in variables, though then the order of additions, and with it the last bits of the
            results, depends on timing, and let copies change that of others. Otherwise results
            keep their bits.
        deadline_ms: Milliseconds after which no further pass starts; 0 for no deadline.
        budget: What may be in use at any moment of the step, everything included: a `Budget`, bytes
            ("6GiB") or a share ("60%"). Kept at level ORDERED, by recomputing results.
        rematerialization: How; its `memory_limit` is the budget's.
        runtime: What kernels run on, which tells their scratch memory; this machine, without
            oneDNN, if not given.
    """

    level: str = Level.HEURISTICS
    target_scope: str = DEFAULT_TARGET_SCOPE
    rule: str = "list"
    all_ports: bool = False
    pass_options: tuple[str, ...] = ()
    costs: CostModel | str = AUTO
    scheduler: SchedulerOptions | None = None
    as_grappler: bool = False
    deadline_ms: int = 0
    budget: Budget | int | str | None = None
    rematerialization: Rematerialization = field(default_factory=Rematerialization)
    runtime: Runtime | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", Level.parse(self.level))
        if self.budget is not None:
            object.__setattr__(self, "budget", Budget.parse(self.budget))
            if not Level.parse(self.level).orders:
                raise OptionsError(f"a budget is kept at level {Level.ORDERED}, not {self.level}")
        if self.as_grappler and Level.parse(self.level).improves:
            raise OptionsError(f"level {self.level} is none of Grappler's; do not ask for both")
        # Options are checked where they are used: in the passes' own constructors.
        self.pipeline()

    @classmethod
    def from_options(cls, options: Options) -> MemoryOptimizer:
        """The optimizer that a RewriterConfig's options describe."""
        return cls(options.level, options.target_scope, deadline_ms=options.deadline_ms)

    def pipeline(self) -> Pipeline:
        """The passes of this level, in order.

        Raises:
            OptionsError: `pass_options` names a pass that the level does not run, or an option
                that it does not have.
        """
        level = Level.parse(self.level)
        settling: list[Pass] = []
        first: list[Pass] = []
        once: list[Pass] = []
        repeated: list[Pass] = []
        if level.relaxes:
            once.append(RelaxAllocator())
        if level.recomputes or level.recomputes_by_hint:
            once.append(
                Recomputation(
                    target_scope=self.target_scope or DEFAULT_TARGET_SCOPE,
                    hints_only=not level.recomputes,
                    rule=self.rule,
                    all_ports=self.all_ports,
                    same_sums=not self.as_grappler,
                )
            )
        if level.orders:
            settling += [FoldBranches(), BypassOptionals()]
            once += [MergeAddends(), PinSums(), EffectsBeforeData()]
            if self.budget is not None:
                first.append(CheckpointLoops())
                once.append(RunningSums())
            once += [NarrowBroadcasts(), BypassBarriers(), BypassCalls(), FoldShapes()]
            once.append(SerialLoops())
            if self.budget is None:
                once.append(Ordering())
            else:
                once += [Fission(), self.rematerialization]
        if level.schedules:
            repeated.append(AddnScheduling(running_sums=not self.as_grappler))
        if level.swaps or level.swaps_by_hint:
            repeated.append(
                Swapping(
                    heuristics=level.swaps,
                    improved=level.improves,
                    same_sums=not self.as_grappler,
                )
            )
        chosen = {pass_.name: pass_ for pass_ in (*settling, *first, *once, *repeated)}
        for spec in self.pass_options:
            name = spec.partition("{")[0]
            if name not in chosen:
                names = ", ".join(chosen) or "none"
                raise OptionsError(
                    f"level {level} does not run the pass {name!r}; it runs: {names}"
                )
            chosen[name] = chosen[name].with_options(spec)
        return Pipeline(
            tuple(chosen[pass_.name] for pass_ in once),
            tuple(chosen[pass_.name] for pass_ in repeated),
            tuple(chosen[pass_.name] for pass_ in first),
            tuple(chosen[pass_.name] for pass_ in settling),
        )

    def passes(self) -> tuple[Pass, ...]:
        """The passes of this level, in order."""
        pipeline = self.pipeline()
        return (*pipeline.settling, *pipeline.first, *pipeline.once, *pipeline.repeated)

    def optimize(
        self,
        cluster: VirtualCluster | None,
        item: GrapplerItem,
        properties: Properties | None = None,
    ) -> OptimizationResult:
        """Rewrite an item's graph.

        Args:
            cluster: The devices that the step runs on. Without, the passes that look at a
                simulation do not run.
            item: The graph and its use. It is not changed.
            properties: The sizes of its tensors, where they are known already; inferred if not.

        Raises:
            InvalidGraphError: The graph breaks a rule, or a fetch, feed or kept node is missing; or
                shapes do not fit, and a pass of the level goes by them.
            OptionsError: XLA compiles all of it.
        """
        if item.compiled:
            raise OptionsError(
                "XLA compiles the function, and drops what orders a graph; "
                "memopt.rewrite(function, budget=...) makes one that needs less when it is compiled"
            )
        deadline_s = time.monotonic() + self.deadline_ms / 1000 if self.deadline_ms else math.inf
        pipeline = self.pipeline()
        options = self.scheduler or SchedulerOptions(host_memory=not self.as_grappler)
        simulators = Simulators(cluster, choose_costs(self.costs, item), options)
        if properties is None:
            infer = Properties.as_in_grappler if self.as_grappler else Properties.of
            properties = infer(item)
        settled = settle(Source(item, properties), pipeline, simulators, deadline_s)
        prepared = self.prepare(settled._replace(reports={}), simulators)
        prepared = prepared._replace(nodes_before=len(item.graph_def.node))
        trying = Attempts(self, settled.item, pipeline, simulators, deadline_s)
        best = settled.told_in(trying.best(prepared))
        if best.report.runtime is not None:
            _check_budgets(pipeline, best, best.report.runtime)
        return best

    def prepare(
        self, source: Source, simulators: Simulators, like: Prepared | None = None
    ) -> Prepared:
        """An item's graph, verified and ready to be rewritten.

        Args:
            source: The graph.
            simulators: How its graphs are simulated.
            like: The step as it was given, if it is known already: budgets are shares of that, and
                what comes out is compared with it.
        """
        item, properties = source.item, source.properties
        is_auto = self.costs == AUTO
        costs = choose_planning_costs(AUTO, item) if is_auto else simulators.costs
        with collector_paused():
            graph = from_graph_def(item.graph_def)
            verify_item(graph, item)
            if simulators.cluster is not None and self.pipeline().repeated:
                properties.require()
            parts = [
                part._replace(context=replace(part.context, runtime=self.runtime, costs=costs))
                for part in find_parts(graph, item, properties, simulators)
            ]
            before = self._runtime_memory(parts) if like is None else like.before
            limits = self._limits(before) if like is None else like.limits
            parts[0] = parts[0].limited(limits)
        nodes_before = len(graph) if like is None else like.nodes_before
        return Prepared(source, graph, tuple(parts), nodes_before, before, limits)

    def run(self, pipeline: Pipeline, prepared: Prepared, deadline_s: float) -> OptimizationResult:
        """What one pipeline makes of an item's graph, whether it keeps the budget or not."""
        graph, parts, limits = prepared.graph, prepared.parts, prepared.limits
        with collector_paused():
            graphs = {
                part.function: prepared.source.reported(pipeline.run(*part, deadline_s))
                for part in self._in_turn(parts, limits.budget_bytes)
            }
            before, after = prepared.before, self._runtime_memory(parts)
            runtime = None
            if before is not None and after is not None:
                runtime = RuntimeMemory(
                    before,
                    after,
                    limits.total_bytes,
                    device_memory(before, after, limits.devices_bytes),
                )
            graph_def = to_graph_def(graph)
        return OptimizationResult(
            graph_def=graph_def,
            report=OptimizationReport(
                level=Level.parse(self.level),
                graphs=tuple(graphs[part.function] for part in parts),
                nodes_before=prepared.nodes_before,
                nodes_after=len(graph),
                properties=prepared.source.properties,
                runtime=runtime,
            ),
        )

    def _runtime_memory(self, parts: Sequence[Part]) -> MemoryTimeline | None:
        """The step's memory as TensorFlow's allocator has it, at a level that looks at it."""
        if not Level.parse(self.level).orders or not len(parts[0].graph):
            return None
        return run_parts(parts)

    def _in_turn(self, parts: Sequence[Part], budget_bytes: int) -> Iterator[Part]:
        """The parts in the order in which they are rewritten, each knowing what it may use.

        An order of the main graph takes into account what bodies need once they are ordered. With a
        budget the main graph comes first, and leaves the bodies what it does not use itself.
        """
        if not Level.parse(self.level).orders:
            yield from parts
        elif not budget_bytes:
            yield from reversed(parts)
        else:
            main, *bodies = parts
            yield main._replace(context=replace(main.context, budget_bytes=budget_bytes))
            if not bodies:
                return
            known = {part.function: (part.graph, part.context) for part in parts}
            limits = BodyLimits(known, budget_bytes)
            for part in bodies:
                limit_bytes = limits.of(part.function) or budget_bytes
                yield part._replace(context=replace(part.context, budget_bytes=limit_bytes))
                limits.settle(part.function, known[part.function])

    def _limits(self, before: MemoryTimeline | None) -> MemoryLimits:
        """What the budget means for a step; no limit without one."""
        if self.budget is None or before is None:
            return MemoryLimits()
        return find_limits(Budget.parse(self.budget), before)


def _check_budgets(
    pipeline: Pipeline,
    result: OptimizationResult,
    runtime: RuntimeMemory,
) -> None:
    """Check the budget of the step as it is going to run, and those of scopes.

    Raises:
        BudgetError: One is not kept; it has the result.
    """
    if not runtime.keeps_budget:
        raise refusal(result, from_graph_def(result.graph_def).library)
    after = runtime.after
    planners = (one for one in pipeline.once if isinstance(one, Rematerialization))
    for scope in (scope for one in planners for scope in parse_scopes(one.scopes)):
        peak_bytes = scope.peak_bytes(after.buffer_graph, after.sequence)
        if peak_bytes > scope.limit_bytes:
            raise BudgetError(
                f"the budget of {scope.limit_bytes} bytes of the scope {scope.pattern!r} cannot be "
                f"kept: the lowest peak of its own that was found is {peak_bytes} bytes",
                scope.limit_bytes,
                peak_bytes,
                result,
            )
