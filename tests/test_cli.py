"""The command line as a person meets it: what is printed, what is written, how it ends."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.bad_inputs import (
    NAMES,
    SHAPES_THAT_DO_NOT_FIT,
    BadInput,
    bad_graph_files,
    graph_def_of,
)
from support.commands import assert_one_line, run, run_installed
from support.steps import tiny_step

import memopt
import memopt.demo
from memopt.api import optimize
from memopt.cli import main
from memopt.io import GraphFile, meta_graph_of, read_graph, save, write_graph
from memopt.models import MODELS
from memopt.passes import PASSES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memopt.item import GrapplerItem

COMMANDS = (
    *("optimize", "analyze", "verify", "passes", "plan", "fit", "profile", "profile-kernels"),
    *("demo", "run", "doctor", "completion", "fleet"),
)
EVERYTHING = ("--target-scope", "auto", "--rule", "cost", "--all-ports")
ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def graph_file(folder: Path, tiny_item: Callable[[str], GrapplerItem]) -> Path:
    """A training step for sessions as a bare GraphDef."""
    path = folder / "graph.pb"
    save(tiny_item("convnet_v1").graph_def, str(path))
    return path


@pytest.fixture(scope="module")
def step_file(folder: Path) -> Path:
    """A training step that says what it is fed and what is fetched."""
    path = folder / "step.pb"
    save(tiny_step("mlp").function, str(path))
    return path


@pytest.fixture(scope="module")
def wrong_file(step_file: Path, folder: Path) -> Path:
    """The step with one gradient spoiled."""
    file = read_graph(str(step_file))
    spoiled = next(node for node in file.graph_def.node if node.op == "ReluGrad")
    spoiled.input[1] = spoiled.input[0]
    path = folder / "wrong.pb"
    write_graph(file, str(path))
    return path


@pytest.fixture(scope="module")
def bad_files(folder: Path, graph_file: Path) -> dict[str, BadInput]:
    bad = folder / "bad"
    bad.mkdir()
    return bad_graph_files(bad, graph_file.read_bytes())


def serialized(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


# --- optimize ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("kind", ["GraphDef", "MetaGraphDef"])
def test_a_graph_goes_from_file_to_file(
    kind: str, is_text: bool, tmp_path: Path, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    item = tiny_item("convnet_v1")
    message: Any = item.graph_def if kind == "GraphDef" else meta_graph_of(item)
    before, after = tmp_path / "before", tmp_path / "after"
    write_graph(GraphFile(message, is_text), str(before))

    ended = run("optimize", before, "-o", after)

    assert ended.status == 0
    assert ended.errors == ""
    result = optimize(message)
    assert result.report.modified
    file = read_graph(str(after))
    assert file == GraphFile(message, is_text).with_graph(result.graph_def)
    report = result.report
    assert ended.output.startswith("relax-allocator, main graph: ")
    assert "\nrecomputation, main graph: " in ended.output
    assert ended.output.endswith(
        f"{report.nodes_before} nodes in, {report.nodes_after} out: {after}\n"
    )
    assert ESCAPE not in ended.output


def test_the_output_may_be_the_input(tmp_path: Path, graph_file: Path) -> None:
    path = tmp_path / "graph.pb"
    shutil.copy(graph_file, path)
    assert run("optimize", path, "-o", path).status == 0
    assert read_graph(str(path)).graph_def == optimize(str(graph_file)).graph_def
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_the_report(tmp_path: Path, step_file: Path) -> None:
    ended = run("optimize", step_file, "-o", tmp_path / "out.pb", *EVERYTHING, "--json")
    assert (ended.status, ended.errors) == (0, "")
    plain = json.loads(ended.output)
    assert set(plain) == {"report"}
    expected = optimize(
        str(step_file), target_scope="auto", rule="cost", all_ports=True
    ).report.to_json()
    for report in (plain["report"], expected):
        for done in report["passes"]:
            assert done.pop("seconds") > 0
    assert plain["report"] == expected
    relaxed, recomputed, *repeated = expected["passes"]
    assert relaxed["name"] == "relax-allocator"
    assert recomputed["name"] == "recomputation{target_scope=auto,rule=cost,all_ports=true}"
    assert recomputed["edits"]
    assert [done["name"] for done in repeated] == ["addn-scheduling{running_sums=true}", "swapping"]


@pytest.mark.parametrize(
    ("level", "names"),
    [
        ("manual", ["recomputation{hints_only=true}", "swapping{heuristics=false}"]),
        ("Recomputation_Heuristics", ["recomputation"]),
        ("SWAPPING_heuristics", ["swapping"]),
    ],
)
def test_the_level_is_taken_in_any_case(
    level: str, names: list[str], tmp_path: Path, graph_file: Path
) -> None:
    ended = run("optimize", graph_file, "-o", tmp_path / "out.pb", "--level", level, "--json")
    done = json.loads(ended.output)["report"]["passes"]
    assert [report["name"] for report in done] == ["relax-allocator", *names]


def test_at_no_level_the_file_is_copied(tmp_path: Path, graph_file: Path) -> None:
    path = tmp_path / "out.pb"
    ended = run("optimize", graph_file, "-o", path, "--level", "NO_MEM_OPT")
    assert ended.status == 0
    assert path.read_bytes() == graph_file.read_bytes()


def test_named_fetches_feeds_and_kept_nodes_are_taken(tmp_path: Path, graph_file: Path) -> None:
    """Without the operation that sets the variables among the fetches, more can be done."""
    given = ("--fetch", "loss:0", "--fetch", "train", "--feed", "images:0", "--feed", "labels:0")
    paths = tmp_path / "without.pb", tmp_path / "with.pb"
    assert run("optimize", graph_file, "-o", paths[0]).status == 0
    assert run("optimize", graph_file, "-o", paths[1], *given, "--keep", "init").status == 0
    without, with_names = (len(read_graph(str(path)).graph_def.node) for path in paths)
    assert with_names > without


@pytest.mark.parametrize("option", ["--fetch", "--feed", "--keep"])
def test_names_that_are_not_in_the_graph_are_refused(
    option: str, tmp_path: Path, graph_file: Path
) -> None:
    path = tmp_path / "out.pb"
    ended = run("optimize", graph_file, "-o", path, option, "nowhere")
    assert_one_line(ended, "'nowhere' does not exist in the graph")
    assert not path.exists()


@pytest.mark.parametrize("name", NAMES)
def test_every_bad_input_is_one_line_and_nothing_is_written(
    name: str, bad_files: dict[str, BadInput], tmp_path: Path
) -> None:
    bad = bad_files[name]
    ended = run("optimize", bad.path, "-o", tmp_path / "out.pb")
    assert_one_line(ended, bad.message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [(), ("--json",), ("--rule", "cost")])
def test_shapes_that_do_not_fit_are_one_line_and_nothing_is_written(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    before, after = tmp_path / "before.pb", tmp_path / "after.pb"
    save(graph_def_of(SHAPES_THAT_DO_NOT_FIT), str(before))
    ended = run("optimize", before, "-o", after, *options)
    assert_one_line(ended, r"Dimensions must be equal.*node y")
    assert list(tmp_path.iterdir()) == [before]


@pytest.mark.parametrize("place", ["missing/out.pb", ".", "graph.pb/out.pb", "nowhere://out.pb"])
def test_a_place_that_cannot_be_written_to_is_one_line(
    place: str, tmp_path: Path, graph_file: Path
) -> None:
    shutil.copy(graph_file, tmp_path / "graph.pb")
    output = place if "://" in place else tmp_path / place
    assert_one_line(run("optimize", graph_file, "-o", output), "cannot be written: ")
    assert [path.name for path in tmp_path.iterdir()] == ["graph.pb"]


def test_what_was_verified_is_written_and_said(tmp_path: Path, step_file: Path) -> None:
    path = tmp_path / "out.pb"
    ended = run("optimize", step_file, "-o", path, *EVERYTHING, "--verify", "--json")
    assert (ended.status, ended.errors) == (0, "")
    plain = json.loads(ended.output)
    assert set(plain) == {"report", "verification"}
    assert plain["verification"]["equal"] is True
    assert plain["verification"]["original"]["peak_bytes"] > 0
    assert path.exists()


def test_what_does_not_verify_is_not_written(
    tmp_path: Path, step_file: Path, wrong_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the optimizer had spoiled the graph."""
    right = optimize

    def spoil(*arguments: Any, **options: Any) -> memopt.OptimizationResult:
        report = right(*arguments, **options).report
        return memopt.OptimizationResult(read_graph(str(wrong_file)).graph_def, report)

    monkeypatch.setattr("memopt.api.optimize", spoil)
    path = tmp_path / "out.pb"
    ended = run("optimize", step_file, "-o", path, "--verify")
    assert ended.status == 1
    *lines, last = ended.errors.splitlines()
    assert last == f"memopt: the rewritten graph computes something else; {path} not written"
    assert lines[0] == "NOT EQUAL over 3 steps:"
    assert ended.output == ""
    assert list(tmp_path.iterdir()) == []


