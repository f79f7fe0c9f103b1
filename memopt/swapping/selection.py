"""Which idle stretches to swap so that a memory profile fits: numbers only, no graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


_NO_POINT = -(1 << 62)
"""The number of a leaf that stands for no point: lower than any sum of bytes."""


class Stretch(NamedTuple):
    """A stretch of a profile in which a tensor could be away.

    Attributes:
        first: The first point at which it is away.
        stop: The first point at which it is there again.
        size_bytes: Its bytes.
        score: The larger the better.
    """

    first: int
    stop: int
    size_bytes: int
    score: int


def select(usage: Sequence[int], limit_bytes: int, stretches: Sequence[Stretch]) -> list[int]:
    """The stretches to take so that a profile keeps a limit, or comes as close as it can.

    1. At the highest point, the first of several, take the stretch of the best score; of equal ones
       the first. Again, until all points keep the limit or the highest has no stretch left.
    2. Give back, last taken first, what turned out not to be needed for the highest point reached.

    Time is proportional to the number of points and stretches times its logarithm.

    Args:
        usage: The bytes in use at each point.
        limit_bytes: The limit.
        stretches: What can be taken, each at most once.

    Returns:
        Numbers of stretches, ascending.
    """
    profile = Profile(usage)
    ranked = sorted(range(len(stretches)), key=lambda number: -stretches[number].score)
    index = _BestAt(len(usage), [stretches[number] for number in ranked])
    taken: list[int] = []
    while profile.highest > limit_bytes:
        rank = index.take(profile.find_highest())
        if rank is None:
            break
        number = ranked[rank]
        first, stop, size_bytes, _ = stretches[number]
        profile.add(first, stop, -size_bytes)
        taken.append(number)
    bound_bytes = max(profile.highest, limit_bytes)
    needed = []
    for number in reversed(taken):
        first, stop, size_bytes, _ = stretches[number]
        profile.add(first, stop, size_bytes)
        if profile.highest > bound_bytes:
            profile.add(first, stop, -size_bytes)
            needed.append(number)
    return sorted(needed)


class Profile:
    """Numbers at points, to which ranges are added and whose highest is asked for.

    A tree over the points; a node holds the highest of what is below it, what was added to all
    below it included.
    """

    def __init__(self, values: Sequence[int]) -> None:
        self._leaves = _leaves(len(values))
        self._best = [_NO_POINT] * (2 * self._leaves)
        self._best[self._leaves : self._leaves + len(values)] = values
        self._added = [0] * (2 * self._leaves)
        for node in range(self._leaves - 1, 0, -1):
            self._best[node] = max(self._best[2 * node], self._best[2 * node + 1])

    @property
    def highest(self) -> int:
        """The highest number; far below zero if there are no points."""
        return self._best[1]

    def find_highest(self) -> int:
        """The point of the highest number, the first of several."""
        node = 1
        while node < self._leaves:
            node *= 2
            if self._best[node + 1] > self._best[node]:
                node += 1
        return node - self._leaves

    def add(self, first: int, stop: int, value: int) -> None:
        """Add a value at all points from the first to before the stop."""
        if first >= stop:
            return
        best, added = self._best, self._added
        for node in _cover(first, stop, self._leaves):
            best[node] += value
            added[node] += value
        for leaf in (first + self._leaves, stop - 1 + self._leaves):
            node = leaf // 2
            while node:
                best[node] = max(best[2 * node], best[2 * node + 1]) + added[node]
                node //= 2


class _BestAt:
    """Stretches, best first; finds the best one over a point that was not taken yet."""

    def __init__(self, points: int, stretches: Sequence[Stretch]) -> None:
        self._leaves = _leaves(points)
        self._ranks: list[list[int]] = [[] for _ in range(2 * self._leaves)]
        self._taken = [False] * len(stretches)
        # The worst go in first, so that the best is at the end of each list.
        for rank in range(len(stretches) - 1, -1, -1):
            for node in _cover(stretches[rank].first, stretches[rank].stop, self._leaves):
                self._ranks[node].append(rank)

    def take(self, point: int) -> int | None:
        """Take the best stretch over a point; its rank, or `None` if there is none left."""
        best: int | None = None
        node = point + self._leaves
        while node:
            ranks = self._ranks[node]
            while ranks and self._taken[ranks[-1]]:
                ranks.pop()
            if ranks and (best is None or ranks[-1] < best):
                best = ranks[-1]
            node //= 2
        if best is not None:
            self._taken[best] = True
        return best


def _leaves(points: int) -> int:
    return 1 << max(points - 1, 0).bit_length()


def _cover(first: int, stop: int, leaves: int) -> list[int]:
    """The nodes of a tree that together stand over a range and over nothing else."""
    nodes = []
    left, right = first + leaves, stop + leaves
    while left < right:
        if left & 1:
            nodes.append(left)
            left += 1
        if right & 1:
            right -= 1
            nodes.append(right)
        left //= 2
        right //= 2
    return nodes
