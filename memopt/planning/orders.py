"""Orders to start from, without computing anything twice: greedy by bytes, and depth first."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from memopt.planning.problem import output_bytes

if TYPE_CHECKING:
    from memopt.planning.arrays import IntArray
    from memopt.planning.problem import Problem


def list_order(problem: Problem) -> IntArray:
    """Of the operations that are ready, always the one after which the fewest bytes are in use.

    What must not run before another (`until`) is respected as well. Ties go to the lower number.
    """
    ready = _Ready(problem)
    end = len(problem.cost) - 1
    order = [op for op in iter(ready.take, -1) if op != end]
    return np.array(order, np.int64)


class _Ready:
    """The operations that can run next, by the bytes that are in use after them."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._waiting = np.diff(problem.before_start) + np.diff(problem.ends_start)
        self._unread = np.diff(problem.reader_start)
        self._growth = np.zeros(len(problem.cost), np.int64)
        self._done = np.zeros(len(problem.cost), np.bool_)
        self._heap: list[tuple[int, int]] = []
        for op in np.flatnonzero(self._waiting == 0):
            self._push(int(op))

    def take(self) -> int:
        """The next one, -1 if there is none."""
        while self._heap:
            growth, op = heappop(self._heap)
            if self._done[op] or growth != self._growth[op]:
                continue
            self._done[op] = True
            self._read(op)
            for follower in _followers(self._problem, op):
                self._waiting[follower] -= 1
                if self._waiting[follower] == 0:
                    self._push(follower)
            return op
        return -1

    def _push(self, op: int) -> None:
        """Enter an operation with the bytes in use after it minus those before it."""
        problem = self._problem
        made = problem.size[_span(problem.value_start, op)].sum()
        read = problem.input_value[_span(problem.input_start, op)]
        freed = problem.size[read[self._unread[read] == 1]].sum()
        self._growth[op] = made - freed
        heappush(self._heap, (int(self._growth[op]), op))

    def _read(self, op: int) -> None:
        """Its inputs have one reader less; who is the last one now frees them."""
        problem = self._problem
        for value in problem.input_value[_span(problem.input_start, op)].tolist():
            self._unread[value] -= 1
            if self._unread[value] != 1:
                continue
            for reader in problem.reader_op[_span(problem.reader_start, value)].tolist():
                if not self._done[reader] and self._waiting[reader] == 0:
                    self._push(reader)


def depth_first_order(problem: Problem) -> IntArray:
    """What the largest outputs need first, each operation right before what needs it."""
    end = len(problem.cost) - 1
    held = output_bytes(problem)
    placed = np.zeros(end + 1, np.bool_)
    order: list[int] = []
    stack: list[tuple[int, bool]] = [(end, False)]
    while stack:
        op, is_ready = stack.pop()
        if placed[op]:
            continue
        if is_ready:
            placed[op] = True
            order.append(op)
            continue
        stack.append((op, True))
        needed = {*_predecessors(problem, op)}
        stack.extend((each, False) for each in sorted(needed, key=lambda one: (held[one], one)))
    return np.array(order[:-1])


def _followers(problem: Problem, op: int) -> list[int]:
    after = problem.after[_span(problem.after_start, op)]
    until = problem.until[_span(problem.until_start, op)]
    return [*after.tolist(), *until.tolist()]


def _predecessors(problem: Problem, op: int) -> list[int]:
    before = problem.before[_span(problem.before_start, op)]
    ended = problem.ends[_span(problem.ends_start, op)]
    return [*before.tolist(), *ended.tolist()]


def _span(starts: IntArray, index: int) -> slice:
    return slice(int(starts[index]), int(starts[index + 1]))
