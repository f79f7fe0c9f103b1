"""A graph's buffers as TensorFlow's runtime has them: its tensors and the rules of its kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.costs.buffer_builder import BufferBuilder, Callee
from memopt.costs.buffer_graph import BufferGraph
from memopt.costs.buffer_pool import Pool
from memopt.costs.buffer_rules import Runtime
from memopt.costs.constant_folding import Folding
from memopt.costs.loop_buffers import settle_loops
from memopt.costs.shape_constants import asked_constants, is_kept
from memopt.graph.op_types import NEXT_ITERATIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memopt.costs.properties import Properties
    from memopt.graph.graph import Graph


def buffer_graph_of(
    graph: Graph,
    properties: Properties,
    *,
    fed: Collection[str] = (),
    fetched: Iterable[str] = (),
    runtime: Runtime | None = None,
) -> BufferGraph:
    """The buffers of a graph; near linear in nodes and edges.

    A tensor whose size is not known counts with the least that it can have; a kernel that is not
    known allocates its outputs and needs no scratch memory. Strings, and what kernels take from
    elsewhere than TensorFlow's allocator, count nothing.

    Args:
        graph: The graph.
        properties: The sizes of its tensors.
        fed: Names of the tensors (`x:0`) that the caller gives and keeps.
        fetched: Names of the tensors (`loss:0`) that the caller gets; names of operations have no
            effect.
        runtime: What the kernels run on; this machine if not given.

    Raises:
        InvalidGraphError: TensorFlow refuses the graph; the message is TensorFlow's.
    """
    fetched = tuple(fetched)
    given = frozenset(name.rpartition(":")[0] for name in fed)
    kept = given.union(name.partition(":")[0] for name in fetched)
    runtime = runtime or Runtime()
    folding = Folding.of(graph, properties if runtime.folds_constants else None, kept)
    builder = BufferBuilder(Callee(graph, properties, folding, runtime, given), Pool())
    builder.run()
    _keep(builder, graph, fetched)
    _remember(builder, graph)
    settle_loops(builder)
    nodes, producers = builder.numbering.nodes, builder.numbering.producers
    return BufferGraph(
        nodes=tuple(nodes),
        producers=[
            [p for p in dict.fromkeys(sources) if nodes[p].op not in NEXT_ITERATIONS]
            for sources in producers
        ],
        made=builder.made,
        read=builder.read,
        size_bytes=builder.pool.size_bytes,
        scratch_bytes=builder.scratch_bytes,
        lasting=builder.pool.lasting,
        reusable=builder.pool.reusable,
        next_values=builder.pool.next_values,
    )


def _remember(builder: BufferBuilder, graph: Graph) -> None:
    """What shape inference keeps of the graph's constants lasts, though no node reads it."""
    for node in asked_constants(graph):
        size_bytes = builder.output_bytes(builder.numbering.place(node), 0)
        if is_kept(size_bytes):
            builder.pool.add(size_bytes, lasting=True)


def _keep(builder: BufferBuilder, graph: Graph, fetched: Iterable[str]) -> None:
    """Fetched tensors and the values of variables last."""
    kept = list(builder.pool.values.values())
    for name in fetched:
        node, _, port = name.rpartition(":")
        if node in graph:
            kept.append(builder.buffer(graph[node].output(int(port))))
    for buffer in builder.pool.with_contents(kept):
        builder.pool.lasting[buffer] = True
