"""What is left open of a sequence: a window of it, and what reaches into the window or out of it.

Inside the window everything is open: the order, what is recomputed or swapped in, what is kept
for how long. Outside it, two things are: a value that was computed before may be held into the
window, and what is recomputed behind it may be left out where the window, or what is before
it, holds on to it. Everything else is what it was: bytes in use, and steps that read.

Steps become coordinates: one for each stretch outside the window in which nothing changes that is
open, and as many as there can be steps inside. So all of a sequence is the window from its first
step to its end.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memopt.planning.exact.live_ranges import lives_of
from memopt.planning.problem import COPIES, output_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.planning.arrays import IntArray
    from memopt.planning.exact.live_ranges import Lives, Reads
    from memopt.planning.problem import Problem

_MOST_ACROSS = 100
"""Operations that are held across the window and may be dropped in it."""
_MOST_LATER = 60
"""Operations that are recomputed behind it and may be held on to instead."""


@dataclass(frozen=True)
class Frame:
    """Where a window stands, and how much may happen in it.

    Attributes:
        start: Its first step.
        end: The first step behind it.
        slack: How many more steps it may have.
        copies: How often an operation may stand in it at most, by operation.
    """

    start: int
    end: int
    slack: int
    copies: Mapping[int, int]


class Late(NamedTuple):
    """A repetition behind the window that can be left out.

    Attributes:
        step: Where it stands in the sequence.
        cost: What leaving it out saves.
        start: Its coordinate.
        ends: For each of its values, the coordinate at which it is not in use any more.
        read: Those of them that are read.
    """

    step: int
    cost: int
    start: int
    ends: dict[int, int]
    read: frozenset[int]


class Part(NamedTuple):
    """What is open about one operation.

    Attributes:
        op: By index.
        is_first: Whether it is computed in the window for the first time; else before.
        held_from: For each value, the coordinate from which on it takes bytes to hold what was
            computed before; empty if nothing was.
        copies: How often it may stand in the window.
        may_compute: Whether it may be computed there again.
        may_swap: Whether it may be swapped in.
        needed: For each value that is read behind the window, and not from there, the coordinate
            to which it has to be held.
        late: What can be left out behind the window.
        now: Where it stands in the window now, as coordinates and 1 for swaps in.
        now_held: For what was computed before, and then for each place in `now`: for each value,
            the coordinate at which it is not in use any more.
    """

    op: int
    is_first: bool
    held_from: dict[int, int]
    copies: int
    may_compute: bool
    may_swap: bool
    needed: dict[int, int]
    late: Late | None
    now: tuple[tuple[int, int], ...]
    now_held: tuple[dict[int, int], ...]


class Piece(NamedTuple):
    """A window, ready to be modelled.

    Attributes:
        start: The first coordinate of the window.
        end: The first coordinate behind it.
        parts: What is open, by operation.
        in_use: Stretches of coordinates and the bytes that are in use there in any case.
        earlier: Pairs: the first one's first computation precedes the other's computations.
        ended: Pairs: the first one's computations precede the other's first computation.
    """

    start: int
    end: int
    parts: dict[int, Part]
    in_use: tuple[tuple[int, int, int], ...]
    earlier: tuple[tuple[int, int], ...]
    ended: tuple[tuple[int, int], ...]


def cut(problem: Problem, reads: Reads, lives: Lives, frame: Frame) -> Piece:
    """What is open about a sequence when a window of it is."""
    return _Cutter(problem, reads, lives, frame).cut()


class _Cutter:
    def __init__(self, problem: Problem, reads: Reads, lives: Lives, frame: Frame) -> None:
        self._problem = problem
        self._sources = [dict.fromkeys(source for _, source, _ in each) for each in reads]
        self._lives = lives
        self._frame = frame
        self._held = output_bytes(problem)
        self._before = lives_of(
            problem, reads, lives.operations[: frame.start], lives.swapped[: frame.start]
        )
        self._inside = dict.fromkeys(lives.operations[frame.start : frame.end])
        self._open = self._find_open()
        self._marks = self._find_marks()
        self._start = bisect_left(self._marks, frame.start)

    def cut(self) -> Piece:
        size = self._frame.end - self._frame.start + self._frame.slack
        parts = {op: self._part(op) for op in self._open}
        earlier, ended = self._orders()
        return Piece(self._start, self._start + size, parts, self._in_use(), earlier, ended)

    def _find_open(self) -> dict[int, None]:
        """What stands in the window, what that reads, and what can be left out behind it."""
        found = dict(self._inside)
        for op in self._inside:
            found.update(self._sources[op])
        others = [op for op in range(len(self._lives.steps) - 1) if op not in found]
        # Cheap to have again for their bytes: good to drop. The others are good to hold on to.
        across = sorted(filter(self._is_held_across, others), key=self._cost_of_byte)
        later = sorted(filter(self._is_repeated_later, others), key=self._cost_of_byte)
        found.update(dict.fromkeys(across[:_MOST_ACROSS]))
        found.update(dict.fromkeys(later[-_MOST_LATER:]))
        return found

    def _cost_of_byte(self, op: int) -> tuple[float, int]:
        return float(self._problem.cost[op] / max(1, self._held[op])), op

    def _is_repeated_later(self, op: int) -> bool:
        """Whether what is there behind the window was computed before that as well."""
        steps = self._lives.steps[op]
        return bool(steps) and steps[0] < self._frame.end <= steps[-1]

    def _is_held_across(self, op: int) -> bool:
        """Whether what was computed before the window is read behind it, and not from there."""
        entry = self._last_before(op, self._frame.end)
        if not 0 <= entry < self._frame.start:
            return False
        return any(read >= self._frame.end for read in self._lives.read_until[entry].values())

    def _last_before(self, op: int, step: int) -> int:
        """The last step before another one that has an operation; -1 if none does."""
        place = bisect_left(self._lives.steps[op], step)
        return self._lives.steps[op][place - 1] if place else -1

    def _next_from(self, op: int, step: int) -> int:
        """The first step from another one on that has an operation; -1 if none does."""
        steps = self._lives.steps[op]
        place = bisect_left(steps, step)
        return steps[place] if place < len(steps) else -1

    def _find_marks(self) -> list[int]:
        """Steps outside the window between which nothing that is open changes."""
        frame, lives = self._frame, self._lives
        marks = {0, frame.start, frame.end, len(lives.operations)}
        for op in self._open:
            entry = self._last_before(op, frame.start)
            if entry >= 0:
                marks.update(self._before.ends[entry].values())
            last = self._last_before(op, frame.end)
            read_until = lives.read_until[last]
            marks.update(end for v, end in lives.ends[last].items() if read_until[v] >= frame.end)
            late = self._next_from(op, frame.end)
            if late >= 0:
                marks.update((late, *lives.ends[late].values()))
        return sorted(mark for mark in marks if not frame.start < mark < frame.end)

    def _coordinate(self, step: int) -> int:
        """Where a mark, or a step in the window, stands."""
        if self._frame.start <= step < self._frame.end:
            return self._start + step - self._frame.start
        place = bisect_left(self._marks, step)
        if step < self._frame.start:
            return place
        # The mark of the window's end is the next one after that of its start.
        return place - 1 + self._frame.end - self._frame.start + self._frame.slack

    def _part(self, op: int) -> Part:
        problem, lives, frame = self._problem, self._lives, self._frame
        steps = lives.steps[op]
        is_first = steps[0] >= frame.start
        entry = self._last_before(op, frame.start)
        inside = [step for step in steps if frame.start <= step < frame.end]
        outside = len(steps) - len(inside)
        may_compute = self._may_compute(op)
        may_swap = bool(problem.swap_cost[op] > 0)
        copies = min(frame.copies.get(op, 0), COPIES - outside)
        if not may_compute and not may_swap:
            copies = len(inside)
        known = [entry, *inside] if entry >= 0 else inside
        last = known[-1]
        read_until = lives.read_until[last]
        held_from = self._before.ends[entry] if entry >= 0 else {}
        return Part(
            op=op,
            is_first=is_first,
            held_from={value: self._coordinate(end) for value, end in held_from.items()},
            copies=max(copies, len(inside)),
            may_compute=may_compute,
            may_swap=may_swap,
            needed={
                value: self._coordinate(end)
                for value, end in lives.ends[last].items()
                if read_until[value] >= frame.end
            },
            late=self._late(op),
            now=tuple((self._coordinate(step), lives.swapped[step]) for step in inside),
            now_held=tuple(self._now_held(step) for step in known),
        )

    def _now_held(self, step: int) -> dict[int, int]:
        lives, frame = self._lives, self._frame
        held = {}
        for value, end in lives.ends[step].items():
            read = lives.read_until[step][value]
            if read >= frame.end:
                held[value] = self._coordinate(end)
            elif read >= frame.start:
                held[value] = self._coordinate(read) + end - read
            elif step >= frame.start:
                held[value] = self._coordinate(step) + 1
            else:
                held[value] = self._coordinate(end)
        return held

    def _may_compute(self, op: int) -> bool:
        """Whether an operation may be computed in the window again."""
        problem = self._problem
        if problem.single[op] or any(each not in self._open for each in self._sources[op]):
            return False
        ends = problem.until[problem.until_start[op] : problem.until_start[op + 1]]
        return all(self._lives.steps[end][0] >= self._frame.start for end in ends)

    def _late(self, op: int) -> Late | None:
        lives = self._lives
        step = self._next_from(op, self._frame.end)
        if step < 0:
            return None
        cost = (self._problem.swap_cost if lives.swapped[step] else self._problem.cost)[op]
        return Late(
            step=step,
            cost=int(cost),
            start=self._coordinate(step),
            ends={value: self._coordinate(end) for value, end in lives.ends[step].items()},
            read=frozenset(v for v, read in lives.read_until[step].items() if read >= 0),
        )

    def _orders(self) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        problem, frame = self._problem, self._frame
        firsts = [op for op in self._inside if self._lives.steps[op][0] >= frame.start]
        earlier, ended = [], []
        for op in firsts:
            span = slice(problem.after_start[op], problem.after_start[op + 1])
            after = (int(other) for other in problem.after[span])
            earlier += [(op, other) for other in after if other in self._open]
            span = slice(problem.ends_start[op], problem.ends_start[op + 1])
            ended += [(int(e), op) for e in problem.ends[span] if int(e) in self._open]
        return tuple(earlier), tuple(ended)

    def _in_use(self) -> tuple[tuple[int, int, int], ...]:
        lives, frame = self._lives, self._frame
        fixed = self._fixed_bytes()
        found = []
        for first, then in pairwise(self._marks):
            in_use = int(fixed[first:then].max())
            if first == frame.start:
                found.append((self._start, self._coordinate(then), in_use))
            elif first < len(lives.operations):
                place = self._coordinate(first)
                found.append((place, place + 1, in_use))
        return tuple(found)

    def _fixed_bytes(self) -> IntArray:
        """Bytes in use at each step by what is not open."""
        problem, lives, frame = self._problem, self._lives, self._frame
        change = np.zeros(len(lives.operations) + 1, np.int64)
        for step, op in enumerate(lives.operations):
            if frame.start <= step < frame.end:
                continue
            change[step] += problem.scratch[op]
            change[step + 1] -= problem.scratch[op]
            for value, end in self._fixed_ends(step, op).items():
                change[step] += problem.size[value]
                change[end] -= problem.size[value]
        return np.cumsum(change)[:-1]

    def _fixed_ends(self, step: int, op: int) -> dict[int, int]:
        """The ends of the lives that a step's values have in any case."""
        if op not in self._open:
            return self._lives.ends[step]
        if step < self._frame.start:
            return self._before.ends[step]
        return {} if step == self._next_from(op, self._frame.end) else self._lives.ends[step]
