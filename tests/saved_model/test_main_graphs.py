"""Training steps in the main graph of a SavedModel, as TensorFlow 1 saves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.saved_models import read_message
from support.session_models import BATCH, WIDTH, save_session_model, train_in_session, use

import memopt
from memopt.errors import InvalidGraphError, OptionsError
from memopt.saved_model.main_graph import find_uses
from memopt.saved_model.uses import keep_uses

if TYPE_CHECKING:
    from pathlib import Path

    from memopt.saved_model.report import SavedModelReport

SHAPES = dict.fromkeys("xy", (BATCH, WIDTH))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_session_model(tmp_path_factory.mktemp("sessions") / "model")


@pytest.fixture(scope="module")
def report(model: Path) -> SavedModelReport:
    return memopt.optimize_saved_model(model, model.with_name("leaner"), budget="60%")


@pytest.fixture(scope="module")
def leaner(report: SavedModelReport, model: Path) -> Path:
    assert report.out
    return model.with_name("leaner")


def test_the_step_keeps_the_budget(report: SavedModelReport) -> None:
    outcomes = {one.called_as: one for one in report.functions}
    assert {name: one.outcome for name, one in outcomes.items()} == {
        "predict": "left alone",
        "train": "rewritten",
    }
    done = outcomes["train"]
    assert done.signatures == ("train",)
    assert done.name == "(main graph: train)"
    assert done.after_grappler
    assert done.keeps_budget
    assert 0 < done.peak_after_bytes < done.peak_before_bytes


def test_it_trains_on_in_a_session_with_the_same_bits(model: Path, leaner: Path) -> None:
    before, after = use(model), use(leaner)
    assert before == after
    # Who asks for the loss or a prediction alone does not train.
    assert after["variables"] == after["afterwards"]


def test_every_name_stays(model: Path, leaner: Path) -> None:
    before, after = (read_message(path).meta_graphs[0] for path in (model, leaner))
    nodes = {node.name: node.op for node in after.graph_def.node}
    for node in before.graph_def.node:
        assert node.name in nodes
    assert before.signature_def == after.signature_def
    assert before.collection_def == after.collection_def
    assert before.saver_def == after.saver_def
    devices = [{node.name: node.device for node in one.graph_def.node} for one in (before, after)]
    assert {name: devices[1][name] for name in devices[0]} == devices[0]
    assert not any(devices[1][name] for name in devices[1].keys() - devices[0].keys())


def test_a_train_op_that_no_signature_runs_is_a_step(tmp_path: Path) -> None:
    """With variables that are references, as in old programs."""
    path = save_session_model(tmp_path / "model", resources=False, signature=False)
    (use_of_train_op,) = [
        one for one in find_uses(read_message(path).meta_graphs[0]) if not one.signatures
    ]
    assert use_of_train_op.called_as == "train_op"
    assert sorted(use_of_train_op.feed) == ["x", "y"]
    report = memopt.optimize_saved_model(path, tmp_path / "out", budget="60%")
    assert [one.called_as for one in report.rewritten] == ["train_op"]
    assert use(path, steps=2) == use(tmp_path / "out", steps=2)


def test_an_open_batch_stays_open(tmp_path: Path) -> None:
    path, out = save_session_model(tmp_path / "model", batch=None), tmp_path / "out"
    with pytest.raises(OptionsError, match=r"shape of x is open, \(None, 48\).*--shape x="):
        memopt.optimize_saved_model(path, out, budget="60%")
    report = memopt.optimize_saved_model(path, out, budget="60%", shapes=SHAPES)
    assert report.rewritten
    for batch in (BATCH, 7):
        assert use(path, steps=1, batch=batch) == use(out, steps=1, batch=batch)


def test_signatures_of_main_graphs_are_analysed_and_named(model: Path, tmp_path: Path) -> None:
    found = memopt.analyze_saved_model(model)
    kinds = {one.called_as: one.kind for one in found.functions}
    assert kinds == {"predict": "inference", "train": "training"}
    assert all(one.peak_bytes for one in found.functions)
    assert "stands in the main graph" in " ".join(repr(found).split())
    with pytest.raises(OptionsError, match=r"no signature 'fit'.*it has: predict, train"):
        memopt.optimize_saved_model(model, tmp_path / "out", signatures=["fit"])


def graph_of(nodes: dict[str, tuple[str, list[str]]]) -> Any:
    """A graph of float scalars: by name of a node its op and its inputs."""
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef()
    for name, (op, inputs) in nodes.items():
        node = graph_def.node.add(name=name, op=op, input=inputs)
        if op in ("Placeholder", "ReadVariableOp", "AssignVariableOp", "VarHandleOp"):
            node.attr["dtype"].type = 1
        if op in ("Neg", "Mul", "Identity"):
            node.attr["T"].type = 1
        if op == "VarHandleOp":
            node.attr["shape"].shape.SetInParent()
    return graph_def


NODES: dict[str, tuple[str, list[str]]] = {
    "x": ("Placeholder", []),
    "y": ("Placeholder", []),
    "predicted": ("Neg", ["x"]),
    "labels": ("Neg", ["y"]),
    "loss": ("Mul", ["predicted", "labels"]),
    "handle": ("VarHandleOp", []),
    "update": ("AssignVariableOp", ["handle", "loss"]),
    "also": ("Neg", ["predicted"]),
}


def ordered(**controls: list[str]) -> Any:
    """The graph with control inputs."""
    return graph_of(
        {name: (op, [*data, *controls.get(name, ())]) for name, (op, data) in NODES.items()}
    )


def inputs_of(graph_def: Any, name: str) -> list[str]:
    return next(list(node.input) for node in graph_def.node if node.name == name)


def test_who_asks_for_a_part_runs_no_more_than_before() -> None:
    """Neither an update, nor what needs a label for a prediction."""
    before = ordered()
    after = ordered(also=["^update"], predicted=["^labels"])
    kept = keep_uses(before, after)
    # Of what the update waits for, the handle has no effect.
    assert inputs_of(kept, "also") == ["predicted", "^handle"]
    assert inputs_of(kept, "predicted") == ["x"]
    assert inputs_of(after, "also") == ["predicted", "^update"]


def test_edges_that_let_nobody_run_more_stay() -> None:
    after = ordered(loss=["^also"], update=["^also"])
    assert keep_uses(ordered(), after) is after


def test_an_edge_is_replaced_by_one_from_what_comes_before() -> None:
    nodes = {**NODES, "late": ("Neg", ["x"])}
    before = graph_of(nodes)
    nodes = {**nodes, "labels": ("Neg", ["y", "^also"]), "late": ("Neg", ["x", "^labels"])}
    kept = keep_uses(before, graph_of(nodes))
    assert inputs_of(kept, "late") == ["x", "^also"]


def test_a_node_that_is_lost_is_there_again() -> None:
    after = ordered()
    lost = after.node.pop(0)
    (again,) = (node for node in keep_uses(ordered(), after).node if node.name == lost.name)
    assert again == lost


def test_a_node_that_gives_nothing_any_more_is_told() -> None:
    after = ordered()
    node = after.node[0]
    node.op = "NoOp"
    with pytest.raises(InvalidGraphError, match=f"others may ask for '{node.name}'"):
        keep_uses(ordered(), after)


def test_what_reads_an_update_is_told() -> None:
    """A data input cannot be taken away."""
    after = graph_of({**NODES, "also": ("Neg", ["loss"])})
    with pytest.raises(InvalidGraphError, match="asks for 'also' alone would run more"):
        keep_uses(ordered(), after)


@pytest.mark.slow
def test_fresh_processes_train_with_the_same_bits(model: Path, leaner: Path) -> None:
    """Under TensorFlow's default settings, at a lower budget too."""
    lowest = model.with_name("lowest")
    memopt.optimize_saved_model(model, lowest, budget="40%")
    expected = train_in_session(model)
    assert train_in_session(leaner) == expected
    assert train_in_session(lowest) == expected


@pytest.mark.slow
def test_both_loaders_run_the_signature(model: Path, leaner: Path) -> None:
    found = memopt.verify_saved_models(
        model, leaner, signatures=["train"], steps=2, timing_rounds=0
    )
    assert found.equal
    assert [one.loader for one in found.signatures] == ["python", "session"]
    assert found.signatures[1].verification.equal
    before, after = (
        getattr(found.signatures[1].verification, side) for side in ("original", "rewritten")
    )
    assert after.step_peak_bytes < before.step_peak_bytes
