"""Trains a Keras model that XLA compiles, or a decorated function, and tells what memopt did."""

from __future__ import annotations

import json
from typing import Any

import memopt
from support.programs.steps import digest

LAYERS, WIDTH, BATCH = 8, 64, 1024


def main(options: str, how: str) -> dict[str, Any]:
    """What came of the training.

    Args:
        options: The options of `memopt.enable` as JSON, or "" to leave it off.
        how: "keras" for `fit`, "smaller" for one with a last batch that is not full, "decorated"
            for a function that asks for a budget itself.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    if options:
        memopt.enable(**json.loads(options))
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    count = 2 * BATCH + (BATCH // 3 if how == "smaller" else 0)
    samples = random.standard_normal((count, WIDTH), dtype=np.float32)
    labels = random.integers(10, size=count).astype(np.int32)
    dense = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    model = keras.Sequential([keras.Input((WIDTH,)), *dense, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=True)
    if how != "decorated":
        history = model.fit(samples, labels, batch_size=BATCH, verbose=0, shuffle=False)
        losses = history.history["loss"]
    else:

        @memopt.optimize_function(budget="40%")
        @tf.function(jit_compile=True)  # type: ignore[untyped-decorator] # TensorFlow has no types
        def step(batch: Any, answers: Any) -> Any:
            with tf.GradientTape() as tape:
                value = loss(answers, model(batch, training=True))
            gradients = tape.gradient(value, model.trainable_variables)
            for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
                weight.assign_sub(0.1 * gradient)
            return value

        batches = [(tf.constant(samples[:BATCH]), tf.constant(labels[:BATCH]))] * 2
        losses = [float(step(*batch)) for batch in batches]
    return {
        "losses": losses,
        "weights": digest(model.get_weights()),
        "records": [
            [r.outcome, r.held_bytes, r.peak_before_bytes, r.peak_after_bytes, r.budget_bytes]
            for r in memopt.last_reports()
            if r.kind == "compiled"
        ],
    }
