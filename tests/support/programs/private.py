"""A program that trains with the gradient of each sample clipped by itself: loops fill lists."""

from __future__ import annotations

from typing import Any

from support.programs.recurrent import measured
from support.sample_gradients import with_sample_gradients


def main(options: str) -> dict[str, Any]:
    """Its peak, its weights, and what memopt says.

    Args:
        options: Of `memopt.enable`, as JSON; null for a training without memopt.
    """
    return measured(_private, options)


def _private() -> tuple[Any, Any]:
    import keras
    import numpy as np
    import tensorflow as tf

    layers, samples, shape = keras.layers, 48, (64,)
    hidden = [layers.Dense(96, activation="gelu") for _ in range(4)]
    net = keras.Sequential([keras.Input(shape), *hidden, layers.Dense(1)])

    def loss_of(label: Any, said: Any) -> Any:
        return tf.reduce_mean(tf.square(said[0] - label))

    model = with_sample_gradients(net, loss_of, samples)
    model.compile("sgd", jit_compile=False)
    return model, np.random.default_rng(0).standard_normal((samples, *shape), dtype=np.float32)
