"""The commands on SavedModels: options, what is printed, and both loaders in earnest."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.commands import assert_one_line, run, run_installed
from support.saved_models import read_message, train, values

import memopt

BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("optimize", "MODEL", "-o", "OUT", "--fetch", "x"), "--fetch"),
        (("optimize", "MODEL", "-o", "OUT", "--as-grappler"), "--as-grappler"),
        (("analyze", "MODEL", "--top", "3"), "--top"),
        (("verify", "MODEL", "MODEL", "--memory-limit", "1GiB"), "--memory-limit"),
        (("optimize", "FILE", "-o", "OUT", "--function", "train"), "--function"),
        (("optimize", "FILE", "-o", "OUT", "--all"), "--all"),
        (("analyze", "FILE", "--shape", "x=1"), "--shape"),
        (("verify", "FILE", "FILE", "--signature", "train"), "--signature"),
        (("fit", "MODEL", "--memory", "4MiB", "--fetch", "x"), "--fetch"),
        (("profile", "MODEL", "-o", "OUT", "--feed", "x"), "--feed"),
        (("fit", "FILE", "--memory", "4MiB", "--signature", "train"), "--signature"),
        (("profile", "FILE", "-o", "OUT", "--function", "train"), "--function"),
    ],
)
def test_options_without_effect_are_refused(
    arguments: tuple[str, ...], option: str, network: Path, tmp_path: Path
) -> None:
    (tmp_path / "file.pb").write_bytes(b"")
    names = {"MODEL": network, "OUT": tmp_path / "out", "FILE": tmp_path / "file.pb"}
    ended = run(*(names.get(word, word) for word in arguments))
    assert ended.status == 2
    assert f"{option} is an option for" in ended.errors


@pytest.mark.parametrize("option", [("--level", "none-such"), ("--pass", "x"), ("--shape", "x")])
def test_bad_values_are_wrong_usage(option: tuple[str, str], network: Path, tmp_path: Path) -> None:
    assert run("optimize", network, "-o", tmp_path / "out", *option).status == 2


def test_analysis_is_printed(network: Path) -> None:
    ended = run("analyze", network)
    assert ended.status == 0
    assert "training" in ended.output
    plain = json.loads(run("analyze", network, "--json").output)
    assert {one["kind"] for one in plain["functions"]} == {"training", "inference"}


def test_signatures_that_are_not_there_are_told(network: Path, leaner: Path) -> None:
    ended = run("verify", network, leaner, "--signature", "fit")
    assert_one_line(ended, "no signature 'fit' to run; there are: predict, train")


def test_open_inputs_need_a_shape(open_network: Path) -> None:
    ended = run("verify", open_network, open_network, "--signature", "predict")
    assert_one_line(ended, "the shape of input x is not fully known")


@pytest.mark.slow
def test_both_run_by_both_loaders(network: Path, leaner: Path) -> None:
    """Two steps each in four fresh processes."""
    ended = run("verify", network, leaner, "--signature", "train", "--rounds", 0, "--json")
    assert ended.status == 0
    found = json.loads(ended.output)["verification"]
    assert found["equal"]
    assert [one["loader"] for one in found["signatures"]] == ["python", "session"]
    for one in found["signatures"]:
        before, after = one["verification"]["original"], one["verification"]["rewritten"]
        # How far the original's threads run ahead depends on what else the machine does.
        assert after["step_peak_bytes"] < before["step_peak_bytes"]


@pytest.mark.slow
def test_what_computes_something_else_is_found(network: Path, tmp_path: Path) -> None:
    """Another factor in the update: the first loss is equal, and nothing after it."""
    other = tmp_path / "other"
    shutil.copytree(network, other)
    message = read_message(other)
    function = next(
        one
        for one in message.meta_graphs[0].graph_def.library.function
        if "inference_train" in one.signature.name
    )
    constants = [
        node.attr["value"].tensor
        for node in function.node_def
        if node.op == "Const" and node.attr["value"].tensor.float_val[:] == [np.float32(0.1)]
    ]
    for constant in constants:
        constant.float_val[0] = 0.2
    assert constants
    (other / "saved_model.pb").write_bytes(message.SerializeToString())
    found = memopt.verify_saved_models(
        network, other, signatures=["train"], loaders=["python"], steps=2, timing_rounds=0
    )
    assert not found.equal
    names = {d.name for one in found.signatures for d in one.verification.differences}
    assert "loss" in names
    assert len(names) > 6
    assert "NOT EQUAL" in repr(found)


@pytest.mark.slow
def test_the_command_rewrites_and_verifies_under_defaults(network: Path, tmp_path: Path) -> None:
    """Started for real, with TensorFlow's default settings, oneDNN among them."""
    out = tmp_path / "out"
    ended = run_installed("optimize", network, "-o", out, "--budget", "60%", "--verify")
    assert ended.errors == ""
    assert "1 of 2 functions rewritten" in ended.output
    assert ended.output.endswith("equal, bit for bit\n")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_each_process_writes_the_same_bytes(network: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        assert not run_installed(
            "optimize", network, "-o", tmp_path / name, "--budget", "50%"
        ).status
    for name in ("saved_model.pb", "fingerprint.pb"):
        first, second = (tmp_path / each / name for each in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_saved_model_cli_runs_it(network: Path, leaner: Path, tmp_path: Path) -> None:
    x, y = values().values()
    np.savez(tmp_path / "values.npz", x=x, y=y)
    results = []
    for path in (network, leaner):
        out = tmp_path / f"{path.name}_results"
        command = [BIN / "saved_model_cli", "run", "--dir", path, "--tag_set", "serve"]
        command += ["--signature_def", "train", "--outdir", out]
        command += ["--inputs", f"x={tmp_path}/values.npz[x];y={tmp_path}/values.npz[y]"]
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
        results.append(np.load(out / "loss.npy"))
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.slow
def test_keras_takes_it_as_a_layer(network: Path, leaner: Path) -> None:
    import keras

    losses = []
    x, y = values().values()
    for path in (network, leaner):
        layer = keras.layers.TFSMLayer(str(path), call_endpoint="train")
        losses.append([layer(x, y=y)["loss"].numpy() for _ in range(2)])
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_what_was_loaded_can_be_saved_again(network: Path, leaner: Path, tmp_path: Path) -> None:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(leaner))
    tf.saved_model.save(loaded, str(tmp_path / "again"), signatures=loaded.signatures)
    assert train(tmp_path / "again") == train(network)
