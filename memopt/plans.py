"""Plans of steps that are given as numbers, and steps as numbers: `plan`, `sweep`, `cost_graph`."""

from __future__ import annotations

import math
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.costs.choice import AUTO
from memopt.io import as_item, is_graph_file
from memopt.options import PlanBudget

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.costs.cost_model import CostModel
    from memopt.io import GraphSource
    from memopt.planning.cost_graph import CostGraph
    from memopt.planning.plan import Plan
    from memopt.planning.sweep import PlanEach

    CostGraphSource = CostGraph | Mapping[str, Any] | str | os.PathLike[str]


def plan(
    cost_graph: CostGraphSource,
    budget: PlanBudget | float | str,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    exact: bool = False,
) -> Plan:
    """Plan a step that is given as numbers: order, recomputation and swaps within a budget.

    The same cost graph, budget and seed give the same plan, unless the time limit is reached.

    Args:
        cost_graph: A cost graph, plain data as `CostGraph.from_json` takes it, a JSON file, or a
            graph file (.pb, .pbtxt, .meta), of which `cost_graph` makes one.
        budget: Bytes, everything included; or a share of what the cost graph's own order needs
            at its peak: 0.8, "80%".
        seed: Of the search.
        time_limit_s: Seconds after which to stop; `None` for as long as it takes.
        exact: Whether OR-Tools' CP-SAT goes on where the search ends (`memopt[exact]`): all of a
            small step in one model, which can prove that a plan is the cheapest, or that there is
            none; windows of a large one.

    Raises:
        OptionsError: The budget is none, or OR-Tools is asked for and not there.
        FileError: The file cannot be read.
        InvalidGraphError: It is no cost graph.
        BudgetError: No plan was found within the budget. It tells the lowest peak that was.
    """
    from memopt.planning.checker import judge
    from memopt.planning.planner import plan_graph

    limit = PlanBudget.parse(budget)
    graph = as_cost_graph(cost_graph)
    base = judge(graph, graph.order.tolist())
    return plan_graph(
        graph,
        limit.limit_bytes(base.peak_bytes),
        seed=seed,
        time_limit_s=math.inf if time_limit_s is None else time_limit_s,
        exact=exact,
    )


def sweep(  # noqa: PLR0913 - keywords, each with a default
    cost_graph: CostGraphSource,
    *,
    budgets: int = 20,
    seed: int = 0,
    time_limit_s: float | None = None,
    exact: bool = False,
    jobs: int | None = None,
    on: str | None = None,
) -> tuple[Plan, ...]:
    """Plan a step that is given as numbers at every budget, from the lowest peak that is found.

    A plan for one budget is kept for every larger one, so costs never rise with the budget.

    Args:
        cost_graph: As for `plan`.
        budgets: How many, at even distances, up to what the cost graph's own order needs.
        seed: Of the search.
        time_limit_s: Seconds after which to stop; budgets that were not come to are left out.
        exact: As for `plan`, at each budget.
        jobs: Plan for so many budgets at once, in processes of their own; one after another in this
            process if not given. The plans are the same.
        on: Plan on a Ray cluster at this address, see `ray.init`.

    Returns:
        A plan for each budget, the smallest budget first.

    Raises:
        OptionsError: OR-Tools is asked for and not there.
        FileError: The file cannot be read.
        InvalidGraphError: It is no cost graph.
        MemoptError: There is no Ray cluster at the address, or a process has failed.
    """
    from memopt.planning import sweep as sweeping
    from memopt.planning.plan import Plans

    return Plans(
        sweeping.sweep(
            as_cost_graph(cost_graph),
            budgets=budgets,
            seed=seed,
            time_limit_s=math.inf if time_limit_s is None else time_limit_s,
            exact=exact,
            plan_each=_plan_each(jobs, on),
        )
    )


def _plan_each(jobs: int | None, on: str | None) -> PlanEach | None:
    """What makes the plans of a sweep, if it is not this process."""
    if jobs is None and on is None:
        return None
    from memopt.workers.places import Places
    from memopt.workers.sweeping import plan_on

    return partial(plan_on, Places(jobs, on))


def cost_graph(
    graph: GraphSource,
    *,
    costs: CostModel | str = AUTO,
    fetch: Sequence[str] | None = None,
    feed: Sequence[str] | None = None,
) -> CostGraph:
    """A training step as numbers, as memopt's own planner sees it: to be planned, or kept as JSON.

    Bytes are those of TensorFlow's allocator with one operation at a time, costs nanoseconds. What
    holds next to nothing is folded into what is around it. The order is the one with the lowest
    peak that is found without recomputation. What a function or a loop's body needs counts as a
    part of who calls it.

    Args:
        graph: A GraphDef, MetaGraphDef, ConcreteFunction, path of a graph file, or GrapplerItem.
        costs: How long operations take; see `choose_planning_costs`.
        fetch: Tensors and operations that the caller asks for; found out if not given.
        feed: Tensors that the caller gives; found out if not given.

    Raises:
        FileError: The path holds no graph.
        InvalidGraphError: The graph breaks a rule, something named is missing, no operation runs,
            or sizes are not known.
        OptionsError: XLA compiles the function.
    """
    from memopt.step_cost_graph import cost_graph_of

    name = Path(graph).stem if isinstance(graph, (str, os.PathLike)) else ""
    return cost_graph_of(as_item(graph, fetch, feed), costs, name)


def as_cost_graph(source: CostGraphSource) -> CostGraph:
    """What `plan` takes, as a cost graph.

    Raises:
        FileError: The file cannot be read.
        InvalidGraphError: It is neither a cost graph nor a graph.
    """
    from memopt.planning.cost_graph import CostGraph

    if isinstance(source, CostGraph):
        return source
    if not isinstance(source, (str, os.PathLike)):
        return CostGraph.from_json(source)
    if is_graph_file(source):
        return cost_graph(source)
    return CostGraph.load(Path(source))
