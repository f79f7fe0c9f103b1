"""Searches that begin from orders and go far: one by one, in chains, and by force."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

from memopt.planning.initial_plans import unchanged
from memopt.planning.searches import steps_of
from memopt.planning.sequence_state import BUDGET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from memopt.planning.annealing import Best, Schedule
    from memopt.planning.arrays import IntArray
    from memopt.planning.initial_plans import Steps
    from memopt.planning.search_effort import Effort
    from memopt.planning.searches import Searches
    from memopt.planning.sequence_state import State

_FORCED = 4
"""The number of the first search by force."""


class FarSearches:
    """Searches for plans of one graph, each with random numbers of its own, by its number.

    Args:
        searches: What they have in common.
        effort: How much is searched.
        orders: What they begin from, in turns: of some, no search gets to where another one begins.
    """

    def __init__(self, searches: Searches, effort: Effort, orders: Sequence[IntArray]) -> None:
        self._searches = searches
        self._effort = effort
        self._orders = orders

    def briefly(self, state: State, best: Best) -> Best:
        """What is found near a sequence, and from each order in chains, side by side."""
        effort, room = self._effort, int(state.numbers[BUDGET])
        searches = [partial(self._rework, state, best)]
        searches += [
            partial(self._explore, room, effort.explore, number)
            for number in range(1, 1 + len(self._orders))
        ]
        schedules = (effort.explore, *effort.rework) * len(self._orders)
        with self._searches.telling("searching", (*effort.rework, *schedules)):
            return self._searches.side_by_side(searches)

    def insist(self, room: int) -> Best:
        """What is found by force, side by side."""
        effort = self._effort
        schedules = [(each, *effort.rework) for each in effort.force]
        with self._searches.telling("insisting", itertools.chain(*schedules)):
            return self._searches.side_by_side(
                [
                    partial(self._explore, room, each, number)
                    for number, each in enumerate(effort.force, _FORCED)
                ]
            )

    def anew(self, room: int, rounds: Iterable[int]) -> list[Callable[[], Best]]:
        """The searches of rounds, by their numbers, that begin anew from the orders, in turns."""
        begins = range(len(self._effort.begins))
        return [partial(self._begin, room, each, begin) for each in rounds for begin in begins]

    def _begin(self, room: int, round_number: int, begin: int) -> Best:
        begins = self._effort.begins
        state = self._searches.state(room, 1 + round_number * len(begins) + begin)
        # One order further in each round, so that every way begins from all of them.
        steps = self._order(1 + round_number + begin)
        first, *others = begins[begin]
        best = self._searches.anneal_from(state, steps, first)
        for schedule in others:
            best = self._searches.anneal_from(state, steps_of(best), schedule)
        return best

    def _explore(self, room: int, schedule: Schedule, number: int) -> Best:
        state = self._searches.state(room, number)
        best = self._searches.anneal_from(state, self._order(number), schedule)
        return self._rework(state, best)

    def _rework(self, state: State, best: Best) -> Best:
        for each in self._effort.rework:
            self._searches.improve(state, best, each)
        return best

    def _order(self, turn: int) -> Steps:
        """The order whose turn it is."""
        return unchanged(self._orders[(turn - 1) % len(self._orders)])
