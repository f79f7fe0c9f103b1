"""Trains on data of which nobody knows how much there is, so that a step finds its end."""

from __future__ import annotations

import json
from typing import Any

import memopt
from support.programs.steps import digest

LAYERS, WIDTH, BATCH = 6, 64, 512


def main(options: str, replicas: str) -> dict[str, Any]:
    """What came of the training.

    Args:
        options: The options of `memopt.enable` as JSON, or "" to leave it off.
        replicas: On how many devices.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    if options:
        memopt.enable(**json.loads(options))
    (processor,) = tf.config.list_physical_devices("CPU")
    devices = [f"CPU:{number}" for number in range(int(replicas))]
    configurations = [tf.config.LogicalDeviceConfiguration() for _ in devices]
    tf.config.set_logical_device_configuration(processor, configurations)
    strategy = (
        tf.distribute.MirroredStrategy(devices) if devices[1:] else tf.distribute.get_strategy()
    )
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    samples = random.standard_normal((3 * BATCH, WIDTH), dtype=np.float32)
    labels = random.integers(10, size=3 * BATCH).astype(np.int32)
    with strategy.scope():
        layers = []
        for _ in range(LAYERS):
            layers += [keras.layers.Dense(WIDTH, activation="relu"), keras.layers.Dropout(0.1)]
        model = keras.Sequential([keras.Input((WIDTH,)), *layers, keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        # Decay is not part of the gradient: it depends on nothing that the data gives.
        model.compile(keras.optimizers.AdamW(1e-3, weight_decay=0.1), loss)
    data = tf.data.Dataset.from_tensor_slices((samples, labels)).batch(BATCH)
    unknown = data.filter(lambda *_: True)
    losses = []
    for _ in range(2):
        losses += model.fit(unknown, epochs=2, verbose=0).history["loss"]
    return {
        "losses": losses,
        "iterations": int(model.optimizer.iterations.numpy()),
        "weights": digest(model.get_weights()),
        "outcomes": [r.outcome for r in memopt.last_reports() if r.nodes > 100],
    }
