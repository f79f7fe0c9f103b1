"""`--report` as a person meets it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.commands import assert_one_line, run
from support.steps import tiny_step

from memopt.io import save
from memopt.report.page import rendering

if TYPE_CHECKING:
    from pathlib import Path

COST_GRAPH = {
    "nodes": [{"id": 0, "cost": 1, "size": 8}, {"id": 1, "cost": 1, "size": 4}],
    "edges": [[0, 1]],
    "order": [0, 1],
}


@pytest.fixture(scope="module")
def step_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "step.pb"
    save(tiny_step("mlp").function, str(path))
    return path


def test_optimize_writes_a_page(step_file: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out.pb", tmp_path / "page.html"
    ended = run("optimize", step_file, "-o", out, "--budget", "70%", "--report", page)
    assert (ended.status, ended.errors) == (0, "")
    text = page.read_text()
    assert "<h1>Optimization</h1>" in text
    assert "predicted, before" in text


def test_analyze_and_verify_write_pages(step_file: Path, tmp_path: Path) -> None:
    page, other = tmp_path / "page.html", tmp_path / "other.html"
    assert run("analyze", step_file, "--device", "CPU:0=CPU", "--report", page).status == 0
    assert "<h1>Memory analysis</h1>" in page.read_text()
    ended = run("verify", step_file, step_file, "--rounds", 0, "--steps", 1, "--report", other)
    assert ended.status == 0
    assert "<h1>Verification</h1>" in other.read_text()


def test_levels_that_simulate_show_their_devices(step_file: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out.pb", tmp_path / "page.html"
    device = "GPU:0=GPU:1MiB"
    ended = run("optimize", step_file, "-o", out, "--device", device, "--report", page)
    assert ended.status == 0
    assert "simulated peak of GPU:0" in page.read_text()


@pytest.mark.parametrize("command", ["optimize", "analyze", "verify"])
def test_a_place_in_no_folder_is_an_error_before_anything_is_written(
    command: str, step_file: Path, tmp_path: Path
) -> None:
    arguments: dict[str, tuple[object, ...]] = {
        "optimize": (step_file, "-o", tmp_path / "out.pb"),
        "analyze": (step_file,),
        "verify": (step_file, step_file),
    }
    ended = run(command, *arguments[command], "--report", tmp_path / "none" / "page.html")
    assert_one_line(ended, "none/page.html: cannot be written")
    assert list(tmp_path.iterdir()) == []


def test_without_what_draws_pages_the_command_says_so(
    step_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "_NEEDED", ("not_installed",))
    ended = run("analyze", step_file, "--report", tmp_path / "page.html")
    assert_one_line(ended, r"pip install memopt\[report\]")


def test_plans_write_pages(tmp_path: Path) -> None:
    graph, page = tmp_path / "graph.json", tmp_path / "page.html"
    graph.write_text(json.dumps(COST_GRAPH))
    ended = run("plan", graph, "--budget", 1.0, "--report", page)
    assert (ended.status, ended.errors) == (0, "")
    assert "planned, after" in page.read_text()
    assert run("plan", graph, "--sweep", "--report", page).status == 0
    assert "What budgets cost" in page.read_text()


def test_a_plan_that_is_not_found_has_a_page_of_what_comes_nearest(tmp_path: Path) -> None:
    graph, page = tmp_path / "graph.json", tmp_path / "page.html"
    graph.write_text(json.dumps(COST_GRAPH))
    ended = run("plan", graph, "--budget", "3", "--report", page)
    assert ended.status == 1
    assert ended.errors.endswith(f"(all of it: {page})\n")
    text = page.read_text()
    assert "<h1>A budget that cannot be kept</h1>" in text
    assert "lowest peak found" in text
