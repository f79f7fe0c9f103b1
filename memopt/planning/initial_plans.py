"""Where a search begins: orders as they are, and plans that are constructed along them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memopt.planning.greedy import PlainWalk, Walk
from memopt.planning.orders import depth_first_order, list_order
from memopt.planning.problem import COPIES, output_bytes
from memopt.planning.segments import PathWalk, SegmentWalk, segment_counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.planning.arrays import IntArray
    from memopt.planning.problem import Problem

_SHARES = (1.0, 0.95)
"""Of the budget, that walks keep to: what they think of the bytes in use is a little too little."""
_MOST_WALKED_AGAIN = 2_000
"""Operations of a graph that is walked along more than once: walks take long in large ones."""
_PATH_SHARES = (0.5, 0.02)
"""Of the largest operation's bytes: what is smaller, paths keep."""


class Steps(NamedTuple):
    """A sequence without the end of the step.

    Attributes:
        operations: By index, in the order of execution.
        swapped: For each of them, 1 if it is a swap in.
    """

    operations: IntArray
    swapped: IntArray


class Starts:
    """The plans that a search may begin with.

    Args:
        problem: What is planned.
        order: All operations but the end, in an order that runs.

    Attributes:
        orders: That one, one that needs little by the looks of each operation, and one by depth.
    """

    def __init__(self, problem: Problem, order: IntArray) -> None:
        self._problem = problem
        self._is_small = len(problem.cost) <= _MOST_WALKED_AGAIN
        self.orders = (order, list_order(problem), depth_first_order(problem))

    def within(self, room: int) -> Iterator[Steps]:
        """Orders, and walks along them, for a budget. Not all keep to it."""
        for order in self.orders:
            yield unchanged(order)
            for share in _SHARES if self._is_small else _SHARES[:1]:
                yield from _made(Walk(self._problem, order, int(room * share)))

    def others(self, room: int) -> Iterator[Steps]:
        """Plans that are good to begin with where they keep to the budget.

        Where they do not, they compute much again without need: measured, what is found from there
        is worse.
        """
        yield from self._fixed
        if not self._is_small:
            return
        for order in self.orders:
            yield from _made(PlainWalk(self._problem, order, room))

    @cached_property
    def _fixed(self) -> tuple[Steps, ...]:
        """Plans that are the same for all budgets."""
        return tuple(
            steps
            for order in self.orders
            for steps in (*self._segments(order), *self._paths(order))
        )

    def _segments(self, order: IntArray) -> Iterator[Steps]:
        for segments in segment_counts(self._problem):
            yield from _made(SegmentWalk(self._problem, order, segments))

    def _paths(self, order: IntArray) -> Iterator[Steps]:
        held = output_bytes(self._problem)
        largest = int(held.max(initial=0))
        turn = _turn(self._problem, order, held)
        for share in _PATH_SHARES:
            yield from _made(PathWalk(self._problem, order, turn, int(largest * share)))


def unchanged(order: IntArray) -> Steps:
    """An order as a sequence."""
    return Steps(order, np.zeros(len(order), np.int64))


def _made(walk: Walk) -> Iterator[Steps]:
    if all(walk.copies < COPIES):
        yield Steps(np.array(walk.operations), np.array(walk.swapped))


def _turn(problem: Problem, order: IntArray, held: IntArray) -> int:
    """The place in an order at which the most bytes are in use, from computation to last reader."""
    place = np.full(len(problem.cost), len(order), np.int64)
    place[order] = np.arange(len(order))
    last = place.copy()
    readers = np.repeat(np.arange(len(problem.cost)), np.diff(problem.input_start))
    np.maximum.at(last, problem.input_op, place[readers])
    change = np.zeros(len(order) + 3, np.int64)
    np.add.at(change, place, held)
    np.add.at(change, last + 1, -held)
    return int(np.argmax(np.cumsum(change)[: len(order)])) if len(order) else 0
