"""A training step of three plain convolutions."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from support.plain_training import plain_training

if TYPE_CHECKING:
    from memopt.models import TrainingStep


def three_convolutions(batch: int = 16, size: int = 64, channels: int = 32) -> TrainingStep:
    """The step, with what to call it with.

    Args:
        batch: Images.
        size: Their height and width.
        channels: Of each convolution.
    """
    rng = np.random.default_rng(0)
    depths = (3, channels, channels, channels)
    weights = [
        tf.Variable(rng.standard_normal((3, 3, *pair)).astype(np.float32) * 0.05)
        for pair in pairwise(depths)
    ]

    def loss_of(x: tf.Tensor) -> tf.Tensor:
        for weight in weights:
            x = tf.nn.relu(tf.nn.conv2d(x, weight, 1, "SAME"))
        return tf.reduce_mean(x * x)

    images = rng.random((batch, size, size, 3)).astype(np.float32)
    return plain_training("three convolutions", loss_of, weights, images)
