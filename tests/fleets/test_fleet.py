"""Fleets in processes of this machine: what comes out, and what is not done again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from support.commands import assert_one_line, run

import memopt
import memopt.cli
from memopt.fleets.manifest import JOURNAL, Manifest
from memopt.fleets.tasks import FleetOptions
from memopt.fleets.work import RewriteOrder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.fleets.report import FleetReport, FleetTask

SCHEMA = json.loads((Path(memopt.cli.__file__).parent / "output.schema.json").read_text())
JOBS = 2
ALGORITHM = "standard"
"""The quickest; all go the same way."""


def contents(folder: Path) -> dict[str, bytes]:
    """All results of a fleet."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != JOURNAL
    }


def by_name(report: FleetReport) -> Mapping[tuple[str, str], FleetTask]:
    return {(Path(task.model).name, task.budget): task for task in report.tasks}


def fleet(models: Path, names: str, out: Path, budgets: str = "60%", **options: Any) -> FleetReport:
    paths = [models / name for name in names.split()]
    return memopt.fleet(paths, out, budgets=budgets, jobs=JOBS, algorithm=ALGORITHM, **options)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out") / "fleet"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return []


@pytest.fixture(scope="module")
def report(models: Path, out: Path, lines: list[str]) -> FleetReport:
    """The models within two budgets, one of them so small that nothing keeps it."""
    names = "step.pb broken.pb network"
    return fleet(models, names, out, "60%,200000", progress=lines.append)


def test_results_are_those_of_one_process(
    report: FleetReport, models: Path, out: Path, tmp_path: Path
) -> None:
    done = {(Path(task.model).name, task.budget) for task in report.tasks if task.is_done}
    assert done == {("step.pb", "60%"), ("network", "60%")}
    memopt.optimize_saved_model(
        models / "network", tmp_path / "network", budget="60%", algorithm=ALGORITHM
    )
    assert contents(out / "network" / "60pct") == contents(tmp_path / "network")
    result = memopt.optimize(models / "step.pb", budget="60%", algorithm=ALGORITHM)
    graph_def = result.graph_def.SerializeToString(deterministic=True)
    assert graph_def in (out / "step" / "60pct.pb").read_bytes()


def test_what_fails_has_its_reason(report: FleetReport, models: Path) -> None:
    tasks = by_name(report)
    assert {(task.model, task.kind) for task in report.failed} == {
        (str(models / "broken.pb"), "refused"),
        (str(models / "step.pb"), "budget"),
        (str(models / "network"), "budget"),
    }
    assert "holds no graph" in tasks["broken.pb", "60%"].reason
    for name in ("step.pb", "network"):
        found = tasks[name, "200000"].largest
        assert 0 < found["floor_bytes"] <= found["peak_after_bytes"] < found["peak_before_bytes"]


def test_progress_is_told_once_for_each_task(report: FleetReport, lines: list[str]) -> None:
    assert len(lines) == len(report.tasks)
    assert lines[-1].startswith("6/6, 4 failed: ")
    assert any("left" in line for line in lines[:-1])


def test_figures_are_those_of_a_single_rewriting(report: FleetReport, models: Path) -> None:
    found = by_name(report)["step.pb", "60%"].largest
    runtime = memopt.optimize(models / "step.pb", budget="60%", algorithm=ALGORITHM).report.runtime
    assert runtime is not None
    assert found["peak_before_bytes"] == runtime.before.peak_bytes
    assert found["peak_after_bytes"] == runtime.after.peak_bytes
    assert found["overhead"] >= 0


def test_what_is_done_is_not_done_again(report: FleetReport, models: Path, out: Path) -> None:
    before, stamps = contents(out), _stamps(out)
    again = fleet(models, "step.pb network", out, "60%,200000")
    assert not any(task.is_new for task in again.tasks)
    assert (contents(out), _stamps(out)) == (before, stamps)
    earlier = by_name(report)
    for key, task in by_name(again).items():
        assert task.functions == earlier[key].functions
        assert task.output == earlier[key].output


@pytest.mark.parametrize("damage", ["changed", "gone", "more", "forgotten", "cut"])
def test_what_is_damaged_is_done_again(
    report: FleetReport, models: Path, out: Path, tmp_path: Path, damage: str
) -> None:
    """Only that: the other result is left as it is."""
    assert report.tasks
    folder = tmp_path / "copy"
    shutil.copytree(out, folder)
    before = contents(folder)
    _damage(folder, damage)
    again = by_name(fleet(models, "step.pb network", folder))
    assert again["network", "60%"].is_new == (damage == "more")
    assert again["step.pb", "60%"].is_new == (damage != "more")
    assert contents(folder) == before


def test_other_wishes_and_models_are_done_again(
    report: FleetReport, models: Path, out: Path, tmp_path: Path
) -> None:
    assert report.tasks
    folder = tmp_path / "copy"
    shutil.copytree(out, folder)
    step = tmp_path / "step.pb"
    shutil.copyfile(models / "step.pb", step)
    assert not fleet(tmp_path, "step.pb", folder).tasks[0].is_new
    smaller = memopt.io.read_graph(str(step))
    smaller.message.graph_def.node[0].attr["_changed"].i = 1
    memopt.io.write_graph(smaller, str(step))
    assert fleet(tmp_path, "step.pb", folder).tasks[0].is_new
    other = ["ordering{smallest_bytes=1}"]
    assert fleet(tmp_path, "step.pb", folder, pass_options=other).tasks[0].is_new


