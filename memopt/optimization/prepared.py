"""A graph made ready for passes: verified, with its functions' bodies, what is known of each."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from memopt.accumulation.running_sums import is_divisible
from memopt.buffers.kernel_signature import is_compiled
from memopt.buffers.working_sets import working_sets
from memopt.fission.facts import Facts
from memopt.graph.final import is_final, is_given_to_grappler
from memopt.graph.functiondef import ARGUMENT, RESULT, Library
from memopt.graph.op_types import called_functions
from memopt.graph.verify import verify_graph, verify_references
from memopt.passes import Context
from memopt.simulation.simulated_memory import SimulatedMemory
from memopt.simulation.virtual_scheduler import SchedulerOptions, VirtualScheduler
from memopt.simulation.wiring import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.cluster import VirtualCluster
    from memopt.costs.cost_model import CostModel
    from memopt.graph.graph import Graph, Node
    from memopt.item import GrapplerItem
    from memopt.optimization.device_limits import MemoryLimits
    from memopt.result import GraphReport, OptimizationResult, PassReport
    from memopt.shapes.properties import Properties

_LEAST_SHARE = 0.15
"""Of what a step needs itself, what is the least that plans with operations in parts come to."""
_LESS = 0.85
"""Of what the largest operation needs, what those that stay whole may need for it to be split."""


class Simulators(NamedTuple):
    """How the graphs of one optimization are simulated, if they are."""

    cluster: VirtualCluster | None
    costs: CostModel
    options: SchedulerOptions

    def of(
        self, graph: Graph, properties: Properties, fetched: Iterable[str], fed: frozenset[str]
    ) -> SimulatedMemory | None:
        """The simulation of a graph; `None` without devices or fetches."""
        request = Request(tuple(dict.fromkeys(fetched)), fed)
        if self.cluster is None or not request.fetched:
            return None
        scheduler = VirtualScheduler(self.cluster, self.costs, properties, self.options)
        return SimulatedMemory(graph, scheduler, request)


def verify_item(graph: Graph, item: GrapplerItem) -> None:
    """Verify the main graph, what the item says of it, and the functions that it calls."""
    verify_graph(graph)
    verify_references(graph, item.fetch, "fetch")
    verify_references(graph, item.feed, "feed")
    verify_references(graph, item.keep, "kept node")
    if isinstance(graph.library, Library):
        for name in graph.library.called_by(graph):
            verify_graph(graph.library.graph(name))


class Part(NamedTuple):
    """The main graph (by the name "") or a function's body.

    Attributes:
        function: The function's name.
        graph: What passes change.
        context: What they may know.
    """

    function: str
    graph: Graph
    context: Context

    def limited(self, limits: MemoryLimits) -> Part:
        """The same with limits of single devices."""
        known = replace(self.context, device_limits_bytes=limits.devices_bytes)
        return self._replace(context=known)


class Source(NamedTuple):
    """A graph from which an optimization can begin.

    Attributes:
        item: The graph and its use.
        properties: The sizes of its tensors.
        reports: By function, "" for the main graph: what was done to it already.
    """

    item: GrapplerItem
    properties: Properties
    reports: Mapping[str, tuple[PassReport, ...]] = MappingProxyType({})

    @property
    def reasons(self) -> list[str]:
        """What was done to it, edit by edit."""
        reports = (report for reports in self.reports.values() for report in reports)
        return [edit.reason for report in reports for edit in report.edits]

    @property
    def edits(self) -> int:
        """How much was done to it."""
        return len(self.reasons)

    def reported(self, report: GraphReport) -> GraphReport:
        """What passes did to a graph, after what was done to it before."""
        done = self.reports.get(report.function, ())
        return replace(report, passes=(*done, *report.passes)) if done else report

    def told_in(self, result: OptimizationResult) -> OptimizationResult:
        """A result that says as well why nothing was done before."""
        graphs = tuple(map(self.reported, result.report.graphs))
        return replace(result, report=replace(result.report, graphs=graphs))


class Prepared(NamedTuple):
    """A graph that is ready to be rewritten, once.

    Attributes:
        source: Where the graph comes from.
        graph: The main graph; passes change it in place.
        parts: It and the bodies of functions that it calls, callers first.
        nodes_before: How many nodes the main graph had as it was given.
        before: The step's memory as it is, at a level that looks at it.
        limits: What the budget means for it.
    """

    source: Source
    graph: Graph
    parts: tuple[Part, ...]
    nodes_before: int
    before: MemoryTimeline | None
    limits: MemoryLimits

    @property
    def is_out_of_reach(self) -> bool:
        """Whether an operation by itself needs more than the budget."""
        return bool(self._too_large()[1])

    @property
    def is_up_to_splitting(self) -> bool:
        """Whether operations by themselves need more than the budget, and all these can be split.

        Calls do not count: what they need depends on how functions are rewritten. Of a budget that
        no plan comes near it is not so.
        """
        room_bytes, large = self._too_large()
        library = self.graph.library
        if library is not None:
            large = {
                node: need for node, need in large.items() if not called_functions(node, library)
            }
        if self.before is None or not large:
            return False
        if room_bytes < _LEAST_SHARE * self.before.step_peak_bytes:
            return False
        return not self._staying(large)

    @property
    def is_less_in_parts(self) -> bool:
        """Whether the largest operation can be split, beside others that cannot, and need less.

        Those need more than the budget too, and so what the step needs at the least. A call of a
        function is one that cannot be split, as a loop is one.
        """
        _, large = self._too_large()
        staying_bytes = max((large[node] for node in self._staying(large)), default=0)
        return 0 < staying_bytes <= _LESS * max(large.values(), default=0)

    def _staying(self, nodes: Iterable[Node]) -> list[Node]:
        """Those of the nodes, as the step was given, that cannot need less by being split."""
        facts = Facts(self.graph, self.parts[0].context)
        own = {node: self.graph.find(node.name) for node in nodes}
        return [node for node, one in own.items() if one is None or not facts.can_need_less(one)]

    def _too_large(self) -> tuple[int, dict[Node, int]]:
        """What the budget leaves for an operation, and what those need that need more.

        They are those of the step as it was given. Sums do not count whose inputs are added one by
        one, as `RunningSums` does.
        """
        budget_bytes = self.limits.budget_bytes
        if self.before is None or not budget_bytes:
            return 0, {}
        graph = self.before.buffer_graph
        whole = [node for node in self.before.sequence if not is_divisible(graph.nodes[node])]
        fixed_bytes, sets = working_sets(graph, whole)
        room_bytes = budget_bytes - fixed_bytes
        large = (each for each in sets if each.size_bytes > room_bytes)
        return room_bytes, {graph.nodes[each.node]: each.size_bytes for each in large}

    @property
    def over_bytes(self) -> int:
        """How much more the step needs than all devices together may have; 0 without a limit."""
        return 0 if self.before is None else self.limits.missing_bytes(self.before.peak_bytes)


def find_parts(
    graph: Graph, item: GrapplerItem, properties: Properties, simulators: Simulators
) -> Iterator[Part]:
    """The main graph, and the bodies of the functions that it calls, callers first."""
    fed, fetched = _node_names(item.feed), _node_names(item.fetch)
    simulated = simulators.of(graph, properties, fetched, frozenset(fed))
    yield Part("", graph, Context.of_item(item, properties, simulated))
    library = graph.library
    if not isinstance(library, Library):
        return
    is_settled = is_final(item.graph_def)

    def stays(node: Node) -> bool:
        """Nothing would act on what XLA compiles; what Grappler gets last would change bits."""
        return is_compiled(node) or (is_settled and is_given_to_grappler(node, library))

    for name in library.called_by(graph, stays):
        body = library.graph(name)
        known = properties.function(name)
        results = [node.name for node in body if node.op == RESULT]
        kept = library.control_outputs(name)
        context = Context(
            known,
            fed=frozenset(node.name for node in body if node.op == ARGUMENT),
            fetched=frozenset(results),
            kept=frozenset(kept),
            # What is given to a function is made before it starts, so nothing is fed.
            simulated=simulators.of(body, known, (*results, *kept), frozenset()),
            in_function=True,
        )
        yield Part(name, body, context)


def _node_names(references: tuple[str, ...]) -> list[str]:
    return [name.partition(":")[0] for name in references]
