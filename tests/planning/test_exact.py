"""CP-SAT proves what the least cost is, or that there is no plan; windows only improve."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cost_graphs import least_cost, plain_graph, random_graph
from support.exhaustive import least_cost_of
from support.layered_graphs import layered_graph

import memopt
from memopt.errors import BudgetError, OptionsError
from memopt.planning.bounds import Bounds
from memopt.planning.checker import Judgement, judge
from memopt.planning.cost_graph import CostGraph, Operation
from memopt.planning.exact.lives import lives_of, reads_of
from memopt.planning.exact.solving import Answer
from memopt.planning.exact.whole import find_limits, solve_whole
from memopt.planning.exact.windows import Windows
from memopt.planning.planner import plan_graph
from memopt.planning.problem import problem_of

_ALWAYS = float("inf")


def solve(graph: CostGraph, budget_bytes: int) -> Answer:
    """All of a graph from its own order, whatever that needs."""
    problem = problem_of(graph)
    return solve_whole(
        problem,
        reads_of(problem),
        Bounds(problem, graph.order),
        budget_bytes - graph.held_bytes,
        (graph.order.tolist(), [0] * graph.operation_count),
        spare_cost=None,
        work=20,
        seed=0,
        deadline_s=_ALWAYS,
    )


def judged(graph: CostGraph, steps: list[tuple[int, int]]) -> Judgement:
    swaps = [at for at, (_, is_swap) in enumerate(steps) if is_swap]
    return judge(graph, [op for op, _ in steps], swaps)


def check(graph: CostGraph, answer: Answer, budget_bytes: int, least: int | None) -> None:
    """The answer is the one that trying everything gives."""
    assert answer.is_impossible == (least is None)
    if least is None:
        assert answer.found is None
        return
    assert answer.found is not None
    found = judged(graph, answer.found.steps)
    assert found.peak_bytes <= budget_bytes
    assert (found.cost, graph.base_cost + answer.least) == (least, least)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("share", [0.85, 0.6])
def test_plain_graphs_are_solved(seed: int, share: float) -> None:
    graph = plain_graph(seed)
    budget_bytes = int(judge(graph, graph.order.tolist()).peak_bytes * share)
    check(graph, solve(graph, budget_bytes), budget_bytes, least_cost(graph, budget_bytes))


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 10_000), share=st.floats(0.4, 1.0))
def test_graphs_with_everything_in_them_are_solved(seed: int, share: float) -> None:
    graph = random_graph(seed, most_operations=6)
    budget_bytes = int(judge(graph, graph.order.tolist()).peak_bytes * share)
    check(graph, solve(graph, budget_bytes), budget_bytes, least_cost_of(graph, budget_bytes))
