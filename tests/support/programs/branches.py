"""A program that trains a model with branches: what its step needs, measured and predicted."""

from __future__ import annotations

from typing import Any

from support.programs.recurrent import measured


def main(kind: str, options: str) -> dict[str, Any]:
    """Its peak, its weights, and what memopt says.

    Args:
        kind: "scan" for branches that shapes decide, "depth" for some that a random number does.
        options: Of `memopt.enable`, as JSON; null for a training without memopt.
    """
    return measured({"scan": _scan, "depth": _depth}[kind], options)


def _scan() -> tuple[Any, Any]:
    """A state space model: a scan over a sequence halves it until nothing is left."""
    import keras
    import numpy as np

    batch, length, width, states = 16, 16, 32, 8
    layers, ops = keras.layers, keras.ops

    class StateSpace(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.rates = self.add_weight(shape=(width, states), initializer="uniform")
            self.inputs = layers.Dense(states)
            self.outputs = layers.Dense(states)
            self.inputs.build((batch, length, width))
            self.outputs.build((batch, length, width))

        def call(self, x: Any) -> Any:
            decays = ops.exp(-ops.softplus(x)[..., None] * ops.exp(self.rates))
            given = x[..., None] * self.inputs(x)[:, :, None, :]
            _, held = ops.associative_scan(
                lambda one, two: (one[0] * two[0], two[0] * one[1] + two[1]),
                (decays, given),
                axis=1,
            )
            held = ops.reshape(held, (batch, length, width, states))
            return x + ops.sum(held * self.outputs(x)[:, :, None, :], axis=-1)

        def compute_output_spec(self, x: Any) -> Any:
            return keras.KerasTensor(x.shape, x.dtype)

    inputs = keras.Input(batch_shape=(batch, length, width))
    x = inputs
    for _ in range(2):
        x = StateSpace()(layers.LayerNormalization()(x))
    model = keras.Model(inputs, layers.Dense(1)(layers.Flatten()(x)))
    model.compile("sgd", "mse", jit_compile=False)
    rng = np.random.default_rng(0)
    return model, rng.standard_normal((batch, length, width), dtype=np.float32)


def _depth() -> tuple[Any, Any]:
    """A residual network of which each step leaves out some blocks."""
    import keras
    import numpy as np
    import tensorflow as tf

    layers, width = keras.layers, 16

    class Block(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.parts = (
                layers.LayerNormalization(),
                layers.Conv2D(width, 3, padding="same"),
                layers.Activation("gelu"),
                layers.Conv2D(width, 3, padding="same"),
            )

        def build(self, shape: Any) -> None:
            for part in self.parts:
                part.build(shape)

        def call(self, x: Any) -> Any:
            def through() -> Any:
                y = x
                for part in self.parts:
                    y = part(y)
                return x + y

            return tf.cond(tf.random.uniform([]) < 0.7, through, lambda: x)

        def compute_output_shape(self, shape: Any) -> Any:
            return shape

    shape = (24, 24, width)
    blocks = [Block() for _ in range(5)]
    model = keras.Sequential(
        [keras.Input(shape), *blocks, layers.GlobalAveragePooling2D(), layers.Dense(1)]
    )
    model.compile("sgd", "mse", jit_compile=False)
    pictures = np.random.default_rng(0).standard_normal((16, *shape), dtype=np.float32)
    # There before the step: a copy that Keras makes of it in the step is not what is predicted.
    return model, tf.constant(pictures)
