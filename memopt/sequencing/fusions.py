"""Sequences in which the operations that oneDNN may run as one stand side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.sequencing.precedence import Precedence


def keep_adjacent(
    precedence: Precedence, sequence: Sequence[int], pairs: Mapping[int, int]
) -> tuple[list[int], dict[int, int]]:
    """The sequence with the two of each pair side by side, the first first.

    What the second needs besides comes before the first. Apart from that the order stays, with each
    pair at the place of its earlier member. A pair is given up where what comes after the one must
    come before the other.

    Args:
        precedence: What must come before what.
        sequence: The nodes that run, producers first.
        pairs: First to second.

    Returns:
        The new sequence, and the pairs that are side by side in it.
    """
    runs = set(sequence)
    kept = {first: second for first, second in pairs.items() if first in runs and second in runs}
    while True:
        units = _Units(precedence, kept)
        adjacent = units.arrange(sequence)
        if units.torn is None:
            return adjacent, kept
        del kept[units.torn]


def turn_pairs(
    producers: Sequence[Sequence[int]], sequence: Sequence[int], pairs: Mapping[int, int]
) -> list[int]:
    """The sequence with pairs that stand side by side the other way round, where that can be.

    Both wait for the same, so TensorFlow runs either first.

    Args:
        producers: By node: what must come before it.
        sequence: The nodes that run, producers first.
        pairs: First to second.
    """
    turned = list(sequence)
    for place in range(len(turned) - 1):
        first, second = turned[place], turned[place + 1]
        if pairs.get(first) == second and first not in producers[second]:
            turned[place : place + 2] = second, first
    return turned


class _Units:
    """Pairs as one node each: a walk that emits what a unit needs just before it.

    Attributes:
        torn: The first of a pair that cannot stay together, after `arrange` has met one.
    """

    def __init__(self, precedence: Precedence, pairs: Mapping[int, int]) -> None:
        self._producers = precedence.producers
        self._pairs = pairs
        self._unit_of = list(range(len(self._producers)))
        for first, second in pairs.items():
            self._unit_of[second] = first
        self.torn: int | None = None

    def arrange(self, sequence: Sequence[int]) -> list[int]:
        position = [0] * len(self._producers)
        for number, node in enumerate(sequence):
            position[node] = number
        arranged: list[int] = []
        entered, done = bytearray(len(position)), bytearray(len(position))
        for start in sequence:
            pending = [self._unit_of[start]]
            while pending:
                unit = pending[-1]
                if entered[unit]:
                    pending.pop()
                    if not done[unit]:
                        done[unit] = True
                        arranged += self._members(unit)
                    continue
                entered[unit] = True
                needed = self._needed(unit, done)
                # Entered and not done: it is further down in the walk, and needs this one.
                torn = [other for other in needed if entered[other]]
                if torn:
                    self.torn = self._of_cycle(pending, min(torn, key=position.__getitem__))
                    return arranged
                pending.extend(sorted(needed, key=position.__getitem__, reverse=True))
        return arranged

    def _members(self, unit: int) -> tuple[int, ...]:
        return (unit, self._pairs[unit]) if unit in self._pairs else (unit,)

    def _needed(self, unit: int, done: Sequence[int]) -> set[int]:
        """The units that must come before one, and have not yet."""
        unit_of = self._unit_of
        needed = {
            unit_of[producer]
            for member in self._members(unit)
            for producer in self._producers[member]
            if not done[unit_of[producer]]
        }
        needed.discard(unit)
        return needed

    def _of_cycle(self, pending: Sequence[int], start: int) -> int:
        """A pair on the way from a unit to one that needs it again."""
        return next(unit for unit in pending[pending.index(start) :] if unit in self._pairs)
