"""Which operations of a chain come before which in any execution, a little way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.sequencing.holding_edges import HoldingEdges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memopt.buffers.buffer_graph import BufferGraph

MOST_AHEAD = 255
"""No operation starts while one that stands further ahead in the chain has not ended."""
REACH = 2 * (MOST_AHEAD + 1)
"""What lies further back has ended: what an operation waits for waited for it."""


class Ancestry:
    """The ancestors of each operation of a chain, as bits: bit d is the one d places before it.

    Nodes are looked at one after the other, so that edges can be added on the way.

    Args:
        graph: The graph in numbers.
        sequence: The nodes that run, producers first.
        chain: Those of them that are looked at, in the same order.
        reach: How many places back is looked.
        more: By node further nodes that come before it.
    """

    def __init__(
        self,
        graph: BufferGraph,
        sequence: Sequence[int],
        chain: Sequence[int],
        reach: int,
        more: Mapping[int, Iterable[int]],
    ) -> None:
        self._edges = HoldingEdges(graph)
        self._more = more
        self._place = {node: place for place, node in enumerate(chain)}
        self._mask = (1 << (reach + 1)) - 1
        self._seen: dict[int, tuple[int, int]] = {}
        self._ahead = iter(sequence)

    def of(self, node: int) -> int:
        """The bits of a node of the chain. To be asked for in the order of the sequence."""
        if node not in self._seen:
            for each in self._ahead:
                self._seen[each] = self._look(each)
                if each == node:
                    break
        return self._seen[node][1]

    def add(self, before: int, node: int) -> None:
        """Count an edge between two nodes of the chain; nothing behind the later one was seen."""
        place, bits = self._seen[node]
        self._seen[node] = place, bits | self._seen_from(place, before, ended=True)

    def _look(self, node: int) -> tuple[int, int]:
        more = self._more.get(node, ())
        producers = [p for p in (*self._edges.before(node), *more) if p in self._seen]
        place = self._place.get(node)
        if place is None:
            # Just behind the last operation of the chain that leads to it.
            place = max((self._seen[p][0] + (p in self._place) for p in producers), default=0)
        bits = 0
        for producer in producers:
            ended = producer not in self._edges.parted or producer in more
            bits |= self._seen_from(place, producer, ended=ended)
        return place, bits

    def _seen_from(self, place: int, before: int, *, ended: bool) -> int:
        """What an operation at a place has before it because it comes after another."""
        where, bits = self._seen[before]
        back = place - where
        if back > self._mask.bit_length():
            return 0
        return (bits | (ended and before in self._place)) << back & self._mask
