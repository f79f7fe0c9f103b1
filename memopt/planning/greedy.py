"""A plan by walking along an order: what does not fit is dropped, and recomputed when needed.

Of what is in use, the walk drops what is cheapest to have again for the bytes that it frees and
the time that it frees them for: cost / (bytes * steps until the next use). That is XLA's walk with
the rule of dynamic tensor rematerialization (Kirisame et al., 2021), which here knows the future.
"""

from __future__ import annotations

import itertools
from array import array
from typing import TYPE_CHECKING

import numpy as np

from memopt.planning.problem import output_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

    from memopt.planning.arrays import IntArray
    from memopt.planning.problem import Problem

_NEVER = np.iinfo(np.int64).max
_PATIENCE = 1.3
"""Of what everything costs once: beyond that nothing is dropped any more."""
_MOST_WEIGHED = 32
_MOST_COPIES = 6
"""Of one operation; the search needs room for more."""


class Walk:
    """One walk along an order.

    Args:
        problem: What is planned.
        order: All operations but the end, in an order that runs.
        budget_bytes: What the walk tries to stay within.

    Attributes:
        operations: All operations in the order of execution, again where they were dropped.
        swapped: For each of them, 1 if it is a swap in.
        copies: How often each operation is among them.
    """

    def __init__(self, problem: Problem, order: IntArray, budget_bytes: int) -> None:
        operations = len(problem.cost)
        self._budget_bytes = budget_bytes
        self._place = np.full(operations, len(order), np.int64)
        self._place[order] = np.arange(len(order))
        self._held = output_bytes(problem)
        self._cost = problem.cost
        # What a write ends would have to be computed before it: it is not recomputed at all.
        is_ended = np.diff(problem.until_start) > 0
        computable = (problem.single == 0) & ~is_ended
        repeatable = computable | (problem.swap_cost > 0)
        self._droppable = repeatable & (self._held > 0)
        # One number at a time is read from lists and from what lies behind arrays: that is quicker.
        self._held_by = self._held.tolist()
        self._needed_by = (self._held + problem.scratch).tolist()
        self._cost_of = problem.cost.tolist()
        self._swap_cost = problem.swap_cost.tolist()
        self._computable = computable.tolist()
        self._repeatable = repeatable.tolist()
        self._sources_of = _sources_of(problem)
        self._uses = self._find_uses(operations)
        self._next = array("q", [_NEVER]) * operations
        self._next_use = np.frombuffer(self._next, np.int64)
        self._made = array("q", [0]) * operations
        self.copies = np.frombuffer(self._made, np.int64)
        self._is_live = bytearray(operations)
        self._live = np.frombuffer(self._is_live, np.bool_)
        self._is_pinned = bytearray(operations)
        self._pinned = np.frombuffer(self._is_pinned, np.bool_)
        self._chain_cost = [float(cost) for cost in self._cost_of]
        self._used_bytes = 0
        self._now = 0
        self._patience = int(problem.cost.sum() * _PATIENCE)
        self.operations: list[int] = []
        self.swapped: list[int] = []
        for op in order.tolist():
            self._run(op)

    def _find_uses(self, operations: int) -> list[list[int]]:
        """For each operation, the places of those that read from it, the last one first."""
        uses: list[set[int]] = [set() for _ in range(operations)]
        for sources, place in zip(self._sources_of, self._place.tolist(), strict=True):
            for source in sources:
                uses[source].add(place)
        return [sorted(places, reverse=True) for places in uses]

    def _run(self, op: int) -> None:
        """Compute an operation of the order, and before it what it needs and is gone."""
        pinned: list[int] = []
        stack = [op]
        while stack:
            top = stack[-1]
            sources = () if self._is_swapped_in(top) else self._sources_of[top]
            pinned.extend(sources)
            for source in sources:
                self._is_pinned[source] = True
            missing = [source for source in sources if self._is_missing(source)]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if not self._is_live[top]:
                self._make(top)
        for source in pinned:
            self._is_pinned[source] = False
        self._release(op)

    def _is_missing(self, op: int) -> bool:
        """Whether an operation has to be computed before it can be read.

        What cannot be recomputed lives on in the sequence, whatever the walk thought of it.
        """
        if self._is_live[op]:
            return False
        copies = self._made[op]
        return not copies or (self._repeatable[op] and copies < _MOST_COPIES)

    def _is_swapped_in(self, op: int) -> bool:
        """Whether an operation that was computed before comes back from the host."""
        if not self._made[op] or not self._swap_cost[op]:
            return False
        return not self._computable[op] or self._swap_cost[op] < self._cost_of[op]

    def _make(self, op: int) -> None:
        self._make_room(self._needed_by[op])
        is_swapped_in = self._is_swapped_in(op)
        self._patience -= (self._swap_cost if is_swapped_in else self._cost_of)[op]
        self.operations.append(op)
        self.swapped.append(int(is_swapped_in))
        self._made[op] += 1
        self._is_live[op] = True
        self._used_bytes += self._held_by[op]
        self._look_ahead(op)

    def _make_room(self, needed_bytes: int) -> None:
        """Drop until there is room; not where dropping has become a cascade of recomputation."""
        while self._used_bytes + needed_bytes > self._budget_bytes and self._patience > 0:
            dropped = self._cheapest()
            if dropped < 0:
                return
            self._drop(dropped)

    def _cheapest(self) -> int:
        """What is not about to be read and is cheapest to have again; -1 if there is nothing."""
        may_go = self._live & self._droppable & ~self._pinned & (self.copies < _MOST_COPIES - 1)
        live = np.flatnonzero(may_go)
        if not len(live):
            return -1
        distance = np.minimum(self._next_use[live], len(self._place)) - self._now + 1
        gain = self._gain(live, np.maximum(distance, 1))
        rough = (self._cost[live] + 1) / gain
        # What has to come with it is looked at for the most promising ones only.
        near = np.argsort(rough, kind="stable")[:_MOST_WEIGHED]
        costs = np.array([self._cheapest_return(op) for op in live[near].tolist()])
        return int(live[near[np.argmin((costs + 1) / gain[near])]])

    def _gain(self, ops: IntArray, distance: IntArray) -> npt.NDArray[np.float64]:
        """What dropping operations is worth: bytes, and how long they are free."""
        return self._held[ops].astype(np.float64) * distance

    def _cheapest_return(self, op: int) -> float:
        """What it costs to have an operation's values again, computed or from the host."""
        swap = float(self._swap_cost[op])
        if swap and not self._computable[op]:
            return swap
        cost = self._cost_of_return(op)
        return min(cost, swap) if swap else cost

    def _cost_of_return(self, op: int) -> float:
        """What computing an operation again takes, with what will be gone by then."""
        cost = float(self._cost_of[op])
        when = self._next[op]
        for source in self._sources_of[op]:
            if not self._is_live[source]:
                cost += self._chain_cost[source]
            elif self._next[source] < when and self._is_last_use(source, when):
                cost += self._cost_of[source]
        return cost

    def _is_last_use(self, op: int, when: int) -> bool:
        """Whether an operation is read for the last time before a place."""
        uses = self._uses[op]
        return not uses or uses[0] < when

    def _may_forget(self, op: int) -> bool:
        """Whether an operation can be had again, and there is no cascade of recomputation yet."""
        has_room = self._made[op] < _MOST_COPIES - 1
        return self._repeatable[op] and has_room and self._patience > 0

    def _drop(self, op: int) -> None:
        self._chain_cost[op] = self._cost_of_return(op)
        self._is_live[op] = False
        self._used_bytes -= self._held_by[op]

    def _look_ahead(self, op: int) -> None:
        """Find the next place where an operation's values are read."""
        uses = self._uses[op]
        while uses and uses[-1] < self._now:
            uses.pop()
        self._next[op] = uses[-1] if uses else _NEVER

    def _release(self, op: int) -> None:
        """Go on behind an operation: drop what nothing reads any more of it and what it read."""
        self._now += 1
        for source in (*self._sources_of[op], op):
            self._look_ahead(source)
            if self._is_live[source] and self._next[source] == _NEVER:
                self._drop(source)


class PlainWalk(Walk):
    """The walk with XLA's own rule: cost for the bytes alone, whenever they are read next."""

    def _gain(self, ops: IntArray, distance: IntArray) -> npt.NDArray[np.float64]:
        del distance
        return self._held[ops].astype(np.float64)


def _sources_of(problem: Problem) -> list[tuple[int, ...]]:
    """For each operation, those that it reads from, each once."""
    start, sources = problem.input_start.tolist(), problem.input_op.tolist()
    ends = itertools.pairwise(start)
    return [tuple(dict.fromkeys(sources[begin:end])) for begin, end in ends]
