"""How much longer a rewritten step takes than the original, as a cost model estimates it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.cluster import Device
from memopt.graph.functiondef import Library
from memopt.graph.graphdef import from_graph_def
from memopt.rematerialization.rewriting.apply import find_original

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memopt.costs.cost_model import CostModel
    from memopt.graph.graph import Graph, Node
    from memopt.item import GrapplerItem
    from memopt.result import OptimizationResult, RuntimeMemory
    from memopt.shapes.properties import Properties

_ANY_CPU = Device.parse("CPU:0=CPU")
"""What times are estimated for where a plan is made."""


def estimate_overhead(item: GrapplerItem, result: OptimizationResult, costs: CostModel) -> float:
    """The share of its estimated time that a step takes longer because of its rewriting.

    Operations of equal names take the same time before and after, and a copy takes that of its
    original: so a profile counts that was measured at another size. Of a step that calls functions,
    how often each body runs is not known: then it is the largest share that any of its graphs adds
    to itself, which the whole step's is not over.

    Args:
        item: The original step.
        result: What the optimizer made of it, at a level that orders operations.
        costs: How long operations take.

    Returns:
        0.2 where a step of 10 ms will take 12; never less than 0.
    """
    runtime = result.report.runtime
    if runtime is None:
        raise AssertionError("the step was not ordered")
    before, after = from_graph_def(item.graph_def), from_graph_def(result.graph_def)
    properties = result.report.properties
    found = [_added_share(*_running(before, after, runtime), properties, costs)]
    for name, body in _bodies(after).items():
        original = _bodies(before).get(name)
        if original is not None:
            known = properties.function(name)
            found.append(_added_share(list(original), list(body), known, costs))
    return max(found)


def _running(before: Graph, after: Graph, runtime: RuntimeMemory) -> tuple[list[Node], list[Node]]:
    """The nodes that run, of each of two graphs."""
    first = [runtime.before.buffer_graph.nodes[node].name for node in runtime.before.sequence]
    second = [runtime.after.buffer_graph.nodes[node].name for node in runtime.after.sequence]
    return [before[name] for name in first], [after[name] for name in second]


def _bodies(graph: Graph) -> Mapping[str, Graph]:
    library = graph.library
    if not isinstance(library, Library):
        return {}
    return {name: library.graph(name) for name in library.called_by(graph)}


def _added_share(
    before: Iterable[Node], after: Iterable[Node], properties: Properties, costs: CostModel
) -> float:
    """What the nodes of one graph take on top of those of another, as a share of these."""
    times_ns = {node.name: _time_ns(node, properties, costs) for node in before}
    added_ns = 0
    seen = set()
    for node in after:
        seen.add(node.name)
        if node.name not in times_ns:
            original = find_original(node.name, times_ns)
            added_ns += (
                _time_ns(node, properties, costs) if original is None else times_ns[original]
            )
    added_ns -= sum(time for name, time in times_ns.items() if name not in seen)
    return max(added_ns, 0) / max(sum(times_ns.values()), 1)


def _time_ns(node: Node, properties: Properties, costs: CostModel) -> int:
    return costs.cost(node, _ANY_CPU, properties).execution_ns
