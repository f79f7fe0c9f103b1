"""The whole curve of a cost graph: what plans cost at budgets from the lowest to the highest."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from memopt.planning.checker import judge
from memopt.planning.planner import Planner
from memopt.planning.search_effort import Effort
from memopt.progress import task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from memopt.planning.cost_graph import CostGraph
    from memopt.planning.initial_plans import Steps
    from memopt.planning.plan import Plan

    PlanEach = Callable[["Sweep", Sequence[int]], Iterable[Plan]]
    """Gives a plan of a sweep for each budget, in any order; some may be left out, not all."""

BUDGETS = 20


@dataclass(frozen=True)
class Sweep:
    """A graph that is planned for several budgets, for each by itself.

    So the same plans come out wherever each of them is made.

    Attributes:
        graph: What to plan.
        seed: Of the search.
        exact: Whether CP-SAT goes on where the search ends, at each budget.
        deadline_s: When to stop at the latest, by `time.monotonic`.
    """

    graph: CostGraph
    seed: int = 0
    exact: bool = False
    deadline_s: float = math.inf

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; 0 or less after it."""
        return self.deadline_s - time.monotonic()

    @cached_property
    def lowest(self) -> Steps:
        """The sequence with the lowest peak that is found, with which every search may begin."""
        return self.planner.lowest

    @cached_property
    def planner(self) -> Planner:
        """Of this process."""
        effort = Effort.of(self.graph.operation_count, rounds=1)
        return Planner(self.graph, self.seed, self.left_s, effort=effort, exact=self.exact)

    def plan(self, budget_bytes: int, lowest: Steps, most_s: float = math.inf) -> Plan:
        """A plan for one of the budgets.

        Args:
            budget_bytes: What may be in use at any step, everything included.
            lowest: See `lowest`; another process may have found it.
            most_s: For how long it goes on, where there is a time limit.
        """
        return self.planner.plan(budget_bytes, [lowest], most_s=most_s)


def sweep(
    graph: CostGraph,
    *,
    budgets: int = BUDGETS,
    seed: int = 0,
    time_limit_s: float = math.inf,
    exact: bool = False,
    plan_each: PlanEach | None = None,
) -> tuple[Plan, ...]:
    """Plans for budgets at even distances, from the lowest peak found to what the order needs.

    A plan for one budget is a plan for every larger one too, so the costs never rise with the
    budget.

    Args:
        graph: What to plan.
        budgets: How many.
        seed: Of the search.
        time_limit_s: When to stop at the latest; budgets that were not come to are left out.
        exact: Whether CP-SAT goes on where the search ends, at each budget.
        plan_each: Makes the plans; this process, one after another, if not given.

    Returns:
        A plan for each budget, the smallest budget first.
    """
    wanted = Sweep(graph, seed, exact, time.monotonic() + time_limit_s)
    highest_bytes = judge(graph, graph.order.tolist()).peak_bytes
    lowest_bytes = min(wanted.planner.lowest_bytes, highest_bytes)
    limits = np.linspace(lowest_bytes, highest_bytes, budgets).astype(np.int64).tolist()
    plans: list[Plan] = []
    with task("budgets", budgets, time_limit_s) as under_way:
        for plan in (plan_each or _plan_here)(wanted, limits):
            plans.append(plan)
            under_way.advance()
    plans.sort(key=lambda plan: plan.budget_bytes)
    return tuple(_cheapest_within(plans, plan) for plan in plans)


def _plan_here(wanted: Sweep, limits: Sequence[int]) -> Iterator[Plan]:
    for number, budget_bytes in enumerate(limits):
        if number and wanted.left_s <= 0:
            return
        yield wanted.plan(budget_bytes, wanted.lowest, wanted.left_s / (len(limits) - number))


def _cheapest_within(plans: list[Plan], plan: Plan) -> Plan:
    """The cheapest plan that keeps to another one's budget, as a plan for that."""
    fitting = [each for each in plans if each.peak_bytes <= plan.budget_bytes]
    return min(fitting, key=lambda each: each.cost).for_budget_of(plan)
