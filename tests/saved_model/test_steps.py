"""Functions of SavedModels as steps: the largest batch that fits, and profiles for `--costs`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.commands import assert_one_line, run
from support.saved_models import BATCH, WIDTH, train

import memopt
from memopt.errors import FileError, OptionsError

if TYPE_CHECKING:
    from pathlib import Path

MULTIPLE = 256


def save_two_steps(path: Path) -> Path:
    """Write a small network with two training steps."""
    import tensorflow as tf

    net = tf.Module()
    net.weights = [tf.Variable(tf.eye(16) * 0.5) for _ in range(3)]

    def step(x: tf.Tensor, rate: float) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            hidden = x
            for weight in net.weights:
                hidden = tf.nn.gelu(hidden @ weight)
            loss = tf.reduce_sum(hidden)
        for weight, gradient in zip(net.weights, tape.gradient(loss, net.weights), strict=True):
            weight.assign_sub(rate * gradient)
        return {"loss": loss}

    spec = tf.TensorSpec((None, 16), tf.float32, "x")
    net.slow = tf.function(lambda x: step(x, 0.01), input_signature=[spec])
    net.quick = tf.function(lambda x: step(x, 0.1), input_signature=[spec])
    signatures = {"slow": net.slow, "quick": net.quick}
    tf.saved_model.save(net, str(path), signatures=signatures)
    return path


def test_a_batch_is_found_and_written_with_its_dimension_open(tmp_path: Path) -> None:
    import tensorflow as tf

    path, out = save_two_steps(tmp_path / "two"), tmp_path / "out"
    ended = run(
        *("fit", path, "--signature", "quick", "--memory", "4MiB", "--multiple-of", 4096),
        *("--no-run", "-o", out),
    )
    assert (ended.status, ended.errors) == (0, "")
    assert "and others; it is size" in ended.output
    outcomes = []
    for folder in (path, out):
        loaded = tf.saved_model.load(str(folder))
        for _ in range(2):
            loaded.signatures["quick"](x=tf.ones((7, 16)))
        outcomes.append([weight.numpy().tobytes() for weight in loaded.weights])
    assert outcomes[0] == outcomes[1]


@pytest.mark.slow
def test_the_largest_batch_is_found_proved_and_written(open_network: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = run(
        *("fit", open_network, "--memory", "3MiB", "--multiple-of", MULTIPLE, "-o", out, "--json")
    )
    assert (ended.status, ended.errors) == (0, "")
    found = json.loads(ended.output)
    assert found["size"] % MULTIPLE == 0
    assert found["size"] > found["free_size"] > 0
    assert found["measured_peak_bytes"] <= 3 << 20
    assert not found["only_size"]
    for batch in (found["size"], 7):
        assert train(out, steps=2, batch=batch) == train(open_network, steps=2, batch=batch)


def test_dimensions_go_by_the_names_of_arguments(open_network: Path) -> None:
    with pytest.raises(OptionsError, match="train takes no argument 'z'; there are: x, y"):
        memopt.fit_saved_model(open_network, "4MiB", dimensions=["z:0"])
    with pytest.raises(OptionsError, match="y:0 is open as well"):
        memopt.fit_saved_model(open_network, "4MiB", dimensions=["x:0"])


def test_what_has_no_open_dimension_is_told(network: Path) -> None:
    assert_one_line(run("fit", network, "--memory", "4MiB"), "the step has no open dimension")


def test_a_function_has_to_be_named_where_none_trains(network: Path) -> None:
    with pytest.raises(OptionsError, match="no function 'fit' that can be rewritten; it has: pre"):
        memopt.fit_saved_model(network, "4MiB", function="fit")
    with pytest.raises(OptionsError, match="the step has no open dimension"):
        memopt.fit_saved_model(network, "4MiB", signature="predict")


def test_a_folder_that_exists_is_told_before_the_search(open_network: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="exists already"):
        memopt.fit_saved_model(open_network, "4MiB", out=tmp_path)


def test_several_functions_that_train_are_told(tmp_path: Path) -> None:
    path = save_two_steps(tmp_path / "two")
    with pytest.raises(OptionsError, match="several functions train: name one with --function"):
        memopt.profile_saved_model(path, shapes={"x": (2, 16)})


def test_a_profile_is_what_costs_take(network: Path, tmp_path: Path) -> None:
    """Of the function as Grappler makes it, by the names that a rewriting goes by."""
    profile = tmp_path / "profile.pb"
    ended = run("profile", network, "-o", profile, "--steps", 2, "--json")
    assert (ended.status, ended.errors) == (0, "")
    kinds = {one["op"] for one in json.loads(ended.output)["ops"]}
    assert "MatMul" in kinds
    # Grappler has put several operations into one.
    assert kinds & {"_UnaryOpsComposition", "_FusedMatMul"}
    assert profile.stat().st_size > 0


def test_open_arguments_need_a_shape_to_be_profiled(open_network: Path, tmp_path: Path) -> None:
    ended = run("profile", open_network, "-o", tmp_path / "profile.pb")
    assert_one_line(ended, r"the shape of x is open, \(None, 48\): give one, --shape x=")
    with pytest.raises(OptionsError, match="train takes no argument 'z'"):
        memopt.profile_saved_model(open_network, shapes={"z": (2, 2)})


@pytest.mark.slow
def test_a_batch_is_found_by_measured_times(open_network: Path, tmp_path: Path) -> None:
    shapes = dict.fromkeys("xy", (BATCH, WIDTH))
    profile = memopt.profile_saved_model(open_network, shapes=shapes, steps=2)
    profile.save(tmp_path / "profile.pb")
    found = memopt.fit_saved_model(
        open_network,
        "3MiB",
        signature="train",
        multiple_of=MULTIPLE,
        costs=str(tmp_path / "profile.pb"),
        run=False,
    )
    assert found.size >= found.free_size
