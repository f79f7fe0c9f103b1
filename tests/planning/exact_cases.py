"""CP-SAT proves what the least cost is, or that there is no plan; windows only improve.

`test_exact` runs these in a process without TensorFlow, whose libraries CP-SAT cannot stand.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cost_graphs import as_plain, least_cost, plain_graph, random_graph
from support.exhaustive import least_cost_of
from support.layered_graphs import layered_graph

import memopt
from memopt.errors import BudgetError, OptionsError
from memopt.planning.bounds import Bounds
from memopt.planning.checker import Judgement, judge
from memopt.planning.cost_graph import CostGraph, Operation
from memopt.planning.exact.live_ranges import lives_of, reads_of
from memopt.planning.exact.whole_problem import find_limits, solve_whole
from memopt.planning.exact.windows import Windows
from memopt.planning.planner import Planner, plan_graph
from memopt.planning.problem import problem_of
from memopt.planning.search_effort import Effort

if TYPE_CHECKING:
    from memopt.planning.exact.cp_sat import Answer


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
        least_cost=0,
        work=20,
        seed=0,
        deadline_s=math.inf,
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
@given(seed=st.integers(0, 10_000), saved_bytes=st.integers(0, 12))
def test_graphs_with_everything_in_them_are_solved(seed: int, saved_bytes: int) -> None:
    graph = random_graph(seed, most_operations=7)
    budget_bytes = judge(graph, graph.order.tolist()).peak_bytes - saved_bytes
    check(graph, solve(graph, budget_bytes), budget_bytes, least_cost_of(graph, budget_bytes))


@pytest.mark.parametrize("seed", range(10))
def test_plans_are_proved(seed: int) -> None:
    """What the search found is where the proof begins; it cannot be found wanting any more."""
    graph = random_graph(seed, most_operations=6)
    budget_bytes = judge(graph, graph.order.tolist()).peak_bytes - seed % 8
    least = least_cost_of(graph, budget_bytes)
    if least is None:
        with pytest.raises(BudgetError, match=r"there is no plan within .* proved"):
            plan_graph(graph, budget_bytes, exact=True)
        return
    plan = plan_graph(graph, budget_bytes, exact=True)
    assert (plan.cost, plan.lower_bound, plan.status) == (least, least, "optimal")
    assert judge(graph, plan.sequence, plan.swaps).peak_bytes <= budget_bytes


def test_more_is_found_than_by_the_search() -> None:
    """Where that is short; a long one finds the same, or not, by the seed."""
    graph = layered_graph(20, seed=2)
    budget_bytes = 7 * judge(graph, graph.order.tolist()).peak_bytes // 10
    short = Effort.of(graph.operation_count, edits_per_operation=1000)
    searched, exact = (
        Planner(graph, effort=short, exact=is_exact).plan(budget_bytes)
        for is_exact in (False, True)
    )
    assert exact.cost < searched.cost
    assert (exact.status, exact.gap) == ("optimal", 0)


def test_repetitions_are_limited_by_what_reads_them() -> None:
    """A chain that ends in one operation needs nothing twice; what two read, twice at most."""
    operations = [
        Operation(cost=1, output_bytes=(5,)),
        Operation(cost=1, output_bytes=(5,), inputs=((0, 0),)),
        Operation(cost=4, output_bytes=(5,), inputs=((1, 0),)),
        Operation(cost=1, output_bytes=(5,), inputs=((1, 0), (2, 0))),
    ]
    graph = CostGraph.build(operations)
    problem = problem_of(graph)
    limits = find_limits(problem, graph.order, spare_cost=None)
    assert [limits.copies[op] for op in range(4)] == [2, 2, 1, 1]
    assert limits.repeats == 2
    assert find_limits(problem, graph.order, spare_cost=1).repeats == 1


@pytest.mark.parametrize("seed", range(25))
def test_windows_never_make_a_plan_worse(seed: int) -> None:
    """Of sequences with needless repetitions, within what they need."""
    before, after = improved(seed)
    assert after.peak_bytes <= before.peak_bytes
    assert after.cost <= before.cost


def test_windows_save() -> None:
    """Together; one by one nothing may be left to save."""
    saved = 0
    for seed in range(12):
        before, after = improved(seed)
        saved += before.cost - after.cost
    assert saved > 50


def improved(seed: int) -> tuple[Judgement, Judgement]:
    """A graph's sequence with needless repetitions, and what windows make of it."""
    graph = random_graph(seed)
    problem = problem_of(graph)
    operations, swapped = repeated(graph, seed)
    before = judge(graph, operations, np.flatnonzero(swapped).tolist())
    windows = Windows(problem, reads_of(problem), before.peak_bytes, seed=seed, steps=7)
    found, found_swapped = windows.improve(operations, swapped, windows=8)
    return before, judge(graph, found, np.flatnonzero(found_swapped).tolist())


