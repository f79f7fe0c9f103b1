"""Models trained with the gradient of each sample clipped by itself, for tests and benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import keras


def with_sample_gradients(
    net: keras.Model, loss_of: Callable[[Any, Any], Any], samples: int | None
) -> keras.Model:
    """A model that applies the mean of the samples' clipped gradients; not compiled yet.

    `tf.vectorized_map` has loops for what it knows nothing of, as norms.

    Args:
        net: What is trained.
        loss_of: The loss of one sample, of its label and of what is said of it.
        samples: How many there are in a batch; `None` for any number.
    """
    import keras
    import tensorflow as tf

    class Private(keras.Model):  # type: ignore[misc]
        """What differential privacy does, without noise."""

        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def call(self, x: Any) -> Any:
            return self.net(x)

        def train_step(self, data: Any) -> dict[str, Any]:
            variables = self.net.trainable_variables

            def clipped(sample: Any) -> tuple[list[Any], Any]:
                features, label = sample
                with tf.GradientTape() as tape:
                    loss = loss_of(label, self.net(features[None]))
                gradients = tape.gradient(loss, variables)
                norm = tf.linalg.global_norm(gradients)
                return [gradient / tf.maximum(1.0, norm) for gradient in gradients], loss

            gradients, losses = tf.vectorized_map(clipped, (data[0], data[1]))
            self.optimizer.apply([tf.reduce_mean(each, 0) for each in gradients], variables)
            return {"loss": tf.reduce_mean(losses)}

    model = Private()
    model.build((samples, *net.input_shape[1:]))
    return model
