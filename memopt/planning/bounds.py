"""What no plan can be better than: a lower bound on the budget, and on the cost at a budget.

While an operation runs for the first time, everything that comes before it was computed, and what
of that is read by something that comes after it is either in use, or is recomputed later. What
is in use must fit in the budget with the operation's own working set; what is recomputed costs
at least its own cost. So each operation gives a knapsack whose relaxation bounds the extra cost of
every plan, in whatever order; the largest one counts. For the operations of which that is largest
it is told besides what recomputing takes itself: see `moments`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memopt.compilation.jit import compiled, compiled_apart
from memopt.planning.moments import Moment
from memopt.planning.sequence_state import base_bytes, takes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from memopt.planning.arrays import IntArray
    from memopt.planning.problem import Problem

_EARLIER, _LATER = 1, 2
_MOST_LOOKED_AT = 2_000
_MOST_WEIGHED = 200
"""Operations whose knapsack is filled: those that are furthest over the budget."""
_MOST_MOMENTS = 8
_MOST_CUT = 100_000
"""Operations of the graph, times the moments that are looked at with all that recomputing takes."""


class Bounds:
    """Bounds of a problem, for any budget.

    Attributes:
        least_bytes: No plan has a lower peak, as far as the operations that were looked at tell.
        floor: The operation that needs them, by index.
        order: All operations but the end, in an order that runs.
    """

    def __init__(self, problem: Problem, order: IntArray) -> None:
        end = len(problem.cost) - 1
        self._problem = problem
        self.order = order
        self._order = np.append(order, end)
        looked_at = np.arange(end)
        if end > _MOST_LOOKED_AT:
            # Operations of the order at even distances: a bound from some holds for all.
            looked_at = order[np.linspace(0, end - 1, _MOST_LOOKED_AT).astype(np.int64)]
        self._looked_at = looked_at
        self._return_cost = return_costs(problem)
        self._all_bytes = np.zeros(len(looked_at), np.int64)
        fixed_bytes = np.zeros(len(looked_at), np.int64)
        for place, op in enumerate(looked_at):
            held, working_bytes, _ = self._held_across(int(op))
            self._all_bytes[place] = working_bytes + held.sum()
            fixed_bytes[place] = working_bytes + held[np.isinf(self._return_cost)].sum()
        place = int(np.argmax(fixed_bytes)) if end else 0
        self.least_bytes = int(fixed_bytes[place]) if end else 0
        self.floor = int(looked_at[place]) if end else -1

    def extra_cost(self, budget_bytes: int) -> int:
        """What every plan within a budget costs at least on top of computing everything once."""
        weighed: list[tuple[float, float, int]] = []
        for place in np.argsort(-self._all_bytes, kind="stable")[:_MOST_WEIGHED]:
            excess_bytes = int(self._all_bytes[place]) - budget_bytes
            if excess_bytes <= 0:
                break
            op = int(self._looked_at[place])
            held, *_ = self._held_across(op)
            cost = _lightest(held, self._return_cost, excess_bytes)
            weighed.append((cost, cost / excess_bytes, op))
        if not weighed:
            return 0
        weighed.sort(reverse=True)
        most = int(np.ceil(weighed[0][0]))
        moments = min(_MOST_MOMENTS, _MOST_CUT // len(self._problem.cost))
        for _, price, op in weighed[:moments]:
            most = max(most, self._moment(op, budget_bytes).extra_cost(price))
        return most

    def _moment(self, op: int, budget_bytes: int) -> Moment:
        """What one operation asks for within a budget."""
        problem = self._problem
        _, working_bytes, reach = self._held_across(op)
        read = problem.input_value[problem.input_start[op] : problem.input_start[op + 1]]
        is_later = reach == _LATER
        # What it reads itself is in use.
        is_later[op] = False
        return Moment(problem, reach == _EARLIER, is_later, read, budget_bytes - working_bytes)

    def floors(self, budget_bytes: int) -> Iterator[tuple[dict[int, int], int]]:
        """What has to be had again, some or other of it, for each operation to run.

        Args:
            budget_bytes: What may be in use.

        Yields:
            The bytes of operations that are held across one, unless they are had again, and how
            many of these are too much.
        """
        known = set()
        for place in np.flatnonzero(self._all_bytes > budget_bytes):
            held, *_ = self._held_across(int(self._looked_at[place]))
            sizes = {int(op): int(held[op]) for op in np.flatnonzero(held)}
            excess_bytes = int(self._all_bytes[place]) - budget_bytes
            key = (excess_bytes, *sizes.items())
            if key not in known:
                known.add(key)
                yield sizes, excess_bytes

    def _held_across(self, op: int) -> tuple[IntArray, int, IntArray]:
        """Bytes of each operation that are read before and after this one, and its working set.

        And which operations come before it and after it in any case.
        """
        problem = self._problem
        held = np.zeros(len(problem.cost), np.int64)
        reach = np.zeros(len(problem.cost), np.int64)
        working_bytes = _look_across(problem, self._order, op, held, reach)
        return held, int(working_bytes), reach


def working_bytes(problem: Problem, op: int) -> int:
    """What is in use at least while an operation runs: its inputs, outputs and scratch memory."""
    read = problem.input_value[problem.input_start[op] : problem.input_start[op + 1]].tolist()
    taken = max((int(problem.size[each]) for each in read if takes(problem, op, each)), default=0)
    return base_bytes(problem, op) + int(problem.size[read].sum()) - taken


def return_costs(problem: Problem) -> npt.NDArray[np.float64]:
    """What it costs to have each operation's outputs again; infinite if that cannot be."""
    costs = np.where(problem.single == 1, np.inf, problem.cost.astype(np.float64))
    return np.where(problem.swap_cost > 0, np.minimum(costs, problem.swap_cost), costs)


