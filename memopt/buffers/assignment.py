"""A graph's buffers as TensorFlow's runtime has them: its tensors and the rules of its kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.buffers.buffer_graph import BufferGraph, UnknownKernels
from memopt.buffers.builder import BufferBuilder, Callee
from memopt.buffers.kernel_call import Runtime
from memopt.buffers.kernel_rules import CONVOLUTIONS
from memopt.buffers.nested_steps import settle_loops
from memopt.buffers.pool import Pool
from memopt.graph.op_types import NEXT_ITERATIONS
from memopt.graph.traversal import Numbering
from memopt.shapes.constant_folding import Folding
from memopt.shapes.inferred_constants import kept_tensors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memopt.buffers.placed_tensors import PlacedTensors
    from memopt.graph.graph import Graph
    from memopt.shapes.properties import Properties


def buffer_graph_of(
    graph: Graph,
    properties: Properties,
    *,
    fed: Collection[str] = (),
    fetched: Iterable[str] = (),
    roots: Collection[str] = (),
    runtime: Runtime | None = None,
) -> BufferGraph:
    """The buffers of a graph; near linear in nodes and edges.

    A tensor whose size is not known counts with the least that it can have; a kernel that is not
    known allocates its outputs and needs no scratch memory. Long strings, and what kernels
    take from elsewhere than TensorFlow's allocator, count nothing.

    Args:
        graph: The graph.
        properties: The sizes of its tensors.
        fed: Names of the tensors (`x:0`) that the caller gives and keeps.
        fetched: Names of the tensors (`loss:0`) that the caller gets; names of operations have no
            effect.
        roots: Names of the nodes because of which others run; what none of them needs allocates
            nothing. All nodes run if there are none.
        runtime: What the kernels run on; this machine if not given.

    Raises:
        InvalidGraphError: TensorFlow refuses the graph; the message is TensorFlow's.
    """
    fetched = tuple(fetched)
    given = frozenset(name.rpartition(":")[0] for name in fed)
    kept = given.union(name.partition(":")[0] for name in fetched)
    # Who does not say where a graph runs may run it elsewhere, too.
    may_fuse = runtime is None or runtime.onednn
    runtime = runtime or Runtime()
    is_needed = Numbering.of(graph).running_for(roots)
    folded = properties if runtime.folds_constants else None
    folding = Folding.of(graph, folded, kept, is_needed)
    builder = BufferBuilder(Callee(graph, properties, folding, runtime, given), Pool())
    builder.run()
    tensors = builder.tensors
    _keep(tensors, graph, fetched)
    for tensor in kept_tensors(graph, tensors.known, is_needed):
        # Shape inference holds it, no node reads it.
        tensors.pool.add(tensors.known(tensor).least_bytes, lasting=True)
    settle_loops(tensors, builder.loops.values())
    nodes, producers = tensors.numbering.nodes, tensors.numbering.producers
    return BufferGraph(
        nodes=tuple(nodes),
        producers=[
            [
                *(p for p in dict.fromkeys(sources) if nodes[p].op not in NEXT_ITERATIONS),
                *builder.frames.inside(place),
            ]
            for place, sources in enumerate(producers)
        ],
        made=tensors.made,
        read=tensors.read,
        size_bytes=tensors.pool.size_bytes,
        scratch_bytes=tensors.scratch_bytes,
        lasting=tensors.pool.lasting,
        reusable=tensors.pool.reusable,
        next_values=tensors.pool.next_values,
        may_fuse=may_fuse,
        unknown=_unknown(tensors.pool),
        lists_are_told=builder.frames.is_told,
        unsure=frozenset(
            place
            for place, node in enumerate(nodes)
            if node.op in CONVOLUTIONS and (node.op, node.name) in tensors.pool.unknown
        ),
    )


def _unknown(pool: Pool) -> tuple[UnknownKernels, ...]:
    """The kernels that nobody knows, by op, the largest first."""
    found: dict[str, UnknownKernels] = {}
    for (op, node), size_bytes in pool.unknown.items():
        known = found.get(op, UnknownKernels(op, 0, node, -1))
        largest = (node, size_bytes) if size_bytes > known.most_bytes else known[2:]
        found[op] = UnknownKernels(op, known.nodes + 1, *largest)
    return tuple(sorted(found.values(), key=lambda each: (-each.most_bytes, each.op)))


def _keep(tensors: PlacedTensors, graph: Graph, fetched: Iterable[str]) -> None:
    """Fetched tensors and the values of variables last."""
    kept = list(tensors.pool.values.values())
    for name in fetched:
        node, _, port = name.rpartition(":")
        if node in graph:
            kept.append(tensors.buffer(graph[node].output(int(port))))
    for buffer in tensors.pool.with_contents(kept):
        tensors.pool.lasting[buffer] = True
