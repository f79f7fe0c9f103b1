"""A gradient of a convolution, computed as products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.buffers.working_sets import working_sets
from memopt.context import Context
from memopt.fission.products import write_products
from memopt.graph.graphdef import from_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.sequencing.step import Step
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from memopt.fission.gradients import Gradient
    from memopt.graph.graph import Graph
    from memopt.item import GrapplerItem


def as_products(item: GrapplerItem, name: str, way: Gradient) -> tuple[Graph, int]:
    """A graph with a gradient computed in some way, and what one operation needs at most."""
    graph = from_graph_def(item.graph_def)
    context = Context.of_item(item, Properties.of(item))
    rewriter = Rewriter(graph)
    with rewriter.edit("as products"):
        write_products(rewriter, context, graph[name], way)
    step = Step.in_context(graph, context)
    _, sets = working_sets(step.buffer_graph, sorted(step.precedence.program))
    return graph, max(each.size_bytes for each in sets)
