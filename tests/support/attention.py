"""A training step of one attention block, whose scores are larger than all else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from support.plain_training import plain_training

if TYPE_CHECKING:
    from memopt.models import TrainingStep


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

    def heads_of(rows: tf.Tensor, weight: tf.Variable) -> tf.Tensor:
        split = tf.reshape(tf.matmul(rows, weight), [batch, length, heads, width // heads])
        return tf.transpose(split, [0, 2, 1, 3])

    def loss_of(x: tf.Tensor) -> tf.Tensor:
        rows = tf.reshape(x, [-1, width])
        query, key, value = (heads_of(rows, weight) for weight in weights[:3])
        scores = tf.matmul(query, key, transpose_b=True) * 0.25
        found = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
        mixed = tf.matmul(tf.reshape(found, [-1, width]), weights[3])
        return tf.reduce_mean(mixed * mixed)

    embedded = rng.random((batch, length, width)).astype(np.float32)
    return plain_training("attention", loss_of, weights, embedded)
