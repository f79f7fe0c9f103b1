"""The control edges that let operations run side by side, but within windows of a sequence."""

from __future__ import annotations

from bisect import bisect_right
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, NamedTuple

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
    from memopt.sequencing.branches import Branches
    from memopt.sequencing.precedence import Precedence
    from memopt.sequencing.windows import Room


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
    With one thread, and where operations on several devices have to be ordered, each operation
    waits for the one before it: see `enforce`. What may be in use is the limit only if all that is
    ordered is one chain, in which nothing stands between what is in a branch and where its sides
    join: what is outside waits for that alone.

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
    if threads <= 1 or not have_windows(chains):
        return enforce(graph, sequence, smallest_bytes=smallest_bytes, fed=fed)
    # Late, because of numpy: what needs no windows starts sooner.
    from memopt.sequencing.windows import Room

    pairs = find_pairs(graph)
    more = [find_waits(timeline, precedence, chain.nodes, pairs) for chain in chains]
    limit_bytes = max(limit_bytes, timeline.peak_bytes)
    for most_ahead in (MOST_AHEAD, *_LESS_AHEAD):
        room = Room(limit_bytes, threads, most_ahead)
        windows = find_chains_windows(timeline, chains, more, pairs, room)
        edges = [_Edges(timeline, window, pairs, chains[0].branches).make() for window in windows]
        made = [each for each in edges if each is not None]
        if len(made) == len(chains):
            return [c._replace(edges=each) for c, each in zip(chains, made, strict=True)]
    return enforce(graph, sequence, smallest_bytes=smallest_bytes, fed=fed)


def have_windows(chains: Sequence[Chain]) -> bool:
    """Whether operations may run side by side in windows: on one device, which has an order."""
    return len({chain.device for chain in chains}) == 1


class ChainWindows(NamedTuple):
    """How far the operations of a chain may run ahead.

    Attributes:
        chain: The nodes that are ordered, in the order of the sequence.
        more: By node others of the chain that it has to wait for, though no edge says so.
        waits: By place in the chain: all up to that place must have ended before; -1 for none.
    """

    chain: Sequence[int]
    more: Mapping[int, Sequence[int]]
    waits: Sequence[int]


def find_chains_windows(
    timeline: MemoryTimeline,
    chains: Sequence[Chain],
    more: Sequence[Mapping[int, Sequence[int]]],
    pairs: Mapping[int, int],
    room: Room,
) -> list[ChainWindows]:
    """The widest windows of chains of one device in which no more is in use than a limit.

    What may be in use is worked out over all chains, as if a loop kept its place in the sequence.
    What runs once for each turn of a loop keeps its order where several turns may run at once: what
    they hold is counted once.

    Args:
        timeline: The sequence, one operation at a time.
        chains: The nodes that are ordered.
        more: For each chain what its nodes have to wait for besides: see `find_waits`.
        pairs: First to second: oneDNN makes one node of them, so neither waits for the other.
        room: The limit, and what else there is.
    """
    # Late, because of numpy: what needs no windows starts sooner.
    from memopt.sequencing.windows import find_windows

    if len(chains) == 1:
        waits = find_windows(timeline, chains[0].nodes, more[0], pairs, room, chains[0].branches)
        return [ChainWindows(chains[0].nodes, more[0], waits)]
    rank = {node: place for place, node in enumerate(timeline.sequence)}
    together = sorted(
        ((rank[node], number) for number, chain in enumerate(chains) for node in chain.nodes)
    )
    merged = [timeline.sequence[place] for place, _ in together]
    all_more = {node: others for each in more for node, others in each.items()}
    waits = find_windows(timeline, merged, all_more, pairs, room, chains[0].branches)
    places: list[list[int]] = [[] for _ in chains]
    for place, (_, number) in enumerate(together):
        places[number].append(place)
    return [
        ChainWindows(chain.nodes, own, _waits_of(chain, at, waits))
        for chain, own, at in zip(chains, more, places, strict=True)
    ]


def _waits_of(chain: Chain, places: Sequence[int], waits: Sequence[int]) -> list[int]:
    """The windows of one chain, by the places of its nodes among all, and the windows of those."""
    if chain.in_turns:
        return [place - 1 for place in range(len(places))]
    return [bisect_right(places, waits[place]) - 1 for place in places]


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
    edges = HoldingEdges(graph)
    known = [
        frozenset() if node in edges.begun_early else frozenset(producers) - edges.parted
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
        windows: ChainWindows,
        pairs: Mapping[int, int],
        branches: Branches,
    ) -> None:
        self._branches = branches
        self._chain, self._more, self._waits = windows
        self._pairs = pairs
        graph, sequence = timeline.buffer_graph, timeline.sequence
        self._ancestry = Ancestry(graph, sequence, self._chain, REACH + 1, {}, branches)

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
            before = self._whom_to_wait_for(place, distance)
            if before is None:
                continue
            for node in unit:
                yield ControlEdge(before, node)
                self._ancestry.add(before, node)

    def _whom_to_wait_for(self, place: int, distance: int) -> int | None:
        """Another operation; if that is in a branch, the first Merge that tells of its end.

        Args:
            place: Of the one that waits.
            distance: How far before it stands what it has to wait for.

        Returns:
            `None` if there is no such Merge before it, or if it joins sides itself.
        """
        node, before = self._chain[place], self._chain[place - distance]
        if self._branches.may_wait(node, before):
            return before
        for back in range(distance - 1, 0, -1):
            join = self._chain[place - back]
            if join not in self._branches.joins:
                continue
            is_behind = self._ancestry.of(join) >> (distance - back) & 1
            if is_behind and self._branches.may_wait(node, join):
                return join
        return None

    def _waited_for(self, unit: Sequence[int]) -> int:
        """What all of a unit wait for already, as bits by the distance to its first."""
        bits = [self._ancestry.of(node) >> offset for offset, node in enumerate(unit)]
        return reduce(and_, bits)
