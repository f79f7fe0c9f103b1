"""Training steps as cost graphs: what they need in their order, and what comes out of plans."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.commands import assert_one_line, run
from support.steps import tiny_step

import memopt
from memopt.errors import InvalidGraphError, OptionsError
from memopt.models import MODELS
from memopt.planning.checker import judge
from memopt.planning.cost_graph import CostGraph

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("mlp", "lstm", "unet")
"""Models whose steps are read in no time."""


@pytest.fixture(scope="module")
def step_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("steps") / "step.pb")
    memopt.save(MODELS["mlp"](batch=1024, width=64, layers=8).function, path)
    return path


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in SMALL else pytest.mark.slow)
        for name in sorted(MODELS)
    ],
)
def test_its_peak_is_that_of_the_ordered_step(name: str) -> None:
    """But for what was folded, which together is less than a two-hundredth of it.

    Bodies of loops are ordered too there, and stay as they are here.
    """
    step = tiny_step(name).function
    graph = memopt.cost_graph(step)
    ordered = memopt.optimize(step, level="ordered").report.runtime
    assert ordered is not None
    peak_bytes = judge(graph, graph.order.tolist()).peak_bytes
    assert peak_bytes <= ordered.after.peak_bytes or name == "lstm"
    assert peak_bytes >= ordered.after.peak_bytes - 0.01 * ordered.after.step_peak_bytes
    assert CostGraph.from_json(graph.to_json()).to_json() == graph.to_json()


def test_a_step_is_planned_from_its_file(step_file: str, tmp_path: Path) -> None:
    """What is exported is what is planned, and its plan is about that of the step itself."""
    exported, out = tmp_path / "step.json", tmp_path / "plan.json"
    done = run("plan", step_file, "--budget", "60%", "--export", exported, "-o", out)
    assert (done.status, done.errors) == (0, "")
    found = json.loads(out.read_text(encoding="utf-8"))
    again = memopt.plan(str(exported), "60%")
    assert list(again.sequence) == found["sequence"]
    assert 0 < again.overhead < 0.5


def test_it_is_exported_without_a_plan(step_file: str, tmp_path: Path) -> None:
    done = run("plan", step_file, "--export", tmp_path / "step.json")
    assert (done.status, done.output, done.errors) == (0, "", "")
    graph = CostGraph.load(tmp_path / "step.json")
    assert graph.name == "step"
    assert graph.to_json() == memopt.cost_graph(step_file).to_json()


def test_what_is_no_step_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.pb").write_bytes(b"none")
    assert_one_line(run("plan", tmp_path / "no.pb", "--budget", "60%"), "holds no graph")
    with pytest.raises(InvalidGraphError, match="no operation that runs"):
        memopt.cost_graph(memopt.GrapplerItem(type(memopt.optimize(step_graph()).graph_def)()))


@pytest.mark.parametrize(
    "named", [{"fetch": ["nope:0"]}, {"fetch": ["nope"]}, {"feed": ["nope:0"]}]
)
def test_what_is_named_and_missing_is_told(step_file: str, named: dict[str, list[str]]) -> None:
    with pytest.raises(InvalidGraphError, match=r"'nope.*does not exist"):
        memopt.cost_graph(step_file, **named)  # type: ignore[arg-type]  # by name


def test_a_step_that_xla_compiles_is_refused() -> None:
    item = replace(step_graph(), compiled=True)
    with pytest.raises(OptionsError, match="XLA compiles"):
        memopt.cost_graph(item)


def step_graph() -> memopt.GrapplerItem:
    return memopt.GrapplerItem.from_concrete_function(tiny_step("mlp").function)
