"""Searches whose plans are made by other processes: same plans, same sizes, plain errors."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.commands import run
from support.cost_graphs import random_graph
from support.layered_graphs import layered_graph
from support.steps import save_open_step

import memopt
from memopt.costs.fixed import FixedCosts
from memopt.costs.kernel_costs import KernelCosts
from memopt.errors import MemoptError, OptionsError
from memopt.fitting.dimensions import find_dimensions
from memopt.fitting.elsewhere import probes_on
from memopt.fitting.planner import SizePlanner
from memopt.io import as_item
from memopt.planning.sweep import Sweep
from memopt.workers.places import Places
from memopt.workers.plan_order import PlanOrder
from memopt.workers.sweeping import plan_on

if TYPE_CHECKING:
    from pathlib import Path

SOON_S = 0.001


@pytest.fixture(scope="module")
def step_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_open_step(tmp_path_factory.mktemp("files"))


@pytest.mark.slow
def test_a_sweep_has_the_same_plans_wherever_they_are_made() -> None:
    graph = layered_graph(80, seed=2)
    here, there = (memopt.sweep(graph, budgets=5, jobs=jobs) for jobs in (None, 2))
    assert [replace(plan, seconds=0) for plan in here] == [
        replace(plan, seconds=0) for plan in there
    ]
    assert here[0].overhead > 0


def test_a_sweep_elsewhere_ends_in_time_with_a_plan() -> None:
    plans = memopt.sweep(layered_graph(60, seed=2), jobs=1, time_limit_s=0)
    assert len(plans) >= 1
    assert plans[0].status == "time limit"


def test_a_process_that_takes_too_long_says_for_which_budget() -> None:
    sweep = Sweep(layered_graph(60, seed=2))
    limits = [sweep.planner.lowest_bytes]
    with pytest.raises(MemoptError, match=rf"no plan for {limits[0]:,} bytes: no answer within"):
        list(plan_on(Places(1, timeout_s=SOON_S), sweep, limits))


def test_the_command_sweeps_in_processes(tmp_path: Path) -> None:
    source, plans = tmp_path / "graph.json", tmp_path / "plans.json"
    source.write_text(json.dumps(random_graph(3, 9).to_json()), encoding="utf-8")
    done = run("plan", source, "--sweep", "--jobs", 2, "-o", plans)
    assert done.status == 0, done.errors
    assert len(json.loads(plans.read_text(encoding="utf-8"))) == 20


def test_one_plan_is_made_in_this_process(tmp_path: Path) -> None:
    done = run("plan", tmp_path / "graph.json", "--budget", "0.5", "--jobs", 2)
    assert done.status == 2
    assert "--sweep" in done.errors


@pytest.mark.slow
def test_the_size_that_fits_is_the_same_wherever_sizes_are_planned(step_file: str) -> None:
    options = {"max_overhead": "40%", "run": False, "multiple_of": 256}
    here = memopt.fit(step_file, "8MiB", **options)  # type: ignore[arg-type]  # of several kinds
    there = memopt.fit(step_file, "8MiB", jobs=2, **options)  # type: ignore[arg-type]
    assert (there.size, there.free_size) == (here.size, here.free_size)
    assert there.graph_def.SerializeToString(deterministic=True) == (
        here.graph_def.SerializeToString(deterministic=True)
    )
    both = {(one.size, one.is_quick) for one in here.probes} & {
        (one.size, one.is_quick) for one in there.probes
    }
    found = [
        {(one.size, one.is_quick): one for one in fit.probes if (one.size, one.is_quick) in both}
        for fit in (here, there)
    ]
    assert found[0] == found[1]
    assert both


def test_a_size_that_takes_too_long_is_named(step_file: str) -> None:
    item = as_item(step_file)
    planner = SizePlanner(item, find_dimensions(item), 8 << 20, 0.4, "auto", lambda _: None)
    with (
        probes_on(Places(1, timeout_s=SOON_S), planner) as elsewhere,
        pytest.raises(MemoptError, match="size 512 could not be planned: no answer within"),
    ):
        list(elsewhere.probe_each(planner, [512], is_quick=True))


def test_costs_that_are_a_model_stay_in_their_process(step_file: str) -> None:
    with pytest.raises(OptionsError, match="a name or a file"):
        memopt.fit(step_file, "8MiB", costs=FixedCosts(KernelCosts()), jobs=1, run=False)


@pytest.mark.parametrize("jobs", [0, -1, True])
def test_bad_numbers_of_processes(jobs: int) -> None:
    with pytest.raises(OptionsError, match="jobs"):
        memopt.sweep(layered_graph(20, seed=1), jobs=jobs)


def test_an_order_for_a_plan_is_plain_data() -> None:
    order = PlanOrder("graph.json", 1000, 3, True, 1.5, (0, 1, 2, 1), (0, 0, 0, 1), "out")
    assert PlanOrder.from_json(json.loads(json.dumps(order.to_json()))) == order
