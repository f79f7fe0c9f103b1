"""A program that trains with the gradient of each sample clipped by itself: loops fill lists."""

from __future__ import annotations

from typing import Any

from support.programs.recurrent import measured


def main(options: str) -> dict[str, Any]:
    """Its peak, its weights, and what memopt says.

    Args:
        options: Of `memopt.enable`, as JSON; null for a training without memopt.
    """
    return measured(_private, options)


def _private() -> tuple[Any, Any]:
    """`tf.vectorized_map` has loops for what it knows nothing of, as norms."""
    import keras
    import numpy as np
    import tensorflow as tf

    layers, samples, shape = keras.layers, 48, (64,)
    net = keras.Sequential(
        [
            keras.Input(shape),
            *[layers.Dense(96, activation="gelu") for _ in range(4)],
            layers.Dense(1),
        ]
    )

    class Private(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def call(self, x: Any) -> Any:
            return self.net(x)

        def train_step(self, data: Any) -> dict[str, Any]:
            variables = self.net.trainable_variables

            def clipped(sample: Any) -> tuple[list[Any], Any]:
                image, label = sample
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(self.net(image[None])[0] - label))
                gradients = tape.gradient(loss, variables)
                norm = tf.linalg.global_norm(gradients)
                return [gradient / tf.maximum(1.0, norm) for gradient in gradients], loss

            gradients, losses = tf.vectorized_map(clipped, (data[0], data[1]))
            self.optimizer.apply([tf.reduce_mean(each, 0) for each in gradients], variables)
            return {"loss": tf.reduce_mean(losses)}

    model = Private()
    model.build((samples, *shape))
    model.compile("sgd", jit_compile=False)
    return model, np.random.default_rng(0).standard_normal((samples, *shape), dtype=np.float32)
