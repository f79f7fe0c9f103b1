"""Plans by segments and by paths: what to forget is fixed beforehand, whatever the budget.

Segments: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016). Paths: Microsoft's
rematerialization, which computes what lies idle at the peak again for each of its later readers.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from memopt.planning.greedy import Walk
from memopt.planning.problem import output_bytes

if TYPE_CHECKING:
    from memopt.planning.arrays import IntArray
    from memopt.planning.problem import Problem

_WITHOUT_LIMIT = 1 << 62


def segment_counts(problem: Problem) -> tuple[int, ...]:
    """How many segments are tried: the square root of the operations, half and twice of that."""
    root = max(2, isqrt(len(problem.cost)))
    return tuple(sorted({max(2, root // 2), root, 2 * root}))


class SegmentWalk(Walk):
    """A walk along an order in segments of equal bytes.

    What a segment leaves for the next one is kept. Everything else that is read later than that is
    forgotten at its end, and recomputed, from what was kept, when it is read.

    Args:
        problem: What is planned.
        order: All operations but the end, in an order that runs.
        segments: How many.
    """

    def __init__(self, problem: Problem, order: IntArray, segments: int) -> None:
        made = np.cumsum(output_bytes(problem)[order] + 1)
        self._segment = (made - 1) * segments // made[-1] if len(made) else made
        self._is_kept = np.zeros(len(problem.cost), np.bool_)
        super().__init__(problem, order, _WITHOUT_LIMIT)

    def _release(self, op: int) -> None:
        super()._release(op)
        now = self._now
        if now >= len(self._segment) or self._segment[now] == self._segment[now - 1]:
            return
        behind = int(np.searchsorted(self._segment, self._segment[now], side="right"))
        held = np.flatnonzero(self._live)
        self._is_kept[held[self._next_use[held] < behind]] = True
        for other in held[self._next_use[held] >= behind].tolist():
            if not self._is_kept[other] and self._may_forget(other):
                self._drop(other)


class PathWalk(Walk):
    """A walk along an order that computes some operations again for each reader behind a place.

    Args:
        problem: What is planned.
        order: All operations but the end, in an order that runs.
        turn: The place in the order.
        smallest_bytes: Operations that hold less are kept.
    """

    def __init__(self, problem: Problem, order: IntArray, turn: int, smallest_bytes: int) -> None:
        self._turn = turn
        self._smallest_bytes = smallest_bytes
        super().__init__(problem, order, _WITHOUT_LIMIT)

    def _release(self, op: int) -> None:
        super()._release(op)
        if self._now < self._turn:
            return
        idle = np.flatnonzero(self._live) if self._now == self._turn else self._sources_of[op]
        for other in dict.fromkeys(int(each) for each in idle):
            is_large = self._held[other] >= self._smallest_bytes
            # What is read by the very next one is not given up for it.
            is_idle = self._next_use[other] > self._now
            was_there = self._place[other] < self._turn
            if self._live[other] and is_large and is_idle and was_there and self._may_forget(other):
                self._drop(other)
