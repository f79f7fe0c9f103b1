"""Which operations of a chain come before which in any execution, a little way back."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from memopt.sequencing.branches import NO_BRANCHES, excludes
from memopt.sequencing.holding_edges import HoldingEdges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.sequencing.branches import Branches, Conditions

MOST_AHEAD = 255
"""No operation starts while one that stands further ahead in the chain has not ended."""
_BITS_OF_BYTE = 8
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
        branches: Which of them run on one side of a branch only, and where sides join.
    """

    def __init__(
        self,
        graph: BufferGraph,
        sequence: Sequence[int],
        chain: Sequence[int],
        reach: int,
        more: Mapping[int, Iterable[int]],
        branches: Branches = NO_BRANCHES,
    ) -> None:
        self._edges = HoldingEdges(graph)
        self._more = more
        self._branches = branches
        self._excluded: dict[Conditions, list[Conditions]] = {}
        self._place = {node: place for place, node in enumerate(chain)}
        self._by_conditions = _places_by_conditions(chain, branches)
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
        if self._by_conditions:
            bits |= self._of_branches(node, place)
        return place, bits

    def _of_branches(self, node: int, place: int) -> int:
        """What never runs if a node does, or comes before a Merge on one side, of that side alone.

        And what comes before a Merge, or never runs, on every side.
        """
        conditions = self._branches.of_node(node)
        if node not in self._branches.joins:
            return self._back(place, self._excluded_by(conditions))
        sides = [before for before in self._edges.joined_by(node) if before in self._seen]
        bits = [self._seen_from(place, before, ended=True) for before in sides]
        inner = [each for each in self._by_conditions if conditions < each]
        own = 0
        for before, seen in zip(sides, bits, strict=True):
            others = self._excluded_by(self._branches.of_node(before))
            own |= seen & self._back(place, (each for each in inner if each not in others))
        return own | reduce(and_, bits, self._mask if bits else 0)

    def _excluded_by(self, conditions: Conditions) -> Sequence[Conditions]:
        """The conditions under which nothing runs if others hold."""
        if conditions not in self._excluded:
            self._excluded[conditions] = [c for c in self._by_conditions if excludes(conditions, c)]
        return self._excluded[conditions]

    def _back(self, place: int, conditions: Iterable[Conditions]) -> int:
        """The operations of the chain that run under one of some conditions, from a place back."""
        last = len(self._place)
        earlier = (1 << (place + 1)) - 2
        found = (self._by_conditions[each] >> (last - place) for each in conditions)
        return reduce(or_, found, 0) & self._mask & earlier

    def _seen_from(self, place: int, before: int, *, ended: bool) -> int:
        """What an operation at a place has before it because it comes after another."""
        where, bits = self._seen[before]
        back = place - where
        if back > self._mask.bit_length():
            return 0
        return (bits | (ended and before in self._place)) << back & self._mask


def _places_by_conditions(chain: Sequence[int], branches: Branches) -> dict[Conditions, int]:
    """By condition under which nodes of a chain run: which, as bits from the end of the chain."""
    found: dict[Conditions, list[int]] = {}
    for place, node in enumerate(chain):
        if node in branches.conditions:
            found.setdefault(branches.conditions[node], []).append(place)
    size = len(chain) // _BITS_OF_BYTE + 1
    masks: dict[Conditions, int] = {}
    for conditions, places in found.items():
        words = bytearray(size)
        for place in places:
            byte, bit = divmod(len(chain) - place, _BITS_OF_BYTE)
            words[byte] |= 1 << bit
        masks[conditions] = int.from_bytes(words, "little")
    return masks
