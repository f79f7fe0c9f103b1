"""Plans windows of a sequence anew, one after the other: large-neighbourhood search."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import numpy as np

from memopt.planning.exact.cp_sat import solve
from memopt.planning.exact.live_ranges import lives_of
from memopt.planning.exact.model import Model
from memopt.planning.exact.subproblem import Frame, cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.planning.exact.live_ranges import Reads
    from memopt.planning.problem import Problem

STEPS = 16
"""Of a window."""
_SLACK = 6
_WORK = 0.05


class Windows:
    """Improves sequences that keep to a budget.

    Args:
        problem: What is planned.
        reads: What its operations read.
        room: The budget, without what is held throughout.
        seed: Of where windows stand, and of the solver.
        deadline_s: When to stop at the latest, by `time.monotonic`.
        steps: How many a window has.

    Attributes:
        is_finished: Whether the clock stopped nothing.
    """

    def __init__(
        self,
        problem: Problem,
        reads: Reads,
        room: int,
        *,
        seed: int,
        deadline_s: float = math.inf,
        steps: int = STEPS,
    ) -> None:
        self._problem = problem
        self._reads = reads
        self._room = room
        self._seed = seed
        self._steps = steps
        self._draw = random.Random(seed)  # noqa: S311 - a search, no secret
        self._deadline_s = deadline_s
        self.is_finished = True

    def improve(
        self, operations: Sequence[int], swapped: Sequence[int], windows: int
    ) -> tuple[list[int], list[int]]:
        """Plan windows anew that have something to save.

        Args:
            operations: The sequence, without the end of the step.
            swapped: For each of its steps, 1 if it is a swap in.
            windows: How many.

        Returns:
            A sequence that costs no more, and its swaps in.
        """
        best = list(operations), list(swapped)
        for _ in range(windows):
            repeats = list(_repeats(best[0]))
            if not repeats or not self.is_finished:
                break
            best = self._replan(*best, self._start(self._draw.choice(repeats), len(best[0])))
        return best

    def _start(self, step: int, length: int) -> int:
        """Where a window with a step in it starts."""
        return max(0, min(length - self._steps, step - self._draw.randrange(self._steps)))

    def _replan(
        self, operations: list[int], swapped: list[int], start: int
    ) -> tuple[list[int], list[int]]:
        """Plan one window anew."""
        problem, reads = self._problem, self._reads
        end = min(len(operations), start + self._steps)
        last = len(problem.cost) - 1
        lives = lives_of(problem, reads, [*operations, last], [*swapped, 0])
        inside = operations[start:end]
        # Once more than now, for whatever can be computed there.
        copies = {op: inside.count(op) + 1 for op in range(last)}
        piece = cut(problem, reads, lives, Frame(start, end, _SLACK, copies))
        model = Model(problem, reads, piece, self._room)
        answer = solve(model, _WORK, seed=self._seed, deadline_s=self._deadline_s, proves=False)
        self.is_finished = answer.is_finished
        if answer.found is None:
            return operations, swapped
        left = [at for at in range(end, len(operations)) if at not in answer.found.left_out]
        steps = answer.found.steps
        replanned = (
            [*operations[:start], *(op for op, _ in steps), *(operations[at] for at in left)],
            [*swapped[:start], *(is_in for _, is_in in steps), *(swapped[at] for at in left)],
        )
        if cost_of(problem, *replanned) > cost_of(problem, operations, swapped):
            return operations, swapped
        return replanned


def cost_of(problem: Problem, operations: Sequence[int], swapped: Sequence[int]) -> int:
    """What a sequence costs."""
    costs = np.where(swapped, problem.swap_cost[operations], problem.cost[operations])
    return int(costs.sum())


def _repeats(operations: Sequence[int]) -> Iterator[int]:
    """The steps that compute something again, or swap it in."""
    seen = set()
    for step, op in enumerate(operations):
        if op in seen:
            yield step
        seen.add(op)