def test_shapes_are_put_in_and_models_are_copied_from_elsewhere(
    models: Path, tmp_path: Path
) -> None:
    import tensorflow as tf

    place = "ram://fleet/open.pbtxt"
    tf.io.gfile.makedirs("ram://fleet")
    tf.io.gfile.copy(str(models / "open.pbtxt"), place, overwrite=True)
    shapes = [{"x": (32, 16)}, {"x": (512, 16)}, {"x": (2, 2)}]
    made = memopt.fleet([place], tmp_path / "out", budgets="70%", shapes=shapes, jobs=JOBS)
    small, large, wrong = made.tasks
    assert small.largest["peak_before_bytes"] < large.largest["peak_before_bytes"]
    assert large.output == str(tmp_path / "out" / "open" / "70pct_x-512x16.pbtxt")
    assert wrong.kind == "refused"
    assert "[2, 2] is not" in wrong.reason
    tight = memopt.fleet([place], tmp_path / "tight", budgets="70%", jobs=JOBS, copy_limit=100)
    assert f"{place}: is larger than what may be copied" in tight.tasks[0].reason


def test_two_fleets_do_not_work_in_one_folder(models: Path, tmp_path: Path) -> None:
    with Manifest(tmp_path / "out"):
        ended = run("fleet", models / "step.pb", "--budget", "60%", "-o", tmp_path / "out")
    assert_one_line(ended, "another fleet works in it")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "result", "made"),
    [("step.pb", "step/60pct.pb", "graph.pb"), ("network", "network/60pct", "")],
)
def test_what_is_verified_is_the_same(  # noqa: PLR0913, PLR0917 - fixtures
    report: FleetReport, models: Path, out: Path, tmp_path: Path, name: str, result: str, made: str
) -> None:
    assert report.tasks
    options = FleetOptions(verify=True, algorithm=ALGORITHM)
    folder = tmp_path / "folder"
    folder.mkdir()
    assert RewriteOrder(str(models / name), str(folder), "60%", "", options).perform()["verified"]
    for path in folder.iterdir():
        there = out / result if made else out / result / path.name
        assert path.read_bytes() == there.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_folder_of_something_else_is_left_alone(models: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    ended = run("fleet", models / "step.pb", "--budget", "60%", "-o", tmp_path)
    assert_one_line(ended, "holds something else than a fleet's results")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_command_writes_a_table_and_a_page(
    report: FleetReport, models: Path, out: Path, tmp_path: Path
) -> None:
    arguments = [models / "step.pb", models / "broken.pb", "-o", out, "--budget", "60%"]
    arguments += ["--algorithm", ALGORITHM]
    ended = run("fleet", *arguments, "--report", tmp_path / "fleet.html", "--jobs", 1)
    assert (ended.status, ended.errors) == (3, "")
    assert "was done" in ended.output
    assert "FAILED broken.pb 60%: " in ended.output
    page = (tmp_path / "fleet.html").read_text()
    assert "FAILED: refused" in page
    assert "There is no memory" not in page
    again = run("fleet", *arguments[:1], *arguments[2:], "--json", "--progress", "plain")
    assert again.status == 0
    plain = json.loads(again.output)
    assert (plain["done"], plain["failed"], plain["format"]) == (1, 0, 1)
    assert plain["tasks"][0] == by_name(report)["step.pb", "60%"].to_json() | {
        "is_new": False,
        "seconds": 0.0,
    }
    for one in (plain, report.to_json()):
        jsonschema.validate(one, {**SCHEMA, "anyOf": [{"$ref": "#/$defs/commands/fleet"}]})


def test_wrong_usage_is_said_before_the_work(models: Path, tmp_path: Path) -> None:
    for wrong in (["--budget", "much"], ["--budget", "60%", "--algorithm", "none"], []):
        ended = run("fleet", models / "step.pb", "-o", tmp_path / "out", *wrong)
        assert ended.status in (1, 2)
        assert not (tmp_path / "out").exists()


def _stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def _damage(folder: Path, damage: str) -> None:
    step, journal = folder / "step" / "60pct.pb", folder / JOURNAL
    if damage == "changed":
        step.write_bytes(step.read_bytes()[::-1])
    elif damage == "gone":
        step.unlink()
    elif damage == "more":
        (folder / "network" / "60pct" / "assets" / "more").touch()
    elif damage == "forgotten":
        lines = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join(one for one in lines if b'"step/60pct"' not in one))
    else:
        # As if the machine had gone down while the line was written.
        lines = [one for one in journal.read_bytes().splitlines() if b'"step/60pct"' not in one]
        (cut,) = (one for one in journal.read_bytes().splitlines() if b'"step/60pct"' in one)
        journal.write_bytes(b"\n".join([*lines, cut[: len(cut) // 2]]))
