"""Steps of convolutions: three plain ones that are trained, and a depthwise one's gradient."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from support.plain_training import plain_training

if TYPE_CHECKING:
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

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


def depthwise_gradient(
    channels: int, multiplier: int = 1, extent: int = 3, stride: int = 1, samples: int | None = 4
) -> ConcreteFunction:
    """The gradient of depthwise filters, compiled, of images of 6 x 6 and the gradients behind."""
    size = 6
    specs = [
        tf.TensorSpec((samples, size, size, channels)),
        tf.TensorSpec((samples, size // stride, size // stride, channels * multiplier)),
    ]

    def gradient(image: Any, behind: Any) -> Any:
        return tf.raw_ops.DepthwiseConv2dNativeBackpropFilter(
            input=image,
            filter_sizes=[extent, extent, channels, multiplier],
            out_backprop=behind,
            strides=[1, stride, stride, 1],
            padding="SAME",
        )

    traced: ConcreteFunction = tf.function(gradient, jit_compile=True).get_concrete_function(*specs)
    return traced
