"""The buffers of a step that XLA compiles: what its kernels leave in memory for others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.graph.xla_ops import COPYING, ELEMENTWISE, Fusion, fusion_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.buffers.buffer_graph import BufferGraph

_READS_MEMORY = (Fusion.KERNEL, Fusion.REDUCTION)
_TINY_BYTES = 4096
"""What is no larger costs nothing to keep."""
_MOST_OPERANDS = 6
"""How many large operands a fused kernel has at most, about."""


def compiled_buffers(buffer_graph: BufferGraph, *, copies_late: bool = False) -> BufferGraph:
    """What a step holds if XLA compiles it, from what TensorFlow's kernels would hold.

    1. A result that its readers compute for themselves, since it is cheap and none of them reads
       memory, or since only one kernel needs it, is in no memory: who reads it reads what it is
       made of.
    2. All others are in memory: what kernels make, and what kernels read.
    3. A fused kernel may write where an operand was that nobody reads after it.
    4. Variables are updated in place.
    5. Kernels have no scratch memory (what they need is not known before they are compiled), but
       for `COPYING` ones where operands are copied late: then these have copies of both, and
       compute what they copy.

    It is an estimate: a plan goes by it, and what it comes to, the compiler says. Linear in nodes
    and edges.

    Args:
        buffer_graph: What TensorFlow's kernels would hold.
        copies_late: Whether operands of convolutions are copied when they are read, see
            `delay_operands`, and not as soon as they are made.
    """
    nodes = buffer_graph.nodes
    fusions = [fusion_of(node) for node in nodes]
    copying = [copies_late and node.op in COPYING for node in nodes]
    readers = _find_readers(buffer_graph, fusions)
    made = [list(buffers) for buffers in buffer_graph.made]
    read = [list(buffers) for buffers in buffer_graph.read]
    size_bytes, lasting = list(buffer_graph.size_bytes), list(buffer_graph.lasting)
    for old, new in buffer_graph.next_values.items():
        lasting[old] = True
        size_bytes[new] = 0
    behind: dict[int, list[int]] = {}
    order = _order(buffer_graph)
    for node in order:
        read[node] = list(
            dict.fromkeys(source for one in read[node] for source in behind.get(one, (one,)))
        )
        if fusions[node] not in ELEMENTWISE:
            continue
        large = [b for b in read[node] if not lasting[b] and size_bytes[b] > _TINY_BYTES]
        for buffer in buffer_graph.made[node]:
            needs = [fusions[reader] for reader in readers[buffer] if not copying[reader]]
            if buffer_graph.lasting[buffer] or any(one in _READS_MEMORY for one in needs):
                continue
            is_kept = fusions[node] is Fusion.COSTLY and len(readers[buffer]) > 1
            if large and (is_kept or len(large) > _MOST_OPERANDS):
                continue
            behind[buffer] = read[node]
            made[node].remove(buffer)
            size_bytes[buffer] = 0
    reusable: list[list[int]] = [[] for _ in size_bytes]
    for node in order:
        if fusions[node] is Fusion.KERNEL:
            continue
        for buffer in made[node]:
            reusable[buffer] = [
                one
                for one in read[node]
                if size_bytes[one] == size_bytes[buffer] and not lasting[one]
            ]
    return replace(
        buffer_graph,
        made=made,
        read=read,
        size_bytes=size_bytes,
        lasting=lasting,
        reusable=reusable,
        scratch_bytes=_copied_bytes(buffer_graph, copying),
        next_values={},
        may_fuse=False,
        unknown=(),
    )


def _copied_bytes(buffer_graph: BufferGraph, copying: Sequence[bool]) -> list[int]:
    """By node, what the copies of its operands take; 0 for those that copy none."""
    return [
        sum(buffer_graph.size_bytes[buffer] for buffer in dict.fromkeys(read)) if copies else 0
        for read, copies in zip(buffer_graph.read, copying, strict=True)
    ]


def _find_readers(buffer_graph: BufferGraph, fusions: Sequence[Fusion]) -> list[list[int]]:
    """By buffer: the nodes that read it, those aside that only show it."""
    readers: list[list[int]] = [[] for _ in buffer_graph.size_bytes]
    for node, buffers in enumerate(buffer_graph.read):
        if fusions[node] is Fusion.VIEW and not buffer_graph.made[node]:
            continue
        for buffer in buffers:
            readers[buffer].append(node)
    return readers


def _order(buffer_graph: BufferGraph) -> list[int]:
    """All nodes, producers first."""
    missing = [len(producers) for producers in buffer_graph.producers]
    users: list[list[int]] = [[] for _ in missing]
    for node, producers in enumerate(buffer_graph.producers):
        for producer in producers:
            users[producer].append(node)
    order = [node for node, count in enumerate(missing) if not count]
    for node in order:
        for user in users[node]:
            missing[user] -= 1
            if not missing[user]:
                order.append(user)
    return order
