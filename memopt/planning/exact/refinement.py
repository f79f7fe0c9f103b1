"""What CP-SAT adds to a search: all of it if that is small enough, then windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.planning.exact.live_ranges import reads_of
from memopt.planning.exact.whole_problem import solve_whole
from memopt.planning.exact.windows import Windows, cost_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.planning.bounds import Bounds
    from memopt.planning.problem import Problem

_MOST_OPERATIONS = 400
"""In one model: with more, the time goes into building it."""
_MOST_SEARCHED = 40
"""In one model that no plan is known for."""
_WORK = 12.0
_WINDOWS = 100


class Refined(NamedTuple):
    """What came of it.

    Attributes:
        operations: A sequence that costs no more than the one that was given.
        swapped: For each of its steps, 1 if it is a swap in.
        extra_cost: What every plan costs at least on top of computing everything once.
        is_impossible: Whether it is proved that there is no plan.
        is_finished: Whether the clock stopped nothing.
    """

    operations: Sequence[int]
    swapped: Sequence[int]
    extra_cost: int
    is_impossible: bool
    is_finished: bool


class Refining:
    """Improves what a search found, and proves bounds.

    Args:
        problem: What is planned.
        bounds: Its bounds.
        seed: Of the solver and of the windows.
        deadline_s: When to stop at the latest, by `time.monotonic`.
    """

    def __init__(self, problem: Problem, bounds: Bounds, seed: int, deadline_s: float) -> None:
        self._problem = problem
        self._bounds = bounds
        self._reads = reads_of(problem)
        self._seed = seed
        self._deadline_s = deadline_s

    def refine(
        self,
        operations: Sequence[int],
        swapped: Sequence[int],
        room: int,
        *,
        spare_cost: int | None,
        least_cost: int,
    ) -> Refined:
        """Plan all of it in one model if it is small, then windows if that proved nothing.

        Args:
            operations: A sequence without the end of the step.
            swapped: For each of its steps, 1 if it is a swap in.
            room: The budget, without what is held throughout.
            spare_cost: What the sequence costs on top of computing everything once; `None` if it
                is over the budget.
            least_cost: What every plan costs at least on top of that.
        """
        refined = Refined(operations, swapped, least_cost, is_impossible=False, is_finished=True)
        most = _MOST_SEARCHED if spare_cost is None else _MOST_OPERATIONS
        if len(self._problem.cost) <= most:
            refined = self._whole(refined, room, spare_cost)
        cost = cost_of(self._problem, refined.operations, refined.swapped)
        is_proved = cost == self._problem.cost.sum() + refined.extra_cost
        if spare_cost is None or is_proved or not refined.is_finished:
            return refined
        windows = Windows(
            self._problem, self._reads, room, seed=self._seed, deadline_s=self._deadline_s
        )
        improved = windows.improve(refined.operations, refined.swapped, _WINDOWS)
        return refined._replace(
            operations=improved[0], swapped=improved[1], is_finished=windows.is_finished
        )

    def _whole(self, refined: Refined, room: int, spare_cost: int | None) -> Refined:
        answer = solve_whole(
            self._problem,
            self._reads,
            self._bounds,
            room,
            (refined.operations, refined.swapped),
            spare_cost=spare_cost,
            least_cost=refined.extra_cost,
            work=_WORK,
            seed=self._seed,
            deadline_s=self._deadline_s,
        )
        refined = refined._replace(
            extra_cost=max(refined.extra_cost, answer.least),
            is_impossible=answer.is_impossible,
            is_finished=answer.is_finished,
        )
        if answer.found is None:
            return refined
        operations = [op for op, _ in answer.found.steps]
        swapped = [is_swap for _, is_swap in answer.found.steps]
        if spare_cost is not None and cost_of(self._problem, operations, swapped) > cost_of(
            self._problem, refined.operations, refined.swapped
        ):
            return refined
        return refined._replace(operations=operations, swapped=swapped)