def repeated(graph: CostGraph, seed: int) -> tuple[list[int], list[int]]:
    """A graph's order with repetitions and swaps in wherever these are allowed."""
    draw = random.Random(seed)
    operations: list[int] = []
    swapped: list[int] = []
    for op in graph.order.tolist():
        operations.append(op)
        swapped.append(0)
        again = draw.choice(operations)
        each = graph.operations[again]
        if operations.count(again) > 2:
            continue
        if each.swap_cost and draw.random() < 0.3:
            operations.append(again)
            swapped.append(1)
        elif each.is_recomputable and not {*each.until} & {*operations}:
            operations.append(again)
            swapped.append(0)
    return operations, swapped


@pytest.mark.parametrize("seed", range(30))
def test_lives_are_those_of_the_checker(seed: int) -> None:
    graph = random_graph(seed)
    problem = problem_of(graph)
    operations, swapped = repeated(graph, seed)
    lives = lives_of(
        problem, reads_of(problem), [*operations, graph.operation_count], [*swapped, 0]
    )
    judgement = judge(graph, operations, np.flatnonzero(swapped).tolist())
    assert lives.step_bytes.tolist() == list(judgement.step_bytes)


def test_all_processes_find_the_same() -> None:
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "import memopt\n"
        "from support.layered_graphs import layered_graph\n"
        "plan = memopt.plan(layered_graph(26, 4), 0.7, seed=3, exact=True)\n"
        "print(plan.sequence, plan.cost, plan.lower_bound, plan.status)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(outputs) == 1


def test_a_time_limit_is_kept() -> None:
    graph = layered_graph(60, seed=1)
    try:
        plan = memopt.plan(graph, 0.8, time_limit_s=0.0, exact=True)
    except BudgetError:
        return
    assert plan.status == "time limit"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = layered_graph(12, seed=1)
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(OptionsError, match=r"pip install memopt\[exact\]"):
        memopt.plan(graph, 0.8, exact=True)
    with pytest.raises(OptionsError, match=r"pip install memopt\[exact\]"):
        memopt.sweep(graph, exact=True)
    assert memopt.plan(graph, 1.0).overhead == 0


def test_a_sweep_can_be_exact() -> None:
    graph = plain_graph(5)
    plans = memopt.sweep(graph, budgets=4, exact=True)
    assert {plan.status for plan in plans} == {"optimal"}
    assert [plan.cost for plan in plans] == [least_cost(graph, plan.budget_bytes) for plan in plans]


def test_the_command_plans_exactly(tmp_path: Path) -> None:
    source, target = tmp_path / "graph.json", tmp_path / "plan.json"
    graph = layered_graph(20, seed=2)
    source.write_text(json.dumps(as_plain(graph)), encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "memopt", "plan", str(source)),
            *("--budget", "0.7", "--exact", "-o", str(target)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "optimal" in done.stdout
    plan = json.loads(target.read_text(encoding="utf-8"))
    assert plan["cost"] == plan["lower_bound"]
    assert judge(graph, plan["sequence"], plan["swaps"]).peak_bytes <= plan["budget_bytes"]
