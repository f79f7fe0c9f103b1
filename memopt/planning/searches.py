"""What searches of one graph have in common: the clock, what is best, and who is told of it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from memopt.cores import side_by_side
from memopt.planning.annealing import anneal, new_best, record, tidy
from memopt.planning.initial_plans import Steps
from memopt.planning.sequence_state import OVERSHOOT, fill, new_state
from memopt.progress import Task, found, task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from memopt.planning.annealing import Best, Schedule
    from memopt.planning.cost_graph import CostGraph
    from memopt.planning.problem import Problem
    from memopt.planning.sequence_state import State

_NEXT_SEED = 1_000_003
"""What is added to the seed for another search; seeds that people give lie closer together."""


class Searches:
    """Searches of a graph, until the time is up.

    Args:
        graph: What is planned.
        problem: The same as arrays.
        deadline_s: When to stop at the latest, by `time.monotonic`.
        seed: Of every search.

    Attributes:
        is_finished: Whether no search was stopped by the deadline.
    """

    def __init__(self, graph: CostGraph, problem: Problem, deadline_s: float, seed: int) -> None:
        self._graph = graph
        self._problem = problem
        self._seed = seed
        self._deadline_s = deadline_s
        self.is_finished = True
        self._task = Task("")
        self._telling = Lock()
        self._is_stopped = False

    def state(self, room: int, number: int = 0) -> State:
        """An empty sequence, with random numbers that no other number gives."""
        return new_state(self._problem, room, self._seed + number * _NEXT_SEED)

    def side_by_side(self, searches: Sequence[Callable[[], Best]]) -> Best:
        """The best of what searches find, the first of equals; each has a state of its own."""
        return min(side_by_side(searches, self._stop), key=rank)

    def anneal_from(self, state: State, steps: Steps, schedule: Schedule) -> Best:
        """What is found from a sequence, whatever was found before."""
        best = new_best(state)
        fill(self._problem, state, *steps)
        self.anneal(state, best, schedule)
        return best

    def improve(self, state: State, best: Best, schedule: Schedule) -> None:
        """Search around the best sequence."""
        if self.is_perfect(best):
            return
        fill(self._problem, state, *steps_of(best))
        self.anneal(state, best, schedule)
        self.offer(state, best, steps_of(best))

    def offer(self, state: State, best: Best, steps: Steps, *, only_within: bool = False) -> None:
        """Record a sequence, without what it computes needlessly, if it is the best."""
        fill(self._problem, state, *steps)
        if only_within and state.numbers[OVERSHOOT]:
            return
        tidy(self._problem, state)
        record(state, best)

    def anneal(self, state: State, best: Best, schedule: Schedule) -> None:
        """Search from a state's sequence, until the time is up; see `annealing.anneal`."""
        ends = anneal(self._problem, state, best, schedule, self._deadline_s, self._advance)
        if not ends:
            self.is_finished = False

    def _advance(self, edits: int) -> None:
        if self._is_stopped:
            raise InterruptedError
        with self._telling:
            self._task.advance(edits)

    def _stop(self) -> None:
        self._is_stopped = True

    def tell(self, best: Best) -> None:
        """Say what a plan costs that is within the budget, if there is one already."""
        if not best.numbers[1]:
            share = int(best.numbers[2]) / max(self._graph.base_cost, 1)
            found(f"a plan within the budget costs x{share:.3f} of computing everything once")

    @contextmanager
    def telling(self, what: str, schedules: Iterable[Schedule]) -> Iterator[None]:
        """Say how far searches are; some end early, or are not needed."""
        outer, left_s = self._task, self._deadline_s - time.monotonic()
        with task(what, sum(schedule.edits for schedule in schedules), left_s) as under_way:
            self._task = under_way
            try:
                yield
            finally:
                self._task = outer

    def is_perfect(self, best: Best) -> bool:
        """Whether nothing can be better: everything fits, and is computed once."""
        return bool(best.numbers[1] == 0 and best.numbers[2] == self._graph.base_cost)

    def costs_no_more(self, best: Best, least: int) -> bool:
        """Whether a sequence is within the budget, and none can be cheaper."""
        return bool(not best.numbers[1] and best.numbers[2] - self._graph.base_cost <= least)


def rank(best: Best) -> tuple[int, int]:
    """Less is better: bytes over the budget, then costs."""
    return int(best.numbers[1]), int(best.numbers[2])


def steps_of(best: Best) -> Steps:
    """The sequence that a search found."""
    length = int(best.numbers[0])
    return Steps(best.operations[:length].copy(), best.swapped[:length].copy())
