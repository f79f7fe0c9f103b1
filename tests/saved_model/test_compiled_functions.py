"""Functions of SavedModels that XLA compiles, and the values that a model's variables have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.saved_models import BATCH, WIDTH, read_message, save_network
from support.session_models import save_session_model

import memopt
from memopt.errors import BudgetError, FileError, OptionsError
from memopt.saved_model.checkpoint import variable_values
from memopt.saved_model.main_graph import find_work

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS_TWICE = "--xla_cpu_max_isa=AVX"
SHAPES = dict.fromkeys("xy", (BATCH, WIDTH))


def test_a_compiled_function_wants_its_shapes(tmp_path: Path) -> None:
    path = save_network(tmp_path / "compiled", batch=None, compiled=True)
    with pytest.raises(OptionsError, match="shape of x is open"):
        memopt.optimize_saved_model(path, tmp_path / "out", budget="60%")
    with pytest.raises(OptionsError, match="XLA compiles train, all of it into one program"):
        memopt.profile_saved_model(path, signature="train", shapes=SHAPES)
    found = memopt.analyze_saved_model(path)
    assert {one.called_as: one.reason for one in found.functions}["train"] == "XLA compiles it"


def test_values_of_variables_are_those_of_the_model(network: Path) -> None:
    import tensorflow as tf

    meta_graph = read_message(network).meta_graphs[0]
    (train,) = [one for one in find_work(meta_graph) if one.called_as == "train"]
    found = variable_values(network, meta_graph, train)
    assert found.keys() == train.variables.keys()
    loaded = tf.saved_model.load(str(network))
    expected = sorted(one.numpy().tobytes() for one in (*loaded.weights, *loaded.momenta))
    assert sorted(value.tobytes() for value in found.values()) == expected


def test_values_of_a_main_graph_go_by_names(tmp_path: Path) -> None:
    path = save_session_model(tmp_path / "model")
    meta_graph = read_message(path).meta_graphs[0]
    found = variable_values(path, meta_graph, find_work(meta_graph)[0])
    assert "weight_0" in found
    assert "weight_0/Momentum" in found
    (path / "variables" / "variables.index").write_bytes(b"none")
    with pytest.raises(FileError, match="variables: cannot be read"):
        variable_values(path, meta_graph, find_work(meta_graph)[0])


@pytest.mark.slow
def test_a_compiled_step_keeps_a_budget_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where XLA always rounds twice; in fresh processes by both loaders, open shapes as well."""
    monkeypatch.setenv("XLA_FLAGS", ROUNDS_TWICE)
    path = save_network(tmp_path / "compiled", batch=None, compiled=True)
    out = tmp_path / "out"
    report = memopt.optimize_saved_model(path, out, budget="65%", shapes=SHAPES)
    (done,) = report.rewritten
    assert done.called_as == "train"
    assert done.reason.startswith("XLA compiles it: ")
    assert done.keeps_budget
    functions = read_message(out).meta_graphs[0].graph_def.library.function
    compiled = {one.signature.name: one.attr["_XlaMustCompile"].b for one in functions}
    assert compiled[done.name]
    found = memopt.verify_saved_models(
        path, out, signatures=["train"], shapes=SHAPES, steps=2, timing_rounds=0
    )
    assert all(one.verification.equal for one in found.signatures)
    for one in found.signatures:
        before, after = one.verification.original, one.verification.rewritten
        assert after.step_peak_bytes <= 0.7 * before.step_peak_bytes


@pytest.mark.slow
def test_a_compiled_step_stays_as_it_is_rather_than_compute_other_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memopt.xla.entry.Equality.holds_for", lambda *_: False)
    path = save_network(tmp_path / "compiled", compiled=True)
    with pytest.raises(BudgetError, match=r"XLA compiles it, and .* other last bits"):
        memopt.optimize_saved_model(path, tmp_path / "out", budget="60%")
    assert not (tmp_path / "out").exists()
