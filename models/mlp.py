"""MLP: a deep stack of dense layers, the plainest chain of activations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from memopt.models.compilation import compile_training_step
from memopt.models.program import run_as_program
from memopt.models.training_step import EXAMPLE_BATCH

if TYPE_CHECKING:
    import keras

    from memopt.models.compilation import OptimizerName
    from memopt.models.training_step import TrainingStep


def mlp(
    *,
    batch: int | None = 2048,
    width: int = 256,
    layers: int = 24,
    classes: int = 10,
    seed: int = 0,
    optimizer: OptimizerName = "sgd",
) -> TrainingStep:
    """Builds a training step of a deep multilayer perceptron.

    Args:
        batch: Samples in a batch; `None` for a step that takes any number.
        width: Numbers in a sample and in each hidden layer.
        layers: Hidden layers, each with ReLU.
        classes: Different labels.
        seed: What weights and samples are drawn from.
        optimizer: `"sgd"` (with momentum) or `"adam"`.

    Returns:
        A step of samples, float32 [batch, width], and labels, int32 [batch].
    """
    generator = np.random.default_rng(seed)
    examples = batch or EXAMPLE_BATCH
    samples = generator.standard_normal((examples, width), dtype=np.float32)
    labels = generator.integers(classes, size=examples, dtype=np.int32)
    build_model = partial(_build_model, width, layers, classes)
    inputs = (samples, labels)
    return compile_training_step(
        "mlp", build_model, inputs, seed=seed, optimizer=optimizer, any_batch=batch is None
    )


def _build_model(width: int, layers: int, classes: int) -> keras.Model:
    import keras

    samples = keras.Input((width,))
    features = samples
    for _ in range(layers):
        dense = keras.layers.Dense(width, activation="relu", kernel_initializer="he_normal")
        features = dense(features)
    return keras.Model(samples, keras.layers.Dense(classes)(features), name="mlp")


if __name__ == "__main__":
    run_as_program(mlp)
