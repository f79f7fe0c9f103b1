"""A lower bound on the cost over all orders: the cheapest way through what may have been computed.

When an operation runs for the first time, what was computed before is a set that is closed under
"comes before". What of that is read by something that has yet to run for the first time is in use
now, or is recomputed later; so each step from set to set has the knapsack of `bounds`, without
having to guess the order. An order is a way from nothing to everything, and costs at least its
dearest step: the bound is the least of these over all ways, found as shortest ways are.

There are many such sets in wide graphs. The search ends when it has done some work; what it has
come to by then is a bound as well, since cheaper ways come first.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memopt.planning.bounds import return_costs, working_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.planning.arrays import IntArray
    from memopt.planning.problem import Problem

_WORK = 2_000_000
"""Values looked at, and what else a step takes in these; one or two seconds."""
_STEP = 20
_IMPRECISION = 1e-6
"""Of a sum of parts, and of one unit."""
_MOST_OPERATIONS = 400
"""In larger graphs there are too many sets for anything to come of it."""


class _Frontier(NamedTuple):
    """A set of operations that ran: as bits, the values that are still to be read, who is next."""

    done: int
    live: tuple[int, ...]
    ready: tuple[int, ...]


class Frontiers:
    """All sets of operations that may have run, closed under what comes before.

    Args:
        problem: What is planned.
    """

    def __init__(self, problem: Problem) -> None:
        end = len(problem.cost) - 1
        self._end = end
        self._size = problem.size.tolist()
        self._op_of = problem.value_op.tolist()
        self._values = _groups(problem.value_start, np.arange(len(problem.size)))
        inputs = _groups(problem.input_start, problem.input_value)
        self._inputs = [frozenset(values) for values in inputs]
        self._readers = [_bits(ops) for ops in _groups(problem.reader_start, problem.reader_op)]
        before = _groups(problem.before_start, problem.before)
        ends = _groups(problem.ends_start, problem.ends)
        self._before = [_bits([*one, *two]) for one, two in zip(before, ends, strict=True)]
        after = _groups(problem.after_start, problem.after)
        until = _groups(problem.until_start, problem.until)
        self._after = [sorted({*one, *two}) for one, two in zip(after, until, strict=True)]
        self._cost = return_costs(problem).tolist()
        self._working = [working_bytes(problem, op) for op in range(end + 1)]

    def extra_cost(self, budget_bytes: int, known: int = 0) -> int:
        """What every plan within a budget costs at least on top of computing everything once.

        Args:
            budget_bytes: What may be in use.
            known: A bound that is known; the search goes for a higher one.
        """
        if self._end > _MOST_OPERATIONS:
            return known
        found = self._cheapest_way(budget_bytes, float(known))
        # Sums of parts are a little imprecise. Where there is no way at all, any cost is a bound.
        return (
            known
            if found == math.inf
            else max(known, math.ceil(found * (1 - _IMPRECISION) - _IMPRECISION))
        )

    def _cheapest_way(self, budget_bytes: int, known: float) -> float:
        ready = tuple(op for op, before in enumerate(self._before) if not before)
        start = _Frontier(0, (), ready)
        least = {0: known}
        # At the same cost the set with the most in it: it may be near the end.
        heap = [(known, 0, 0, start)]
        work = count = 0
        while heap:
            cost, size, _, frontier = heappop(heap)
            if frontier.done >> self._end & 1 or work > _WORK:
                return cost
            if least[frontier.done] < cost:
                continue
            work += (len(frontier.live) + _STEP) * len(frontier.ready)
            for op in frontier.ready:
                done = frontier.done | 1 << op
                before = least.get(done, math.inf)
                if cost >= before:
                    continue
                step = max(cost, self._step_cost(frontier, op, budget_bytes))
                if step >= before:
                    continue
                least[done] = step
                count += 1
                heappush(heap, (step, size - 1, count, self._following(frontier, op)))
        return math.inf

    def _step_cost(self, frontier: _Frontier, op: int, budget_bytes: int) -> float:
        """What has to be had again for an operation to run for the first time."""
        left = ~(frontier.done | 1 << op)
        inputs = self._inputs[op]
        held: dict[int, int] = {}
        excess_bytes = self._working[op] - budget_bytes
        for value in frontier.live:
            if value not in inputs and self._readers[value] & left:
                source = self._op_of[value]
                held[source] = held.get(source, 0) + self._size[value]
                excess_bytes += self._size[value]
        if excess_bytes <= 0:
            return 0.0
        return self._lightest(held, excess_bytes)

    def _lightest(self, held: dict[int, int], excess_bytes: int) -> float:
        """The least cost of freeing some bytes when parts of operations can be freed as well."""
        total = 0.0
        for op in sorted(held, key=lambda op: (self._cost[op] / held[op], op)):
            if self._cost[op] == math.inf:
                break
            if held[op] >= excess_bytes:
                return float(total + self._cost[op] * excess_bytes / held[op])
            total += self._cost[op]
            excess_bytes -= held[op]
        return math.inf

    def _following(self, frontier: _Frontier, op: int) -> _Frontier:
        done = frontier.done | 1 << op
        candidates = (*frontier.live, *self._values[op])
        live = tuple(v for v in candidates if self._size[v] and self._readers[v] & ~done)
        ready = [other for other in frontier.ready if other != op]
        ready += [other for other in self._after[op] if not self._before[other] & ~done]
        return _Frontier(done, live, tuple(ready))


def _groups(starts: IntArray, members: IntArray) -> list[list[int]]:
    return [group.tolist() for group in _split(starts, members)]


def _split(starts: IntArray, members: IntArray) -> Iterator[IntArray]:
    for index in range(len(starts) - 1):
        yield members[starts[index] : starts[index + 1]]


def _bits(indices: list[int]) -> int:
    total = 0
    for index in indices:
        total |= 1 << index
    return total
