"""The optimizer at work on one graph of TensorFlow's: one call, a budget, a last look."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from memopt.buffers.kernel_call import INTER_OP_VARIABLE, Runtime, threads_from
from memopt.cluster import VirtualCluster
from memopt.context import Context
from memopt.cores import usable_cores
from memopt.costs.choice import choose_planning_costs
from memopt.errors import BudgetError, InvalidGraphError, MemoptError
from memopt.graph.graphdef import from_graph_def
from memopt.graph.kernels import runs_onednn
from memopt.graph.op_types import DT_RESOURCE, DT_STRING, DT_VARIANT
from memopt.graph.verify import verify_graph, verify_references
from memopt.kernels.choice import choose_kernels, choose_times, memory_of_kernels
from memopt.loops.lowering import lower_loops
from memopt.optimization.overhead import estimate_overhead
from memopt.options import Budget, Level
from memopt.plugin import marks
from memopt.plugin.device_memory import device_budget
from memopt.plugin.records import RECORDS
from memopt.plugin.screening import has_lists_in_loops
from memopt.sequencing.frames import verify_loops
from memopt.sequencing.step import Step

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.item import GrapplerItem
    from memopt.kernels.measured import MeasuredKernels
    from memopt.plugin.policy import Policy
    from memopt.result import OptimizationReport, OptimizationResult
    from memopt.shapes.properties import Properties

_MEBIBYTE = 1 << 20
_UNKNOWN_SHOWN = 3
_WITHOUT_SIZES = frozenset({DT_STRING, DT_RESOURCE, DT_VARIANT})
_LEAST_SAVING = 0.05
"""Of what a step needs itself; an order costs some time, too."""


@dataclass(frozen=True)
class Work:
    """A graph with what is to be done to it, and, once asked for, what came of it.

    Attributes:
        item: The graph and its use.
        properties: The sizes of its tensors.
        policy: What is to be done.
    """

    item: GrapplerItem
    properties: Properties
    policy: Policy

    @cached_property
    def result(self) -> OptimizationResult:
        """The rewritten graph.

        Where a budget cannot be kept, the graph that needs least; a warning says so once. Who sets
        a budget is better off near it than with the step as it was.

        Raises:
            InvalidGraphError: The graph breaks a rule.
        """
        try:
            return self._optimize()
        except BudgetError as error:
            RECORDS.say_once(f"{error}. {_advice(self.policy)}", error)
            found: OptimizationResult = error.result
            return found

    @cached_property
    def why_not_ordered(self) -> str:
        """Why a step of recurrent layers stays as it is, or "".

        An order inside of loops takes time in every turn, so it is made for a budget alone. Loops
        are followed where their counters tell how often they run, and the sizes of all in them are
        known.
        """
        graph_def, policy = self.item.graph_def, self.policy
        if not policy.only_lower or not Level.parse(policy.level).orders:
            return ""
        if not has_lists_in_loops(graph_def):
            return ""
        if policy.budget is None:
            return "an order inside of loops with lists takes time, and no budget asks for one"
        context = replace(Context.of_item(self.item, self.properties), runtime=runtime_here())
        step = Step.in_context(from_graph_def(graph_def), context)
        if step.buffer_graph.lists_are_told:
            return ""
        return "what the lists in its loops hold is not known, so nothing can be predicted"

    @property
    def report(self) -> OptimizationReport:
        """What was done."""
        return self.result.report

    @property
    def is_worth_it(self) -> bool:
        """Whether the rewritten graph is to run: one that needs hardly less memory is not."""
        runtime = self.report.runtime
        if not self.report.modified or runtime is None or not self.policy.only_lower:
            return self.report.modified
        before, after = runtime.before, runtime.after
        if runtime.keeps_budget and not runtime.kept_budget:
            return True
        return after.step_peak_bytes <= (1 - _LEAST_SAVING) * before.step_peak_bytes

    @property
    def overhead(self) -> float | None:
        """The share of its estimated time that the step takes longer; `None` if nobody looked."""
        if self.report.runtime is None:
            return None
        optimizer = self.policy.optimizer()
        return estimate_overhead(
            self.item, self.result, choose_planning_costs(optimizer.costs, self.item)
        )

    def summary(self) -> str:
        """What was done, or why nothing was."""
        runtime, passes = self.report.runtime, self.report.passes
        failed = [f"failed: {report.failure}" for report in passes if report.failure]
        if runtime is not None and self.report.modified and not self.is_worth_it:
            before, after = (
                f"{timeline.step_peak_bytes / _MEBIBYTE:.2f} MiB"
                for timeline in (runtime.before, runtime.after)
            )
            found = (
                f"the best that was found needs {after} on top of what the step holds, and as it "
                f"is it needs {before}"
            )
            return "; ".join((found, *failed))
        edits: Counter[str] = Counter()
        for report in passes:
            # What several attempts and parts did with one pass counts as one.
            edits[report.name.partition("{")[0]] += len(report.edits)
        done = [f"{name}: {count} edits" for name, count in edits.items() if count]
        unknown = [
            f"{each.nodes} of {each.op} may need memory that no rule knows"
            for each in self.report.unknown_kernels[:_UNKNOWN_SHOWN]
        ]
        open_sizes = [self._open_sizes] if self._open_sizes else []
        parts = (*(done or ["nothing was found to change"]), *failed, *open_sizes, *unknown)
        return "; ".join(parts)

    @cached_property
    def _open_sizes(self) -> str:
        """Of how many tensors of numbers the sizes are not known: they count as next to nothing."""
        unknown = []
        for name in self.properties.unknown_sizes():
            known = self.properties.tensor(name)
            if known is not None and known.dtype not in _WITHOUT_SIZES:
                unknown.append(name)
        if not unknown:
            return ""
        return f"the sizes of {len(unknown)} tensors are not known, such as {unknown[0]}"

    def finished(self) -> GraphDef:
        """The rewritten graph, marked as such, after a last look at all of it.

        Raises:
            InvalidGraphError: TensorFlow would refuse it: it breaks a rule, a node that is asked
                for is missing, or one is on no device.
        """
        graph_def, item = lower_loops(self.result.graph_def), self.item
        before = {node.name: node.device for node in item.graph_def.node}
        marks.mark_added(graph_def, before.keys())
        marks.mark_done(graph_def, (*item.fetch, *item.keep))
        graph = from_graph_def(graph_def)
        verify_graph(graph)
        verify_references(graph, item.fetch, "fetch")
        verify_references(graph, item.keep, "kept node")
        verify_loops(graph)
        if all(before.values()):
            _verify_devices(graph_def)
        return graph_def

    def _optimize(self) -> OptimizationResult:
        policy = self.policy
        budget = policy.budget
        if isinstance(budget, Budget) and budget.of_device:
            budget = device_budget(self.item.graph_def)
        runtime = runtime_here()
        measured = self._measured(runtime)
        optimizer = policy.optimizer(budget)
        optimizer = replace(
            optimizer,
            runtime=replace(runtime, measurements=memory_of_kernels(measured, self.item)),
            costs=choose_times(optimizer.costs, measured, self.item),
        )
        cluster = VirtualCluster.of(None) if optimizer.pipeline().repeated else None
        return optimizer.optimize(cluster, self.item, self.properties)

    def _measured(self, runtime: Runtime) -> MeasuredKernels | None:
        """What was measured of the step's kernels; where that fails, the rules have to do."""
        try:
            return choose_kernels(self.policy.kernels, self.item, runtime, self.properties)
        except MemoptError as error:
            RECORDS.say_once(f"kernels are predicted by rules: {error}", error)
            return None


def _advice(policy: Policy) -> str:
    """What to do about a budget that is not kept."""
    advice = (
        "The step runs in that much: give it as the budget, or make the batch or the model smaller"
    )
    if policy.planning_seconds:
        advice += (
            f"; with more than planning_seconds={policy.planning_seconds:g} what is found may need "
            "less"
        )
    return advice


def runtime_here() -> Runtime:
    """What this process runs steps with."""
    import tensorflow as tf

    threads = tf.config.threading
    usual = Runtime()
    inter_op_threads = threads_from(INTER_OP_VARIABLE) or usable_cores()
    return replace(
        usual,
        intra_op_threads=threads.get_intra_op_parallelism_threads() or usual.intra_op_threads,
        inter_op_threads=threads.get_inter_op_parallelism_threads() or inter_op_threads,
        onednn=runs_onednn(),
    )


def _verify_devices(graph_def: GraphDef) -> None:
    for node in graph_def.node:
        if not node.device:
            raise InvalidGraphError(f"node {node.name!r} is on no device", node.name)