# --- verify --------------------------------------------------------------------------------------


def test_equal_graphs_end_well(step_file: Path) -> None:
    ended = run("verify", step_file, step_file, "--steps", 1, "--rounds", 0)
    assert (ended.status, ended.errors) == (0, "")
    assert "equal: every output of 1 step and every variable afterwards" in ended.output
    assert ESCAPE not in ended.output


def test_different_graphs_end_with_status_1_and_what_differs(
    step_file: Path, wrong_file: Path
) -> None:
    ended = run("verify", step_file, wrong_file, "--steps", 1, "--rounds", 0)
    assert ended.errors == ""
    assert ended.status == 1
    assert "NOT EQUAL over 1 step:" in ended.output
    variables = {n.name for n in read_graph(str(step_file)).graph_def.node if n.op == "VarHandleOp"}
    (named, *_) = re.findall(
        r"  variable (\S+) \(step 1\): \d+ of \d+ elements differ", ended.output
    )
    assert named in variables


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("STEP", "nowhere.pb"), "nowhere.pb: there is no such file"),
        (("nowhere.pb", "STEP"), "nowhere.pb: there is no such file"),
        (("STEP", "STEP", "--inputs", "nowhere.npz"), "nowhere.npz: there is no such file"),
        (("STEP", "STEP", "--inputs", "STEP"), r"step\.pb: is no \.npz file of plain arrays"),
        (("STEP", "STEP", "--inputs", "VALUES"), "z:0, which is no input"),
        (("STEP", "STEP", "--variables", "VALUES"), "z:0, which is no variable"),
        (("STEP", "STEP", "--fetch", "nowhere:0"), "nowhere"),
    ],
)
def test_what_cannot_be_verified_is_one_line(
    arguments: tuple[str, ...], message: str, step_file: Path, tmp_path: Path
) -> None:
    values = tmp_path / "values.npz"
    arrays: dict[str, Any] = {"z:0": np.zeros(3)}
    np.savez(values, **arrays)
    named = {"STEP": step_file, "VALUES": values}
    assert_one_line(run("verify", *(named.get(one, one) for one in arguments)), message)


