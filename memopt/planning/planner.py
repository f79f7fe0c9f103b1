"""Plans a cost graph within a budget: constructive plans, then search, then a bound."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from memopt.errors import BudgetError
from memopt.planning.annealing import new_best, record
from memopt.planning.bounds import Bounds
from memopt.planning.checker import judge
from memopt.planning.cost_graph import CostGraph, Operation
from memopt.planning.exact import check_installed
from memopt.planning.exact.solver_process import Call, refine_apart
from memopt.planning.far_searches import FarSearches
from memopt.planning.frontiers import Frontiers
from memopt.planning.initial_plans import Starts, Steps, unchanged
from memopt.planning.plan import Plan
from memopt.planning.problem import COPIES, problem_of
from memopt.planning.search_effort import ROUNDS, Effort
from memopt.planning.searches import Searches, rank, steps_of
from memopt.planning.sequence_state import fill, new_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memopt.planning.annealing import Best
    from memopt.planning.plan import Status
    from memopt.planning.sequence_state import State

_ORDERS = 2
"""From how many orders a search goes far: the one that was given, and the one that needs little."""


def plan_graph(
    graph: CostGraph,
    budget_bytes: int,
    *,
    seed: int = 0,
    time_limit_s: float = math.inf,
    exact: bool = False,
) -> Plan:
    """The cheapest plan that is found within a budget.

    The same graph, budget and seed give the same plan, unless the time limit is reached.

    Args:
        graph: What to plan.
        budget_bytes: What may be in use at any step, everything included.
        seed: Of the search.
        time_limit_s: How long to search, unless nothing can be better; without, as long as suits
            the graph's size.
        exact: Whether CP-SAT goes on where the search ends.

    Raises:
        OptionsError: OR-Tools is asked for, and not there.
        BudgetError: No plan was found. It tells the lowest peak that was, what no plan can go
            below, and where.
    """
    return Planner(graph, seed, time_limit_s, exact=exact).plan(budget_bytes)


class Planner:
    """Searches one graph for plans within budgets.

    Args:
        graph: What to plan.
        seed: Of every search.
        time_limit_s: When to stop at the latest, from now on.
        effort: How much is searched; what suits the graph if not given.
        walks: Whether walks along orders are among what `search` starts from: they take a while.
        exact: Whether CP-SAT goes on where the search ends.

    Raises:
        OptionsError: OR-Tools is asked for, and not there.
    """

    def __init__(
        self,
        graph: CostGraph,
        seed: int = 0,
        time_limit_s: float = math.inf,
        *,
        effort: Effort | None = None,
        walks: bool = True,
        exact: bool = False,
    ) -> None:
        if exact:
            check_installed()
        self._is_exact = exact
        self._graph = graph
        self._seed = seed
        self._deadline_s = time.monotonic() + time_limit_s
        self._effort = effort or Effort.of(graph.operation_count, ROUNDS)
        self._walks = walks
        self._problem = problem_of(graph)
        self._measured = new_state(self._problem, 0, seed)
        self._searches = Searches(graph, self._problem, self._deadline_s, seed)

    @cached_property
    def _starts(self) -> Starts:
        return Starts(self._problem, self._graph.order)

    @cached_property
    def _far(self) -> FarSearches:
        orders = self._starts.orders[:_ORDERS] if self._walks else (self._graph.order,)
        return FarSearches(self._searches, self._effort, orders)

    @cached_property
    def bounds(self) -> Bounds:
        """What no plan can be better than."""
        return Bounds(self._problem, self._graph.order)

    def plan(
        self, budget_bytes: int, starts: Iterable[Steps] = (), *, most_s: float = math.inf
    ) -> Plan:
        """A plan for a budget.

        Args:
            budget_bytes: What may be in use at any step, everything included.
            starts: Sequences to begin with, besides those that are constructed.
            most_s: For how long it goes on, where there is a time limit; what suits the graph's
                size is searched in any case.

        Raises:
            BudgetError: No plan was found.
        """
        started_s = time.monotonic()
        graph = self._graph
        room = budget_bytes - graph.held_bytes
        best = self._search_further(self._search(room, starts), room)
        least = self._least_cost(best, room)
        is_impossible = False
        if self._is_exact:
            least, is_impossible = self._refine(best, room, least)
        best = self._search_on(best, room, least, started_s + most_s)
        if best.numbers[1]:
            raise self._refusal(budget_bytes, is_impossible=is_impossible)
        plan = self._plan_of(steps_of(best), budget_bytes, graph.base_cost + least)
        if plan.peak_bytes > budget_bytes:
            raise AssertionError("the search lost count of the bytes in use")
        return replace(plan, seconds=time.monotonic() - started_s)

    def _plan_of(self, steps: Steps, budget_bytes: int, lower_bound: int) -> Plan:
        """A sequence as a plan; its figures are counted anew, since the search is not believed."""
        graph = self._graph
        swaps = tuple(np.flatnonzero(steps.swapped).tolist())
        judgement = judge(graph, steps.operations.tolist(), swaps)
        status: Status = "feasible" if self._searches.is_finished else "time limit"
        return Plan(
            sequence=tuple(graph.ids[op] for op in steps.operations),
            swaps=swaps,
            peak_bytes=judgement.peak_bytes,
            cost=judgement.cost,
            base_cost=graph.base_cost,
            budget_bytes=budget_bytes,
            lower_bound=lower_bound,
            seconds=0.0,
            seed=self._seed,
            status="optimal" if judgement.cost == lower_bound else status,
        )

    def search(
        self, budget_bytes: int, starts: Iterable[Steps] = (), *, insists: bool = False
    ) -> tuple[Steps, bool]:
        """The best sequence that is found for a budget, and whether it is within it.

        Args:
            budget_bytes: What may be in use at any step, everything included.
            starts: Sequences to begin with, besides those that are constructed.
            insists: Whether to search once more, harder, if it is not.
        """
        room = budget_bytes - self._graph.held_bytes
        state = self._searches.state(room)
        best = new_best(state)
        walks = self._starts.within(room) if self._walks else (unchanged(self._graph.order),)
        for steps in (*walks, *starts):
            self._searches.offer(state, best, steps)
        if not self._searches.is_perfect(best):
            best = self._far.briefly(state, best)
        if insists and best.numbers[1]:
            best = min(best, self._far.insist(room), key=rank)
        return steps_of(best), not best.numbers[1]

    def search_near(self, budget_bytes: int, starts: Iterable[Steps]) -> tuple[Steps, bool]:
        """The best sequence that is found near others, and whether it is within a budget.

        Args:
            budget_bytes: What may be in use at any step, everything included.
            starts: What to begin with the best of, which may all be over the budget.
        """
        state = self._searches.state(budget_bytes - self._graph.held_bytes)
        best = new_best(state)
        for steps in starts:
            self._searches.offer(state, best, steps)
        with self._searches.telling("searching nearby", self._effort.rework):
            for schedule in self._effort.rework:
                self._searches.improve(state, best, schedule)
        return steps_of(best), not best.numbers[1]

    def _search(self, room: int, starts: Iterable[Steps]) -> Best:
        """The best sequence for a budget: over it by as little as possible, then cheapest."""
        state = self._searches.state(room)
        best = new_best(state)
        for steps in (*self._starts.within(room), *starts):
            self._searches.offer(state, best, steps)
        if not self._searches.is_perfect(best):
            for steps in self._starts.others(room):
                self._searches.offer(state, best, steps, only_within=True)
        effort = self._effort
        rounds = itertools.chain(*effort.begins * effort.rounds)
        with self._searches.telling("searching", (effort.polish, *rounds, effort.finish)):
            self._searches.improve(state, best, effort.polish)
            self._searches.tell(best)
            if effort.rounds and self._searches.is_finished and not self._searches.is_perfect(best):
                anew = self._far.anew(room, range(effort.rounds))
                best = min(best, self._searches.side_by_side(anew), key=rank)
                self._searches.tell(best)
            self._searches.improve(state, best, effort.finish)
        return best

    def _search_further(self, best: Best, room: int) -> Best:
        """Where nothing is within a budget: around the lowest sequence, or by force."""
        if not best.numbers[1]:
            return best
        if self._peak(self.lowest) > room:
            is_possible = room >= self.bounds.least_bytes
            return min(best, self._far.insist(room), key=rank) if is_possible else best
        state = self._searches.state(room)
        fill(self._problem, state, *self.lowest)
        record(state, best)
        self._searches.improve(state, best, self._effort.polish)
        return best

    def _search_on(self, best: Best, room: int, least: int, end_s: float) -> Best:
        """Where there is time, search on until it is up or nothing can be better.

        Side by side: from orders, as at first; and near the best sequence, in chains, far from it,
        and one by one. Each time with other random numbers.
        """
        if math.isinf(self._deadline_s):
            return best
        effort = self._effort
        schedules = (effort.explore, effort.polish, *itertools.chain(*effort.begins))
        for number in itertools.count(1):
            if self._searches.costs_no_more(best, least) or time.monotonic() > end_s:
                break
            if not self._searches.is_finished:
                break
            before = rank(best)
            # Both take about as long.
            near = partial(self._go_on, self._searches.state(room, -number), best)
            anew = self._far.anew(room, [effort.rounds + number - 1])
            with self._searches.telling(f"searching on, round {number}", schedules):
                best = self._searches.side_by_side([near, *anew])
            if rank(best) < before:
                self._searches.tell(best)
        return best

    def _go_on(self, state: State, best: Best) -> Best:
        """What is found near a sequence, and not so near."""
        for schedule in (self._effort.explore, self._effort.polish):
            self._searches.improve(state, best, schedule)
        return best

    def _least_cost(self, best: Best, room: int) -> int:
        """What every plan costs at least on top of everything once, as far as it is known."""
        least = self.bounds.extra_cost(room)
        if best.numbers[1] or self._searches.costs_no_more(best, least):
            return least
        return self._frontiers.extra_cost(room, least)

    @cached_property
    def _frontiers(self) -> Frontiers:
        return Frontiers(self._problem)

    def _refine(self, best: Best, room: int, least: int) -> tuple[int, bool]:
        """Let CP-SAT go on from the best sequence.

        Returns:
            What every plan costs at least on top of everything once, and whether there is none.
        """
        extra_cost = int(best.numbers[2]) - self._graph.base_cost
        if self._searches.costs_no_more(best, least):
            return least, False
        steps = steps_of(best)
        refined = refine_apart(
            Call(
                problem=self._problem,
                bounds=self.bounds,
                seed=self._seed,
                left_s=self._deadline_s - time.monotonic(),
                operations=steps.operations.tolist(),
                swapped=steps.swapped.tolist(),
                room=room,
                spare_cost=None if best.numbers[1] else extra_cost,
                least_cost=least,
            )
        )
        found = Steps(np.array(refined.operations), np.array(refined.swapped))
        self._searches.offer(self._searches.state(room), best, found)
        self._searches.is_finished &= refined.is_finished
        return max(least, refined.extra_cost), refined.is_impossible

    @cached_property
    def lowest(self) -> Steps:
        """The sequence with the lowest peak that a search for less and less finds.

        It depends on the graph and the seed alone: what is refused below its peak is planned there.
        """
        steps = self._lowest_constructed()
        schedules = [schedule for _, schedule in self._effort.lower]
        with self._searches.telling("looking for the lowest peak", schedules):
            for share, schedule in self._effort.lower:
                budget_bytes = max(self.bounds.least_bytes, int(self._peak(steps) * share))
                state = self._searches.state(budget_bytes)
                best = self._searches.anneal_from(state, steps, schedule)
                steps = min(steps, steps_of(best), key=self._peak)
        return steps

    def _lowest_constructed(self) -> Steps:
        """Of the plans to start from, for budgets that are halved or not, the lowest one."""
        low, high = self.bounds.least_bytes, self._peak(unchanged(self._graph.order))
        found = min(self._constructed(low), key=self._peak)
        for _ in range(self._effort.bisections):
            room = (low + high) // 2
            steps = min(self._constructed(room), key=self._peak)
            low, high = (low, room) if self._peak(steps) <= room else (room, high)
            found = min(found, steps, key=self._peak)
        return found

    @property
    def lowest_bytes(self) -> int:
        """The lowest peak that was found, everything included."""
        return self._peak(self.lowest) + self._graph.held_bytes

    def _refusal(self, budget_bytes: int, *, is_impossible: bool) -> BudgetError:
        """Why there is no plan: the lowest peak found, the bound, and what needs it."""
        found = f"no plan was found within {budget_bytes:,} bytes"
        if is_impossible:
            found = (
                f"there is no plan within {budget_bytes:,} bytes: it was proved for all that "
                f"compute nothing more than {COPIES} times"
            )
        least_bytes = self.bounds.least_bytes + self._graph.held_bytes
        node = self._graph.ids[self.bounds.floor]
        return BudgetError(
            f"{found}. The lowest peak found is {self.lowest_bytes:,} bytes, and no plan needs "
            f"less than {least_bytes:,}, which is what node {node} needs: its inputs and outputs, "
            f"{self._graph.held_bytes:,} bytes that are held throughout, and what cannot be "
            "recomputed",
            budget_bytes,
            self.lowest_bytes,
            self._plan_of(self.lowest, self.lowest_bytes, self._graph.base_cost),
        )

    def _constructed(self, room: int) -> Iterator[Steps]:
        yield from self._starts.within(room)
        yield from self._starts.others(room)

    def _peak(self, steps: Steps) -> int:
        """The peak of a sequence, without what is held throughout."""
        fill(self._problem, self._measured, *steps)
        return int(self._measured.bytes_at[: len(steps.operations) + 1].max())


@cache
def prepare() -> None:
    """Load the compiled loops, or compile them once on a machine, for who counts seconds."""
    first = Operation(1, (8,))
    middle = Operation(1, (8,), inputs=((0, 0),))
    last = Operation(1, (8,), inputs=((0, 0), (1, 0)), kept=(0,))
    graph = CostGraph.build([first, middle, last])
    Planner(graph, effort=Effort.of(graph.operation_count, rounds=1)).search(1)
