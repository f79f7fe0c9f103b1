"""The whole curve of a cost graph: what plans cost at budgets from the lowest to the highest."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from memopt.errors import BudgetError
from memopt.planning.checker import judge
from memopt.planning.initial_plans import Steps
from memopt.planning.planner import Planner
from memopt.planning.search_effort import Effort
from memopt.progress import task

if TYPE_CHECKING:
    from memopt.planning.cost_graph import CostGraph
    from memopt.planning.plan import Plan

BUDGETS = 20


def sweep(
    graph: CostGraph,
    *,
    budgets: int = BUDGETS,
    seed: int = 0,
    time_limit_s: float = math.inf,
    exact: bool = False,
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

    Returns:
        A plan for each budget, the smallest budget first.
    """
    deadline_s = time.monotonic() + time_limit_s
    effort = Effort.of(graph.operation_count, rounds=1)
    planner = Planner(graph, seed, time_limit_s, effort=effort, exact=exact)
    index = {label: op for op, label in enumerate(graph.ids)}
    highest_bytes = judge(graph, graph.order.tolist()).peak_bytes
    lowest_bytes = min(planner.lowest_bytes, highest_bytes)
    plans: list[Plan] = []
    limits = np.linspace(lowest_bytes, highest_bytes, budgets).astype(np.int64)
    with task("budgets", budgets, time_limit_s) as under_way:
        for number, budget_bytes in enumerate(limits):
            if plans and time.monotonic() > deadline_s:
                break
            under_way.update(number)
            try:
                starts = [_steps(index, each) for each in plans[-1:]]
                share_s = (deadline_s - time.monotonic()) / (budgets - number)
                plans.append(planner.plan(int(budget_bytes), starts, most_s=share_s))
            except BudgetError:
                # Time was short.
                continue
    return tuple(_cheapest_within(plans, plan) for plan in plans)


def _steps(index: dict[int, int], plan: Plan) -> Steps:
    operations = np.array([index[label] for label in plan.sequence], np.int64)
    swapped = np.zeros_like(operations)
    swapped[list(plan.swaps)] = 1
    return Steps(operations, swapped)


def _cheapest_within(plans: list[Plan], plan: Plan) -> Plan:
    """The cheapest plan that keeps to another one's budget, as a plan for that."""
    fitting = [each for each in plans if each.peak_bytes <= plan.budget_bytes]
    return min(fitting, key=lambda each: each.cost).for_budget_of(plan)
