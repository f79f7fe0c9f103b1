"""All of a small problem as one model: proves what the least cost is, or that there is no plan.

A plan here computes no operation more than `COPIES` times, swaps in included. Operations get fewer
places where more could not be worth their cost, or nothing could read them, so this is the only
limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memopt.planning.exact.cp_sat import solve
from memopt.planning.exact.live_ranges import lives_of
from memopt.planning.exact.model import Model
from memopt.planning.exact.subproblem import Frame, cut
from memopt.planning.problem import COPIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.planning.arrays import IntArray
    from memopt.planning.bounds import Bounds
    from memopt.planning.exact.cp_sat import Answer
    from memopt.planning.exact.live_ranges import Reads
    from memopt.planning.problem import Problem


class Limits(NamedTuple):
    """How often operations stand in any plan that is no dearer than one that is known.

    Attributes:
        copies: Each operation, at most.
        repeats: All of them beyond the first time, at most.
    """

    copies: dict[int, int]
    repeats: int


def solve_whole(  # noqa: PLR0913 - a problem, where to start, and how far to go
    problem: Problem,
    reads: Reads,
    bounds: Bounds,
    room: int,
    start: tuple[Sequence[int], Sequence[int]],
    *,
    spare_cost: int | None,
    least_cost: int,
    work: float,
    seed: int,
    deadline_s: float,
) -> Answer:
    """Plan everything anew.

    Args:
        problem: What is planned.
        reads: What its operations read.
        bounds: Its bounds: what the solver is told of the bytes.
        room: The budget, without what is held throughout.
        start: A sequence to begin with, and 1 for each of its swaps in.
        spare_cost: What that costs on top of everything once; `None` if it is over the budget.
        least_cost: What every plan costs at least on top of that.
        work: How much the solver does at most.
        seed: Of the solver.
        deadline_s: When to stop at the latest.

    Returns:
        What was found; its costs are those on top of everything once.
    """
    end = len(problem.cost) - 1
    limits = find_limits(problem, bounds.order, spare_cost)
    lives = lives_of(problem, reads, [*start[0], end], [*start[1], 0])
    length = len(start[0])
    slack = max(0, end + limits.repeats - length)
    frame = Frame(0, length, slack, limits.copies)
    model = Model(problem, reads, cut(problem, reads, lives, frame), room)
    for held, excess_bytes in bounds.floors(room):
        model.add_floor(held, excess_bytes)
    model.add_least_cost(least_cost)
    return solve(model, work, seed=seed, deadline_s=deadline_s, proves=True)


def find_limits(problem: Problem, order: IntArray, spare_cost: int | None) -> Limits:
    """How often operations can be of use.

    Args:
        problem: What is planned.
        order: All operations but the end, in an order that runs.
        spare_cost: What a plan may cost on top of everything once; `None` for any cost.
    """
    end = len(problem.cost) - 1
    reading = _reading(problem)
    copies = {end: 1}
    for op in reversed(order.tolist()):
        again = _cost_of_repeat(problem, op)
        if again is None:
            copies[op] = 1
            continue
        useful = sum(copies[reader] for reader in reading[op])
        # Once more where it has to be computed before it is of use: others wait for it, or it
        # comes back from the host.
        after = problem.after[problem.after_start[op] : problem.after_start[op + 1]].tolist()
        waited_for = any(other != end and other not in reading[op] for other in after)
        useful += 1 if waited_for or problem.swap_cost[op] else 0
        if spare_cost is not None and again:
            useful = min(useful, 1 + spare_cost // again)
        copies[op] = max(1, min(COPIES, useful))
    costs = [
        _cost_of_repeat(problem, op) or 0 for op in order.tolist() for _ in range(copies[op] - 1)
    ]
    if spare_cost is None:
        return Limits(copies, len(costs))
    within = np.cumsum(sorted(costs)) <= spare_cost
    return Limits(copies, int(np.count_nonzero(within)))


def _reading(problem: Problem) -> list[set[int]]:
    """The operations that read each one."""
    readers: list[set[int]] = [set() for _ in problem.cost]
    op_of = np.repeat(np.arange(len(problem.cost)), np.diff(problem.input_start))
    for reader, source in zip(op_of.tolist(), problem.input_op.tolist(), strict=True):
        readers[source].add(reader)
    return readers


def _cost_of_repeat(problem: Problem, op: int) -> int | None:
    """What an operation costs once more at least; `None` if it is there only once."""
    costs = []
    if not problem.single[op]:
        costs.append(int(problem.cost[op]))
    if problem.swap_cost[op]:
        costs.append(int(problem.swap_cost[op]))
    return min(costs, default=None)
