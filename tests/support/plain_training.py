"""Training steps from a loss and its weights: plain gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from memopt.models import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np


def plain_training(
    name: str,
    loss_of: Callable[[tf.Tensor], tf.Tensor],
    weights: Sequence[tf.Variable],
    inputs: np.ndarray,
) -> TrainingStep:
    """The step that lowers a loss, with what to call it with.

    Args:
        name: What it is called.
        loss_of: The loss of inputs; it reads the weights.
        weights: What is trained.
        inputs: Of type float32.
    """

    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(x)
        gradients: Sequence[tf.Tensor] = tape.gradient(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    function = tf.function(step).get_concrete_function(tf.TensorSpec(inputs.shape, tf.float32))
    return TrainingStep(name, function, (inputs,), tuple(weights), 0)
