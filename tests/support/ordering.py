"""A whole step ordered: its main graph and the bodies of the functions that it calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.context import Context
from memopt.graph.functiondef import Library
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.verify import verify_graph
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.graph.graph import Graph
    from memopt.graph.rewriter import Edit
    from memopt.item import GrapplerItem
    from memopt.passes.ordering import Ordering


class Ordered(NamedTuple):
    """An ordered step.

    Attributes:
        graph_def: The new graph.
        edits: What was done to the main graph and the bodies.
        step_peak_bytes: The main graph's peak in the simulation.
    """

    graph_def: GraphDef
    edits: tuple[Edit, ...]
    step_peak_bytes: int


def order_step(item: GrapplerItem, pass_: Ordering) -> Ordered:
    """Run the pass on everything that the step runs."""
    graph = from_graph_def(item.graph_def)
    edits: list[Edit] = []
    step_peak_bytes = 0
    for body, context in _graphs(graph, item):
        if body is graph:
            order = pass_.order(graph, context)
            step_peak_bytes = 0 if order is None else order.step_peak_bytes
        rewriter = Rewriter(body)
        pass_.run(rewriter, context)
        verify_graph(body)
        edits += rewriter.edits
    return Ordered(to_graph_def(graph), tuple(edits), step_peak_bytes)


def _graphs(graph: Graph, item: GrapplerItem) -> Iterator[tuple[Graph, Context]]:
    properties = Properties.of(item)
    fed, fetched = (
        frozenset(name.partition(":")[0] for name in names) for names in (item.feed, item.fetch)
    )
    yield graph, Context(properties, fed=fed, fetched=fetched)
    if not isinstance(graph.library, Library):
        return
    for name in graph.library.called_by(graph):
        body = graph.library.graph(name)
        context = Context(
            properties.function(name),
            fed=frozenset(node.name for node in body if node.op == "_Arg"),
            fetched=frozenset(node.name for node in body if node.op == "_Retval"),
            kept=frozenset(graph.library.control_outputs(name)),
        )
        yield body, context
