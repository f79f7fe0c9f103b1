"""A graph whose nodes run in one order only, by a chain of control edges."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.traversal import Numbering

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.graph.graph import Graph, Node

_UNORDERED = frozenset({"Placeholder", "_Arg", "_Retval"})
"""Arguments and results of functions take no part in control edges."""


def program_order(graph: Graph) -> list[int]:
    """Positions of the nodes, producers first, else as they stand in the graph."""
    numbering = Numbering.of(graph)
    waiting = [len(set(sources)) for sources in numbering.producers]
    ready = [place for place, count in enumerate(waiting) if not count]
    heapify(ready)
    order = []
    while ready:
        place = heappop(ready)
        order.append(place)
        for user in numbering.users[place]:
            waiting[user] -= 1
            if not waiting[user]:
                heappush(ready, user)
    return order


def chained(graph_def: GraphDef) -> tuple[GraphDef, list[str]]:
    """The graph with its nodes in program order, one waiting for the other; and the order.

    The bodies of its functions are put in order as well, and loops run one turn after the other:
    TensorFlow would begin the next one, and what comes after the loop, before a turn has ended.
    """
    graph = from_graph_def(graph_def)
    order = _chain(graph)
    if graph.library is not None:
        for name in graph.library.names():
            _chain(graph.library.graph(name))
    ordered = to_graph_def(graph)
    bodies = (function.node_def for function in ordered.library.function)
    for node_def in chain.from_iterable((ordered.node, *bodies)):
        if "parallel_iterations" in node_def.attr:
            node_def.attr["parallel_iterations"].i = 1
    return ordered, [node.name for node in order]


def _chain(graph: Graph) -> list[Node]:
    nodes = Numbering.of(graph).nodes
    order = [nodes[place] for place in program_order(graph)]
    rewriter = Rewriter(graph)
    ordered = [node for node in order if node.op not in _UNORDERED]
    with rewriter.edit("one after the other"):
        for before, after in pairwise(ordered):
            if before not in (tensor.node for tensor in after.inputs):
                rewriter.add_control_input(after, before)
    return order
