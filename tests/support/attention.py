"""A training step of one attention block, whose scores are larger than all else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from memopt.models import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Sequence


def attention_step(
    batch: int = 8, length: int = 64, width: int = 32, heads: int = 2
) -> TrainingStep:
    """The step, with what to call it with.

    Args:
        batch: Examples.
        length: Positions; scores take its square.
        width: Of the embedding.
        heads: Into which it is divided.
    """
    rng = np.random.default_rng(0)
    weights = [
        tf.Variable(rng.standard_normal((width, width)).astype(np.float32) * 0.1) for _ in range(4)
    ]
    inputs = (rng.random((batch, length, width)).astype(np.float32),)

    def heads_of(rows: tf.Tensor, weight: tf.Variable) -> tf.Tensor:
        split = tf.reshape(tf.matmul(rows, weight), [batch, length, heads, width // heads])
        return tf.transpose(split, [0, 2, 1, 3])

    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = _loss(x, weights, heads_of)
        gradients: Sequence[tf.Tensor] = tape.gradient(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    function = tf.function(step).get_concrete_function(tf.TensorSpec(inputs[0].shape, tf.float32))
    return TrainingStep("attention", function, inputs, tuple(weights), 0)


def _loss(x: tf.Tensor, weights: Sequence[tf.Variable], heads_of: object) -> tf.Tensor:
    width = x.shape[-1]
    rows = tf.reshape(x, [-1, width])
    query, key, value = (heads_of(rows, weight) for weight in weights[:3])  # type: ignore[operator]
    scores = tf.matmul(query, key, transpose_b=True) * 0.25
    found = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
    mixed = tf.matmul(tf.reshape(found, [-1, width]), weights[3])
    return tf.reduce_mean(mixed * mixed)
