"""Trains a Keras model under whatever limit TensorFlow's allocator has, or dies of it."""

from __future__ import annotations

import json
from typing import Any

import memopt

BATCH = 2048
WIDTH = 256


def main(options: str) -> dict[str, Any]:
    """The losses, or that memory was short.

    Args:
        options: The options of `memopt.enable` as JSON, or "" to leave it off.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    if options:
        memopt.enable(**json.loads(options))
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(24)]
    model = keras.Sequential([keras.Input((WIDTH,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    generator = np.random.default_rng(0)
    samples = generator.standard_normal((2 * BATCH, WIDTH), dtype=np.float32)
    targets = samples.sum(axis=1, keepdims=True)
    try:
        history = model.fit(samples, targets, batch_size=BATCH, epochs=2, verbose=0, shuffle=False)
    except tf.errors.ResourceExhaustedError:
        return {"losses": [], "is_out_of_memory": True}
    return {"losses": history.history["loss"], "is_out_of_memory": False}
