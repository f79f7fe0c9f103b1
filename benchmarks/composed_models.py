"""Keras models of many kinds of layers each, or trained in ways of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from keras_models import KerasTraining, _classes, _numbers
from support.sample_gradients import with_sample_gradients

if TYPE_CHECKING:
    from collections.abc import Callable


def recognizer(batch: int = 16, width: int = 128) -> KerasTraining:
    """Convolutions, two recurrent layers from both sides, and the CTC loss: reads lines of text."""
    import keras
    import numpy as np
    from keras import layers

    picture = keras.Input((32, width, 1))
    x: Any = picture
    for filters, pool in ((32, 2), (64, 2), (128, (2, 1)), (128, (2, 1))):
        x = layers.Conv2D(filters, 3, padding="same")(x)
        x = layers.MaxPooling2D(pool)(layers.ReLU()(layers.BatchNormalization()(x)))
    x = layers.Reshape((width // 4, 2 * 128))(layers.Permute((2, 1, 3))(x))
    for _ in range(2):
        x = layers.Bidirectional(layers.LSTM(64, return_sequences=True))(x)
    model = keras.Model(picture, layers.Dense(40)(x))
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.CTC())
    text = np.random.default_rng(0).integers(1, 39, (batch, 8)).astype("int32")
    return KerasTraining(model, _numbers(batch, 32, width, 1), text)


def diffusion(batch: int = 8, size: int = 32, width: int = 32) -> KerasTraining:
    """A U-Net with group normalization, attention and a time, that tells noise from pictures."""
    import keras
    from keras import layers

    def residual(x: Any, time: Any, filters: int) -> Any:
        y = layers.Activation("swish")(layers.GroupNormalization(8)(x))
        y = layers.Conv2D(filters, 3, padding="same")(y)
        y = y + layers.Reshape((1, 1, filters))(layers.Dense(filters)(time))
        y = layers.Dropout(0.1)(layers.Activation("swish")(layers.GroupNormalization(8)(y)))
        y = layers.Conv2D(filters, 3, padding="same")(y)
        return y + (x if x.shape[-1] == filters else layers.Conv2D(filters, 1)(x))

    def attention(x: Any) -> Any:
        side, filters = x.shape[1], x.shape[-1]
        y = layers.Reshape((side * side, filters))(layers.GroupNormalization(8)(x))
        y = layers.MultiHeadAttention(4, filters // 4)(y, y)
        return x + layers.Reshape((side, side, filters))(y)

    picture, when = keras.Input((size, size, 3)), keras.Input((width,))
    time = layers.Dense(4 * width, activation="swish")(when)
    x: Any = layers.Conv2D(width, 3, padding="same")(picture)
    skips = [x]
    for level, factor in enumerate((1, 2, 4)):
        for _ in range(2):
            x = residual(x, time, width * factor)
            x = attention(x) if level else x
            skips.append(x)
        if level < 2:  # noqa: PLR2004
            x = layers.Conv2D(width * factor, 3, 2, padding="same")(x)
            skips.append(x)
    x = residual(attention(residual(x, time, x.shape[-1])), time, x.shape[-1])
    for level, factor in ((2, 4), (1, 2), (0, 1)):
        for _ in range(3):
            x = residual(layers.Concatenate()([x, skips.pop()]), time, width * factor)
            x = attention(x) if level else x
        if level:
            x = layers.Conv2D(width * factor, 3, padding="same")(layers.UpSampling2D()(x))
    x = layers.Activation("swish")(layers.GroupNormalization(8)(x))
    model = keras.Model([picture, when], layers.Conv2D(3, 3, padding="same")(x))
    model.compile(keras.optimizers.AdamW(1e-4), "mse")
    shown = [_numbers(batch, size, size, 3), _numbers(batch, width)]
    return KerasTraining(model, shown, _numbers(batch, size, size, 3))


def capsules(batch: int = 16, size: int = 28) -> KerasTraining:
    """Convolutions, and vectors that agree by routing."""
    import keras
    import tensorflow as tf
    from keras import layers

    def squash(vectors: Any) -> Any:
        length = tf.reduce_sum(vectors * vectors, -1, keepdims=True)
        return vectors * length / (1 + length) / tf.sqrt(length + 1e-7)

    class Routing(layers.Layer):  # type: ignore[misc]
        """Ten vectors of sixteen numbers, in three rounds."""

        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[1], 10, shape[2], 16))

        def call(self, x: Any) -> Any:
            votes = tf.einsum("bid,inde->bine", x, self.kernel)
            weights = tf.zeros_like(votes[..., 0])
            for _ in range(3):
                shares = tf.nn.softmax(weights, -1)
                vectors = squash(tf.einsum("bin,bine->bne", shares, votes))
                weights = weights + tf.einsum("bine,bne->bin", votes, vectors)
            return tf.norm(vectors + 1e-6, axis=-1)

    picture = keras.Input((size, size, 1))
    x = layers.Conv2D(64, 9, 2)(layers.Conv2D(64, 9, activation="relu")(picture))
    x = layers.Lambda(squash)(layers.Reshape((-1, 8))(x))
    model = keras.Model(picture, Routing()(x))
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy())
    return KerasTraining(model, _numbers(batch, size, size, 1), _classes(10, batch))


def adversary(batch: int = 32, size: int = 32) -> KerasTraining:
    """A critic of pictures whose gradient is held to a length: gradients of gradients."""
    import keras
    import tensorflow as tf
    from keras import layers

    class Critic(keras.Model):  # type: ignore[misc]
        """Convolutions, with the penalty of Wasserstein networks."""

        def __init__(self) -> None:
            super().__init__()
            self.blocks = [layers.Conv2D(filters, 5, 2, "same") for filters in (32, 64, 128)]
            self.end = layers.Dense(1)

        def call(self, x: Any) -> Any:
            for block in self.blocks:
                x = tf.nn.leaky_relu(block(x))
            return self.end(tf.reshape(x, (-1, (size // 8) ** 2 * 128)))

        def compute_loss(self, x: Any = None, *_: Any, **__: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                said = self(x)
            slope = tape.gradient(said, x)
            length = tf.sqrt(tf.reduce_sum(slope * slope, (1, 2, 3)) + 1e-12)
            return tf.reduce_mean(said) + 10 * tf.reduce_mean((length - 1) ** 2)

    model = Critic()
    pictures = _numbers(batch, size, size, 3)
    model(pictures)
    model.compile(keras.optimizers.Adam(1e-4))
    return KerasTraining(model, pictures, _numbers(batch, 1))


def private(batch: int = 64, width: int = 128) -> KerasTraining:
    """Gradients of each sample, clipped by itself: those of differential privacy, without noise."""
    import keras
    import tensorflow as tf
    from keras import layers

    def loss_of(label: Any, said: Any) -> Any:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(label[None], said)[0]

    hidden = [layers.Dense(width, activation="gelu") for _ in range(6)]
    net = keras.Sequential([keras.Input((64,)), *hidden, layers.Dense(10)])
    model = with_sample_gradients(net, loss_of, None)
    model.compile(keras.optimizers.SGD(0.1))
    return KerasTraining(model, _numbers(batch, 64), _classes(10, batch))


COMPOSED: dict[str, Callable[[], KerasTraining]] = {
    build.__name__: build for build in (recognizer, diffusion, capsules, adversary, private)
}
"""Builders by name."""
