"""A graph of whose branches all is told that can be, before anything else is done to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.optimization.pipeline import Pipeline
from memopt.optimization.prepared import Source, find_parts, verify_item
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.item import GrapplerItem
    from memopt.optimization.prepared import Simulators

_MOST_TURNS = 32
"""More than branches lie behind each other where each halves a sequence."""


def settle(source: Source, pipeline: Pipeline, simulators: Simulators, deadline_s: float) -> Source:
    """The source after the passes of a pipeline that settle what its branches do.

    What lies behind a branch is known only once that is settled: so they run until nothing changes.

    Args:
        source: A graph.
        pipeline: All passes of the level.
        simulators: How graphs are simulated; these are not.
        deadline_s: The `time.monotonic()` after which no further pass starts.

    Raises:
        InvalidGraphError: The graph breaks a rule.
    """
    passes = Pipeline(pipeline.settling, ())
    for _ in range(_MOST_TURNS):
        item = source.item
        if not passes.once or not _has_branches(item.graph_def):
            break
        graph = from_graph_def(item.graph_def)
        verify_item(graph, item)
        parts = list(find_parts(graph, item, source.properties, simulators._replace(cluster=None)))
        done = {part.function: passes.run(*part, deadline_s).passes for part in parts}
        reports = {name: (*source.reports.get(name, ()), *told) for name, told in done.items()}
        if not any(report.edits for told in done.values() for report in told):
            return source._replace(reports=reports)
        item = replace(item, graph_def=to_graph_def(graph))
        properties = Properties.of(_importable(item))
        if properties.failure:
            break
        source = Source(item, properties, reports)
    return source


def _importable(item: GrapplerItem) -> GrapplerItem:
    """The item without places beside nodes that Grappler has taken out: no import accepts these."""
    graph_def = type(item.graph_def)()
    graph_def.CopyFrom(item.graph_def)
    for node in graph_def.node:
        node.attr.pop(op_types.COLOCATED, None)
    return replace(item, graph_def=graph_def)


def _has_branches(graph_def: GraphDef) -> bool:
    """Whether a graph or a function of it opens optionals, or has branches that end no loop."""
    bodies = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    for nodes in bodies:
        loops = {node.name for node in nodes if node.op == "LoopCond"}
        for node in nodes:
            decides = node.input[1:2] if node.op == "Switch" else ()
            if node.op == "OptionalGetValue" or any(name not in loops for name in decides):
                return True
    return False
