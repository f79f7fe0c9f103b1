"""Models of fleets that tests share, made once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.saved_models import save_network

import memopt
from memopt.models import MODELS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph file, one for batches of any size, a SavedModel and a broken file."""
    folder = tmp_path_factory.mktemp("fleet")
    memopt.save(MODELS["mlp"](batch=64, layers=3).function, folder / "step.pb")
    memopt.save(open_step(), folder / "open.pbtxt")
    save_network(folder / "network")
    (folder / "broken.pb").write_bytes(b"no graph")
    return folder


def open_step() -> memopt.GrapplerItem:
    """A training step whose batch is open."""
    import tensorflow as tf

    weights = [tf.Variable(tf.ones((16, 16)) * 0.1) for _ in range(3)]

    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            hidden = x
            for weight in weights:
                hidden = tf.nn.gelu(hidden @ weight)
            loss = tf.reduce_mean(hidden)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(gradient)
        return loss

    spec = tf.TensorSpec((None, 16), tf.float32, "x")
    function = tf.function(step).get_concrete_function(spec)
    return memopt.GrapplerItem.from_concrete_function(function)
