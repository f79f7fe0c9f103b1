"""Nodes that Grappler makes after others: their shapes are not those of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from support.saved_models import nodes_of

import memopt

if TYPE_CHECKING:
    from pathlib import Path

ROWS, WIDTH, TABLE = 256, 32, 64


def save_scattering(path: Path) -> Path:
    """A step whose indices become long numbers before they get another shape, in a function.

    Grappler turns that around, and the new Cast says that it has the shape of the old one.
    """

    def scatter(hidden: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        indices = tf.reshape(tf.cast(places, tf.int64), (ROWS, 1))
        return tf.scatter_nd(indices, hidden, tf.constant((TABLE, WIDTH), tf.int64))

    scattered = tf.function(scatter)
    net = tf.Module()
    net.weights = [
        tf.Variable(tf.random.stateless_normal((WIDTH, WIDTH), (1, n))) for n in range(4)
    ]

    def train(x: tf.Tensor, places: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            hidden = x
            for weight in net.weights:
                hidden = tf.nn.gelu(hidden @ weight)
            loss = tf.reduce_mean(tf.square(scattered(hidden, places)))
        for weight, gradient in zip(net.weights, tape.gradient(loss, net.weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss}

    specs = [
        tf.TensorSpec((ROWS, WIDTH), tf.float32, "x"),
        tf.TensorSpec((ROWS,), tf.int32, "places"),
    ]
    net.train = tf.function(train, input_signature=specs)
    tf.saved_model.save(net, str(path), signatures={"train": net.train})
    return path


def test_a_step_with_a_reordered_cast_is_rewritten_with_the_same_bits(tmp_path: Path) -> None:
    model = save_scattering(tmp_path / "model")
    out = tmp_path / "leaner"
    report = memopt.optimize_saved_model(model, out, budget="80%")
    assert report.rewritten[0].keeps_budget
    made = [name for name in nodes_of(out) if "ReorderCastLikeAndValuePreserving" in name]
    assert made, "Grappler does not turn that around any more"
    random = np.random.default_rng(2)
    x = tf.constant(random.standard_normal((ROWS, WIDTH)).astype(np.float32))
    places = tf.constant(random.integers(0, TABLE, ROWS).astype(np.int32))
    losses = []
    for path in (model, out):
        loaded = tf.saved_model.load(str(path))
        step = loaded.signatures["train"]
        losses.append([float(step(x=x, places=places)["loss"]) for _ in range(3)])
    assert losses[0] == losses[1]
