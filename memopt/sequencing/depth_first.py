"""Sequences by a walk from the results back to what they need, producers before users.

XLA's `DFSMemoryScheduler` and `PostOrderMemoryScheduler` (xla/service/hlo_memory_scheduler.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.sequencing.precedence import Precedence


def dfs_sequence(buffer_graph: BufferGraph, precedence: Precedence) -> list[int]:
    """Walk back from the results, and to the producers first that lead to the most.

    A node's extra users are its users but one, and those of all its producers added, as often as
    paths lead from them; its total size is the bytes that it makes, and those of its producers
    likewise. Of the producers of a node the one with the most extra users comes first, then the
    one with the largest total, then by name. Nodes that make only what was there before the step
    (arguments and constants) count nothing. Both numbers are capped, by the number of nodes and by
    the bytes of all that was looked at so far, since the number of paths can be exponential.
    """
    extra_users, total_bytes = _statistics(buffer_graph, precedence)
    nodes = buffer_graph.nodes
    by_rank = sorted(
        precedence.program,
        key=lambda node: (-extra_users[node], -total_bytes[node], nodes[node].name),
    )
    rank = [0] * len(nodes)
    for number, node in enumerate(by_rank):
        rank[node] = number
    ends = [node for node in by_rank if not precedence.users[node]]
    producers = [sorted(before, key=rank.__getitem__) for before in precedence.producers]
    return post_order(producers, ends)


def postorder_sequence(buffer_graph: BufferGraph, precedence: Precedence) -> list[int]:
    """Walk back from the results in program order, from each to its inputs in order.

    What a node only waits for comes before what it reads, as in XLA.
    """
    ends = [node for node in precedence.program if not precedence.users[node]]
    producers = [
        _controls_first(buffer_graph, node, before)
        for node, before in enumerate(precedence.producers)
    ]
    return post_order(producers, ends)


def _controls_first(buffer_graph: BufferGraph, node: int, producers: Sequence[int]) -> list[int]:
    """A node's producers, those first that it reads nothing from."""
    nodes = buffer_graph.nodes
    read = {tensor.node for tensor in nodes[node].inputs}
    return sorted(producers, key=lambda producer: nodes[producer] in read)


def _statistics(buffer_graph: BufferGraph, precedence: Precedence) -> tuple[list[int], list[int]]:
    """By node: extra users and total bytes."""
    graph = buffer_graph
    extra_users = [0] * len(graph.nodes)
    total_bytes = [0] * len(graph.nodes)
    most_users = len(precedence.program)
    most_bytes = 0
    for node in precedence.program:
        if _is_given(graph, node):
            continue
        made_bytes = sum(graph.size_bytes[buffer] for buffer in graph.made[node])
        most_bytes += made_bytes
        users, size_bytes = max(len(precedence.users[node]) - 1, 0), made_bytes
        for producer in precedence.producers[node]:
            users += extra_users[producer]
            size_bytes += total_bytes[producer]
        extra_users[node] = min(users, most_users)
        total_bytes[node] = min(size_bytes, most_bytes)
    return extra_users, total_bytes


def _is_given(graph: BufferGraph, node: int) -> bool:
    """Whether a node hands over what was there before: an argument, a constant, a handle."""
    return not graph.producers[node] and not graph.made[node]


def post_order(producers: Sequence[Sequence[int]], ends: Sequence[int]) -> list[int]:
    """Everything that leads to the ends, from each node to its producers in their order."""
    sequence: list[int] = []
    entered = [False] * len(producers)
    done = [False] * len(producers)
    pending = list(reversed(ends))
    while pending:
        node = pending[-1]
        if entered[node]:
            pending.pop()
            if not done[node]:
                done[node] = True
                sequence.append(node)
            continue
        entered[node] = True
        pending.extend(p for p in reversed(producers[node]) if not entered[p])
    return sequence
