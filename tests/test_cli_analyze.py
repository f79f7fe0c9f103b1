"""`memopt analyze` as a person meets it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.bad_inputs import BadInput, bad_graph_files, graph_def_of
from support.commands import assert_one_line, run, run_installed
from support.steps import tiny_step

from memopt.analysis import analyze
from memopt.io import save

if TYPE_CHECKING:
    from pathlib import Path

GPU = "GPU:0=GPU:16GiB"
CPU = "CPU:0=CPU"
HELD = """
x = Placeholder() {dtype=float, shape=[256,256]} @/gpu:0
kept = Exp(x) {T=float} @/gpu:0
a = MatMul(kept, x) {T=float} @/gpu:0
b = MatMul(a, a) {T=float} @/gpu:0
block/end = Mul(b, kept) {T=float} @/gpu:0
there = Neg(block/end) {T=float} @/cpu:0
"""
"""A step of 256 KiB matrices; `kept` is read once early and once late, `end` goes to the CPU."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def step_file(folder: Path) -> Path:
    path = folder / "step.pb"
    save(tiny_step("mlp").function, str(path))
    return path


@pytest.fixture(scope="module")
def held_file(folder: Path) -> Path:
    path = folder / "held.pb"
    save(graph_def_of(HELD), str(path))
    return path


def test_the_tables_say_where_the_memory_goes(held_file: Path) -> None:
    ended = run("analyze", held_file, "--device", GPU, "--device", CPU, "--fetch", "there:0")
    assert (ended.status, ended.errors) == (0, "")
    lines = {line.replace("\u2502", "|").strip() for line in ended.output.splitlines()}
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    # x, kept, and what a product reads and makes are there together.
    assert any(row[1:4] == ["GPU:0", "16384.00 MiB", "1.00 MiB"] for row in rows)
    assert any(
        row[1:4] == ["kept:0", "0.25 MiB", "Exp"] and row[4:6] == ["a", "block/end"] for row in rows
    )
    assert "GPU:0: live at the peak, 4 tensors" in ended.output
    assert "critical path: " in ended.output


def test_json_is_the_analysis(step_file: Path) -> None:
    ended = run("analyze", step_file, "--device", GPU, "--json")
    assert (ended.status, ended.errors) == (0, "")
    plain = json.loads(ended.output)
    assert plain == analyze(str(step_file), devices=[GPU]).to_json()
    (device,) = plain["devices"]
    assert device["peak_bytes"] == sum(use["size_bytes"] for use in device["live"]) > 0
    assert device["costs"]["persistent_bytes"] > 0


def test_the_timeline_is_written_as_run_metadata(step_file: Path, tmp_path: Path) -> None:
    from tensorflow.core.protobuf.config_pb2 import RunMetadata

    path = tmp_path / "stats.pb"
    ended = run("analyze", step_file, "--device", GPU, "--step-stats", path)
    assert ended.status == 0
    metadata = RunMetadata.FromString(path.read_bytes())
    assert metadata == analyze(str(step_file), devices=[GPU]).run_metadata()
    assert {stats.device.rpartition("/")[2] for stats in metadata.step_stats.dev_stats} == {
        "device:GPU:0"
    }


def test_no_more_tensors_are_shown_than_asked_for(step_file: Path) -> None:
    several = run("analyze", step_file, "--device", GPU, "--top", "3").output
    assert " more " in several
    assert "live at the peak" in several
    assert "live at the peak" not in run("analyze", step_file, "--device", GPU, "--top", "0").output


@pytest.mark.parametrize("manager", ["FirstReady", "FIFO", "LIFO", "Composite"])
def test_ready_nodes_are_taken_in_the_order_asked_for(manager: str, step_file: Path) -> None:
    ended = run("analyze", step_file, "--device", GPU, "--ready-nodes", manager, "--json")
    assert ended.status == 0
    assert json.loads(ended.output)["devices"][0]["peak_bytes"] > 0


def test_transfers_take_time_when_asked_for(held_file: Path) -> None:
    def critical_path_ns(*options: str) -> int:
        devices = ("--device", GPU + ",link=1GB/s", "--device", CPU)
        ended = run("analyze", held_file, *devices, "--fetch", "there:0", "--json", *options)
        path_ns: int = json.loads(ended.output)["critical_path_ns"]
        return path_ns

    # 256 KiB at 1 GB/s.
    assert critical_path_ns("--transfer-times") > critical_path_ns() + 200_000


def test_times_come_from_a_table(held_file: Path, tmp_path: Path) -> None:
    table = tmp_path / "times.json"
    table.write_text(json.dumps({"ops": {"MatMul": 5_000_000}}))
    options = ("--device", GPU, "--device", CPU, "--fetch", "there:0", "--json")
    ended = run("analyze", held_file, *options, "--costs", table)
    assert ended.status == 0
    assert json.loads(ended.output)["critical_path_ns"] > 10_000_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fetch", "nowhere:0"), "nowhere"),
        (("--costs", "missing.json"), r"missing\.json"),
        (("--step-stats", "missing/stats.pb"), "cannot be written: "),
    ],
)
def test_what_cannot_be_done_is_one_line(
    options: tuple[str, ...], message: str, step_file: Path
) -> None:
    assert_one_line(run("analyze", step_file, "--device", GPU, *options), message)


def test_every_bad_file_is_one_line(step_file: Path, tmp_path: Path) -> None:
    bad: dict[str, BadInput] = bad_graph_files(tmp_path, step_file.read_bytes())
    for one in bad.values():
        assert_one_line(run("analyze", one.path, "--device", GPU), one.message)


@pytest.mark.parametrize("level", ["heuristics", "improved_heuristics"])
@pytest.mark.parametrize("model", ["bert", "lstm", "unet", "mobilenetv2"])
def test_a_models_file_is_analyzed_before_and_after_a_rewrite(
    model: str, level: str, tmp_path: Path
) -> None:
    before, after = tmp_path / "before.pb", tmp_path / "after.pb"
    save(tiny_step(model).function, str(before))
    peak_bytes = json.loads(run("analyze", before, "--device", GPU, "--json").output)["devices"][0][
        "peak_bytes"
    ]
    device = ("--device", f"GPU:0=GPU:{peak_bytes // 2}")
    ended = run("optimize", before, "-o", after, "--level", level, *device, "--json")
    assert (ended.status, ended.errors) == (0, "")
    report = json.loads(ended.output)["report"]
    assert not any(done["failure"] for done in report["passes"])
    analyzed = run("analyze", after, *device, "--json")
    assert analyzed.status == 0
    (peak_after_bytes,) = report["peak_after_bytes"].values()
    assert json.loads(analyzed.output)["devices"][0]["peak_bytes"] == peak_after_bytes


@pytest.mark.slow
def test_the_installed_command_prints_plain_text_into_a_pipe(held_file: Path) -> None:
    ended = run_installed("analyze", held_file, "--device", GPU, "--fetch", "there:0")
    assert (ended.status, ended.errors) == (0, "")
    assert "\x1b" not in ended.output
    assert "simulated step" in ended.output
