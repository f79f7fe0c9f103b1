"""Which of some sequences is one to recompute in: what a backward part needs in each."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from memopt.graph.backward import find_backward_nodes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.graph.graph import Graph, Node

_NEAR = 1.05
"""Of the lowest peak of a step's own, up to how much another one may be to be looked at."""
_LESS = 0.5
"""Of what the backward part needs in the lowest sequence, what it may need at most in another one
for that to be taken."""


def fit_to_recompute(graph: Graph, found: Sequence[MemoryTimeline]) -> MemoryTimeline:
    """Of sequences that with the lowest peak, or one near it in whose backward part little waits.

    Once forward results are computed again, what is left is what the backward part makes: where
    gradients wait for their updates until the end, as they can without more being in use than at
    the first of them, no recomputation gets below these.

    Args:
        graph: The graph of all of them.
        found: The sequences; of equals the first is taken.
    """
    lowest = min(found, key=lambda each: each.peak_bytes)
    most_bytes = _NEAR * lowest.step_peak_bytes
    near = [each for each in found if each.step_peak_bytes <= most_bytes]
    if len(near) == 1:
        return lowest
    backward = graph.derived(find_backward_nodes)
    needs = [backward_need_bytes(each, backward) for each in near]
    least_bytes = min(needs)
    if least_bytes > _LESS * needs[near.index(lowest)]:
        return lowest
    return near[needs.index(least_bytes)]


def backward_need_bytes(order: MemoryTimeline, backward: Collection[Node]) -> int:
    """What a sequence has in use at most where a forward result is there only while it is used.

    Linear in nodes and edges. Memory that results share counts for each of them, and what lasts,
    as variables do, for none.

    Args:
        order: The sequence.
        backward: The nodes of the backward part.
    """
    graph = order.buffer_graph
    is_backward = [node in backward for node in graph.nodes]
    changes = [0] * (len(order.sequence) + 1)
    for position, node in enumerate(order.sequence):
        for buffer in {*graph.made[node], *graph.read[node]}:
            maker = graph.makers[buffer]
            if maker < 0 or graph.lasting[buffer]:
                continue
            ends = position
            if is_backward[maker]:
                if maker != node:
                    continue
                ends = order.last_position[buffer]
            changes[position] += graph.size_bytes[buffer]
            changes[ends + 1] -= graph.size_bytes[buffer]
    return max(accumulate(changes), default=0)
