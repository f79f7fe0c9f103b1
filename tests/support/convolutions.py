"""A training step of three plain convolutions."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from memopt.models import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    inputs = (rng.random((batch, size, size, 3)).astype(np.float32),)

    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            for weight in weights:
                x = tf.nn.relu(tf.nn.conv2d(x, weight, 1, "SAME"))
            loss = tf.reduce_mean(x * x)
        gradients: Sequence[tf.Tensor] = tape.gradient(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    function = tf.function(step).get_concrete_function(tf.TensorSpec(inputs[0].shape, tf.float32))
    return TrainingStep("three convolutions", function, inputs, tuple(weights), 0)