def test_a_message_of_several_lines_becomes_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """TensorFlow's own messages, which memopt's carry, have several."""

    def fail(_: str) -> None:
        raise memopt.ExecutionError("OOM when allocating\n\t [[{{node MatMul}}]]\n\nHint: ...")

    monkeypatch.setattr("memopt.io.read_graph", fail)
    ended = run("optimize", "graph.pb", "-o", tmp_path / "out.pb")
    assert_one_line(ended)
    assert ended.errors == "memopt: OOM when allocating [[{{node MatMul}}]] Hint: ...\n"


# --- the rest ------------------------------------------------------------------------------------


def test_passes_are_listed_with_their_options() -> None:
    ended = run("passes")
    assert (ended.status, ended.errors) == (0, "")
    for pass_ in PASSES:
        assert pass_.name in ended.output
        for option in pass_.defaults():
            assert option in ended.output
    assert ESCAPE not in ended.output


@pytest.mark.slow
def test_the_demonstration_trains_what_ran_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small form, since the real one takes long; large enough for limits in whole MiB."""
    step = MODELS["mlp"](batch=2048, width=128, layers=16)
    monkeypatch.setattr(memopt.demo, "MODELS", {"mlp": lambda: step})
    ended = run("demo", "--model", "mlp", "--steps", "2")
    assert (ended.status, ended.errors) == (0, "")
    nodes = len(step.function.graph.as_graph_def().node)
    assert ended.output.startswith(f"mlp: a training step of {nodes} nodes, real variables")
    unlimited, limited, rewritten = (
        line.partition(": ")
        for line in ended.output.splitlines()
        if "limit of" in line or "no limit" in line
    )
    assert limited[2].startswith("OUT OF MEMORY")
    assert rewritten[2] == unlimited[2]
    assert re.fullmatch(r"losses [0-9.]+, [0-9.]+", rewritten[2])
    assert "equal: every output of 2 steps" in ended.output
    assert "peak, everything included" in ended.output


def test_a_model_that_is_not_there_is_one_line_with_those_that_are() -> None:
    assert_one_line(run("demo", "--model", "alexnet"), f"the models: {', '.join(MODELS)}")


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_there_for_everything(command: str, option: str) -> None:
    ended = run(*filter(None, [command]), option)
    assert (ended.status, ended.errors) == (0, "")
    assert "Usage: " in ended.output
    mentioned = {"": COMMANDS, "optimize": ("--verify", *EVERYTHING[::2])}.get(command, ())
    for name in mentioned:
        assert name in ended.output


def test_the_list_of_commands_is_cut_off_nowhere() -> None:
    _, listed = run("--help").output.split("Commands:")
    lines = listed.strip().splitlines()
    assert len(lines) == len(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)


def test_every_command_of_the_group_is_tested() -> None:
    assert set(main.commands) == set(COMMANDS)


def test_the_version_is_the_packages() -> None:
    ended = run("--version")
    assert ended.status == 0
    assert ended.output.strip().endswith(f"version {memopt.__version__}")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("compress",),
        ("optimize",),
        ("optimize", "graph.pb"),
        ("optimize", "graph.pb", "-o"),
        ("optimize", "graph.pb", "-o", "out.pb", "--level", "most"),
        ("optimize", "graph.pb", "-o", "out.pb", "--rule", "guess"),
        ("optimize", "graph.pb", "-o", "out.pb", "--fast"),
        ("optimize", "graph.pb", "-o", "out.pb", "--device", "GPU"),
        ("optimize", "graph.pb", "-o", "out.pb", "--pass", "compress"),
        ("optimize", "graph.pb", "-o", "out.pb", "--pass", "swapping{ops=mail}"),
        ("analyze",),
        ("analyze", "graph.pb", "--device", "GPU:0=GPU:much"),
        ("analyze", "graph.pb", "--top", "-1"),
        ("verify", "graph.pb"),
        ("verify", "a.pb", "b.pb", "--steps", "0"),
        ("verify", "a.pb", "b.pb", "--rounds", "-1"),
        ("verify", "a.pb", "b.pb", "--mode", "loose"),
        ("verify", "a.pb", "b.pb", "--memory-limit", "much"),
        ("passes", "more"),
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_status_2_and_says_how(arguments: tuple[str, ...]) -> None:
    ended = run(*arguments)
    assert ended.status == 2
    assert ended.errors.startswith("Usage: " if arguments[-1:] != ("-o",) else "Error: ")
    assert "Traceback" not in ended.errors
    assert ended.output == ""


# --- in a process of its own ---------------------------------------------------------------------


@pytest.mark.slow
def test_in_a_pipe_the_installed_command_says_only_what_it_did(
    tmp_path: Path, graph_file: Path
) -> None:
    """No progress, no colours, none of TensorFlow's start-up messages."""
    path = tmp_path / "out.pb"
    ended = run_installed("optimize", graph_file, "-o", path)
    assert ended.status == 0
    assert ended.errors == ""
    assert ESCAPE not in ended.output
    assert "\r" not in ended.output
    assert ended.output.startswith("relax-allocator, main graph: ")
    assert path.read_bytes() == serialized(optimize(str(graph_file)).graph_def)


@pytest.mark.slow
def test_the_installed_command_ends_with_one_line_for_a_bad_file(
    tmp_path: Path, bad_files: dict[str, BadInput]
) -> None:
    bad = bad_files["cut short"]
    ended = run_installed("optimize", bad.path, "-o", tmp_path / "out.pb")
    assert_one_line(ended, bad.message)
    assert list(tmp_path.iterdir()) == []
