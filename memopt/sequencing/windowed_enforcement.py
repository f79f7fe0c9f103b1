"""The control edges that let operations run side by side, but within windows of a sequence."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from memopt.sequencing.ancestry import MOST_AHEAD, REACH, Ancestry
from memopt.sequencing.enforcement import Chain, ControlEdge, enforce, find_chains, find_pairs
from memopt.sequencing.holding_edges import HoldingEdges

_LESS_AHEAD = (63, 15, 3)
"""How far ahead operations may start where to start further ahead takes too many edges."""
_MOST_EDGES = 10
"""For each operation; in a total order there is one. So many are made at most, and some more."""
_MORE_EDGES = 10_000

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.sequencing.precedence import Precedence


def enforce_within(
    timeline: MemoryTimeline,
    precedence: Precedence,
    *,
    limit_bytes: int,
    threads: int,
    smallest_bytes: int = 0,
    fed: Collection[str] = (),
) -> list[Chain]:
    """The edges that keep a sequence as far as it takes to use no more than a limit.

    What takes over the memory of what it reads waits for the others that read that, as it does in
    the sequence; operations on the same state keep their order.

    Where that takes too many edges, since little else orders the operations, windows are narrower.
    With one thread, and where operations on several devices, in loops or in branches have to be
    ordered, each operation waits for the one before it: see `enforce`.

    Args:
        timeline: The sequence, one operation at a time.
        precedence: What must come before what.
        limit_bytes: What may be in use; at least the peak of the sequence.
        threads: How many operations can run at once.
        smallest_bytes: Nodes that touch nothing as large as this are left free.
        fed: Names of nodes whose own computation does not run.

    Returns:
        The chains in which there is something to order, each with the edges to add.
    """
    graph, sequence = timeline.buffer_graph, timeline.sequence
    chains = find_chains(graph, sequence, smallest_bytes=smallest_bytes, fed=fed)
    if threads <= 1 or len(chains) != 1:
        return enforce(graph, sequence, smallest_bytes=smallest_bytes, fed=fed)
    # Late, because of numpy: what needs no windows starts sooner.
    from memopt.sequencing.windows import Room, find_windows

    (chain,) = chains
    pairs = find_pairs(graph)
    more = find_waits(timeline, precedence, chain.nodes, pairs)
    limit_bytes = max(limit_bytes, timeline.peak_bytes)
    for most_ahead in (MOST_AHEAD, *_LESS_AHEAD):
        room = Room(limit_bytes, threads, most_ahead)
        waits = find_windows(timeline, chain.nodes, more, pairs, room)
        edges = _Edges(timeline, chain.nodes, more, pairs, waits).make()
        if edges is not None:
            return [Chain(chain.device, chain.nodes, edges)]
    return enforce(graph, sequence, smallest_bytes=smallest_bytes, fed=fed)


def find_waits(
    timeline: MemoryTimeline,
    precedence: Precedence,
    chain: Sequence[int],
    pairs: Mapping[int, int],
) -> dict[int, list[int]]:
    """By node of a chain: others of it that it has to wait for, though no edge says so.

    Args:
        timeline: The sequence, one operation at a time.
        precedence: What must come before what.
        chain: The nodes that are ordered, in the order of the sequence.
        pairs: First to second: oneDNN makes one node of them, so neither waits for the other.
    """
    graph = timeline.buffer_graph
    place = {node: number for number, node in enumerate(chain)}
    readers: dict[int, list[int]] = {source: [] for source in timeline.reused.values()}
    for node in chain:
        for buffer in graph.read[node]:
            if buffer in readers:
                readers[buffer].append(node)
    waits: dict[int, dict[int, None]] = {}
    for node in chain:
        found = dict.fromkeys(p for p in precedence.producers[node] if p in place)
        for buffer in graph.made[node]:
            found.update(dict.fromkeys(readers.get(timeline.reused.get(buffer, -1), ())))
        waits[node] = dict.fromkeys(
            other for other in found if place[other] < place[node] and pairs.get(other) != node
        )
    parted = HoldingEdges(graph).parted
    known = [
        frozenset(producers) - parted if node not in parted else frozenset()
        for node, producers in enumerate(graph.producers)
    ]
    return {
        node: [other for other in found if other not in known[node]]
        for node, found in waits.items()
    }


class _Edges:
    """Makes the edges of a chain, from its first operation to its last."""

    def __init__(
        self,
        timeline: MemoryTimeline,
        chain: Sequence[int],
        more: Mapping[int, Sequence[int]],
        pairs: Mapping[int, int],
        waits: Sequence[int],
    ) -> None:
        self._chain = chain
        self._more = more
        self._waits = waits
        self._pairs = pairs
        self._ancestry = Ancestry(timeline.buffer_graph, timeline.sequence, chain, REACH + 1, {})

    def make(self) -> list[ControlEdge] | None:
        """The fewest edges that make every operation wait for what it has to, paths included.

        Returns:
            `None` if there are too many.
        """
        chain = self._chain
        edges: list[ControlEdge] = []
        place = {node: number for number, node in enumerate(chain)}
        number = 0
        while number < len(chain):
            unit = [chain[number]]
            if number + 1 < len(chain) and self._pairs.get(unit[0]) == chain[number + 1]:
                unit.append(chain[number + 1])
            number += len(unit)
            first = place[unit[0]]
            distances = [first - place[o] for node in unit for o in self._more.get(node, ())]
            needed = sum(1 << d for d in {*distances} if 0 < d <= REACH)
            waits = min(max(self._waits[place[node]] for node in unit), first - 1)
            nearest, furthest = first - waits, min(first, REACH)
            if nearest <= furthest:
                needed |= (1 << (furthest + 1)) - (1 << nearest)
            edges += self._wait(unit, first, needed)
            if len(edges) > _MOST_EDGES * number + _MORE_EDGES:
                return None
        return edges

    def _wait(self, unit: Sequence[int], place: int, needed: int) -> Iterator[ControlEdge]:
        """Let an operation, or both of a pair, wait for others, told as bits by distance.

        What is nearest first: what that waited for is waited for as well.
        """
        while missing := needed & ~self._waited_for(unit):
            distance = (missing & -missing).bit_length() - 1
            needed = missing & ~(1 << distance)
            before = self._chain[place - distance]
            for node in unit:
                yield ControlEdge(before, node)
                self._ancestry.add(before, node)

    def _waited_for(self, unit: Sequence[int]) -> int:
        """What all of a unit wait for already, as bits by the distance to its first."""
        bits = [self._ancestry.of(node) >> offset for offset, node in enumerate(unit)]
        return reduce(and_, bits)
