"""Rematerialization with chosen strategies on a step's graph, in one call and without a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.buffer_graph import simulate
from memopt.context import Context
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.traversal import Numbering
from memopt.graph.verify import verify_graph
from memopt.passes.ordering import Ordering
from memopt.rematerialization.rewriting.apply import apply_copies
from memopt.rematerialization.rewriting.eligibility import network_of
from memopt.rematerialization.storage.compression import NO_TILE, pad_buffers
from memopt.rematerialization.storage.forms import Strategies
from memopt.rematerialization.storage.storable import find_forms
from memopt.rematerialization.xla.algorithm import rematerialize
from memopt.sequencing.enforcement import enforce
from memopt.sequencing.orders import PROGRAM
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.graph.graph import Graph, Node
    from memopt.item import GrapplerItem
    from memopt.rematerialization.rematerialized import Rematerialized
    from memopt.rematerialization.storage.compression import Compressor
    from memopt.rematerialization.storage.offloading import Offloader


class RematRun(NamedTuple):
    """What came of it.

    Attributes:
        done: The plan.
        graph: The graph with all that was planned, its order enforced.
        ordered_bytes: The peak without it, on top of what is held, as simulated.
        planned_bytes: The peak with it, as simulated on the plan.
        peak_bytes: The peak with it, as simulated on the graph that came out.
    """

    done: Rematerialized
    graph: Graph
    ordered_bytes: int
    planned_bytes: int
    peak_bytes: int

    @property
    def graph_def(self) -> GraphDef:
        return to_graph_def(self.graph)

    def ops(self, prefix: str) -> list[str]:
        """The ops of the nodes whose names start so."""
        return [node.op for node in self.graph if node.name.startswith(prefix)]


def run_remat(
    item: GrapplerItem,
    share: float,
    *,
    recompute: bool = False,
    compressor: Compressor | None = None,
    offloader: Offloader | None = None,
    sequencer: str = "best",
) -> RematRun:
    """Order a graph, rematerialize to a share of what it then needs, and enforce the order.

    Args:
        item: The graph with its fetches.
        share: The share.
        recompute: Whether results may be recomputed.
        compressor: How results are compressed, and how the device pads.
        offloader: How results are taken to the host.
        sequencer: How the order is found.
    """
    graph = from_graph_def(item.graph_def)
    rewriter = Rewriter(graph)
    context = Context(
        Properties.of(item),
        fed=_nodes(item.feed),
        fetched=_nodes(item.fetch),
        kept=_nodes(item.keep),
    )
    tile = compressor.tile if compressor is not None else NO_TILE
    order = Ordering(sequencer=sequencer).order(graph, context)
    assert order is not None
    buffers = pad_buffers(order.buffer_graph, context.properties, tile)
    ordered_bytes = simulate(buffers, order.sequence).step_peak_bytes
    network = network_of(graph, buffers, order.sequence, context)
    forms = find_forms(rewriter, network, context, compressor=compressor, offloader=offloader)
    done = rematerialize(
        network,
        buffers.held_bytes + int(ordered_bytes * share),
        largest_block=16,
        strategies=Strategies(recompute, forms),
    )
    with rewriter.edit("rematerialized"):
        nodes = apply_copies(rewriter, done, context)
    verify_graph(graph)
    after, sequence = _number(graph, nodes, context)
    with rewriter.edit("ordered"):
        for chain in enforce(after, sequence, fed=context.fed):
            for before, behind in chain.edges:
                rewriter.add_control_input(after.nodes[behind], after.nodes[before])
    verify_graph(graph)
    return RematRun(
        done,
        graph,
        ordered_bytes,
        simulate(done.buffer_graph, done.sequence).step_peak_bytes,
        simulate(pad_buffers(after, context.properties, tile), sequence).step_peak_bytes,
    )


def _number(graph: Graph, nodes: Sequence[Node], context: Context) -> tuple[BufferGraph, list[int]]:
    now = Ordering(sequencer=PROGRAM).order(graph, context)
    assert now is not None
    numbering = Numbering.of(graph)
    return now.buffer_graph, [numbering.place(node) for node in nodes]


def _nodes(names: Sequence[str]) -> frozenset[str]:
    return frozenset(name.partition(":")[0] for name in names)