def _lightest(held: IntArray, costs: npt.NDArray[np.float64], excess_bytes: int) -> float:
    """The least cost of freeing some bytes when parts of operations can be freed as well."""
    chosen = np.flatnonzero((held > 0) & np.isfinite(costs))
    chosen = chosen[np.argsort(costs[chosen] / held[chosen], kind="stable")]
    total = np.cumsum(held[chosen])
    full = int(np.searchsorted(total, excess_bytes))
    if full >= len(chosen):
        # There is no such plan; then any cost is a bound.
        return float(costs[chosen].sum())
    before = int(total[full - 1]) if full else 0
    part = (excess_bytes - before) / int(held[chosen[full]])
    return float(costs[chosen[:full]].sum() + part * costs[chosen[full]])


@compiled_apart
def _look_across(
    problem: Problem, order: IntArray, op: int, held: IntArray, reach: IntArray
) -> int:
    """Fill in what is held across an operation; returns its working set."""
    _reach(problem, order, op, reach)
    for other in range(len(held)):
        if reach[other] != _EARLIER:
            continue
        for value in range(problem.value_start[other], problem.value_start[other + 1]):
            if _is_read_later(problem, value, op, reach):
                held[other] += problem.size[value]
    total = base_bytes(problem, op)
    taken = 0
    for edge in range(problem.input_start[op], problem.input_start[op + 1]):
        value = problem.input_value[edge]
        total += problem.size[value]
        if _is_read_later(problem, value, op, reach):
            # It is in use here in any case.
            held[problem.input_op[edge]] -= problem.size[value]
        if takes(problem, op, value):
            taken = max(taken, problem.size[value])
    return total - taken


@compiled
def _reach(problem: Problem, order: IntArray, op: int, reach: IntArray) -> None:
    """Mark what has to come before an operation, and it and what has to come after it."""
    at = 0
    while order[at] != op:
        at += 1
    reach[op] = _LATER
    for place in range(at, -1, -1):
        other = order[place]
        if reach[other] == 0:
            continue
        for edge in range(problem.before_start[other], problem.before_start[other + 1]):
            reach[problem.before[edge]] = _EARLIER
    for place in range(at, len(order)):
        other = order[place]
        if reach[other] != _LATER:
            continue
        for edge in range(problem.after_start[other], problem.after_start[other + 1]):
            reach[problem.after[edge]] = _LATER


@compiled
def _is_read_later(problem: Problem, value: int, op: int, reach: IntArray) -> bool:
    """Whether something that has to come after an operation reads a value."""
    for edge in range(problem.reader_start[value], problem.reader_start[value + 1]):
        reader = problem.reader_op[edge]
        if reader != op and reach[reader] == _LATER:
            return True
    return False
