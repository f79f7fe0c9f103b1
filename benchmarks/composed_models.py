"""Keras models of many kinds of layers each, or trained in ways of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from keras_models import KerasTraining, _classes, _classifier, _numbers
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


def wavenet(batch: int = 8, length: int = 1024, width: int = 48) -> KerasTraining:
    """Gated convolutions that look further back each time, a wide answer for every sample."""
    import keras
    from keras import layers

    samples = keras.Input((length,), dtype="int32")
    x: Any = layers.Embedding(256, width)(samples)
    skipped = []

    def looking_back(steps: int, how: str) -> Any:
        convolution = layers.Conv1D(width, 2, padding="causal", dilation_rate=steps, activation=how)
        return convolution(x)

    for steps in (1, 2, 4, 8, 16, 32) * 2:
        gated = layers.Multiply()([looking_back(steps, "tanh"), looking_back(steps, "sigmoid")])
        skipped.append(layers.Conv1D(64, 1)(gated))
        x = layers.Add()([x, layers.Conv1D(width, 1)(gated)])
    x = layers.Conv1D(128, 1, activation="relu")(layers.ReLU()(layers.Add()(skipped)))
    model = keras.Model(samples, layers.Conv1D(256, 1)(x))
    heard = _classes(256, batch, length)
    return _classifier(model, heard, heard, "adam")


def conformer(batch: int = 16, length: int = 200, width: int = 96) -> KerasTraining:
    """Attention and convolutions by channel in turns, and the CTC loss: hears speech."""
    import keras
    from keras import layers, ops

    def half(x: Any) -> Any:
        wide = layers.Dense(4 * width, activation="swish")(layers.LayerNormalization()(x))
        narrow = layers.Dropout(0.1)(layers.Dense(width)(layers.Dropout(0.1)(wide)))
        return x + 0.5 * narrow

    sound = keras.Input((length, 40))
    x: Any = layers.Reshape((length, 40, 1))(sound)
    x = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Dense(width)(layers.Reshape((length // 2, 20 * 16))(x))
    for _ in range(3):
        x = half(x)
        seen = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(4, width // 4, dropout=0.1)(seen, seen)
        wide = layers.Conv1D(2 * width, 1)(layers.LayerNormalization()(x))
        kept, gate = ops.split(wide, 2, axis=-1)
        near = layers.DepthwiseConv1D(15, padding="same")(kept * ops.sigmoid(gate))
        near = layers.Activation("swish")(layers.BatchNormalization()(near))
        x = layers.LayerNormalization()(half(x + layers.Conv1D(width, 1)(near)))
    model = keras.Model(sound, layers.Dense(30)(x))
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.CTC(), jit_compile=False)
    return KerasTraining(model, _numbers(batch, length, 40), 1 + _classes(29, batch, 12))


def segmenter(batch: int = 16, size: int = 64) -> KerasTraining:
    """Separable and dilated convolutions, side by side over one picture: a class for each pixel."""
    import keras
    from keras import layers

    def normalized(x: Any, width: int, kernel: int = 3, stride: int = 1, apart: int = 1) -> Any:
        convolution = layers.Conv2D(
            width, kernel, stride, padding="same", dilation_rate=apart, use_bias=False
        )
        return layers.ReLU()(layers.BatchNormalization()(convolution(x)))

    def separable(x: Any, width: int, stride: int = 1, apart: int = 1) -> Any:
        by_channel = layers.DepthwiseConv2D(
            3, stride, padding="same", dilation_rate=apart, use_bias=False
        )
        return normalized(layers.BatchNormalization()(by_channel(x)), width, kernel=1)

    def larger(x: Any, factor: int) -> Any:
        return layers.UpSampling2D(factor, interpolation="bilinear")(x)

    picture = keras.Input((size, size, 3))
    near = separable(normalized(picture, 16, stride=2), 32)
    x = separable(near, 64, stride=2)
    for apart in (1, 2, 2, 4):
        x = layers.Add()([x, separable(separable(x, 64, apart=apart), 64, apart=apart)])
    everywhere = normalized(layers.GlobalAveragePooling2D(keepdims=True)(x), 48, kernel=1)
    seen = [normalized(x, 48, kernel=1), *(normalized(x, 48, apart=apart) for apart in (3, 6, 9))]
    x = normalized(layers.Concatenate()([*seen, larger(everywhere, size // 4)]), 48, kernel=1)
    x = larger(layers.Dropout(0.1)(x), 2)
    x = layers.Concatenate()([x, normalized(near, 16, kernel=1)])
    logits = larger(layers.Conv2D(12, 1)(separable(separable(x, 64), 64)), 2)
    model = keras.Model(picture, logits)
    return _classifier(model, _numbers(batch, size, size, 3), _classes(12, batch, size, size))


def keypoints(batch: int = 4, size: int = 128, width: int = 64) -> KerasTraining:
    """Two hourglasses of residual convolutions, each with an answer: finds joints in pictures."""
    import keras
    from keras import layers

    def residual(x: Any, filters: int) -> Any:
        inner = x
        for kernel, some in ((1, filters // 2), (3, filters // 2), (1, filters)):
            inner = layers.ReLU()(layers.BatchNormalization()(inner))
            inner = layers.Conv2D(some, kernel, padding="same")(inner)
        return layers.Add()([inner, x if x.shape[-1] == filters else layers.Conv2D(filters, 1)(x)])

    def hourglass(x: Any, depth: int) -> Any:
        low = residual(layers.MaxPooling2D()(x), width)
        low = hourglass(low, depth - 1) if depth > 1 else residual(low, width)
        return layers.Add()([residual(x, width), layers.UpSampling2D()(residual(low, width))])

    picture = keras.Input((size, size, 3))
    x = residual(layers.Conv2D(width // 2, 7, 2, "same")(picture), width)
    heat_maps = []
    for _ in range(2):
        seen = residual(hourglass(x, 3), width)
        heat_maps.append(layers.Conv2D(8, 1)(seen))
        again = [layers.Conv2D(width, 1)(each) for each in (seen, heat_maps[-1])]
        x = layers.Add()([x, *again])
    model = keras.Model(picture, heat_maps)
    model.compile(keras.optimizers.RMSprop(0.001), ["mse", "mse"], jit_compile=False)
    wanted = _numbers(batch, size // 2, size // 2, 8)
    return KerasTraining(model, _numbers(batch, size, size, 3), [wanted, wanted])


def detector(batch: int = 4, size: int = 128, width: int = 64) -> KerasTraining:
    """A pyramid of features, heads shared by its levels, and the focal loss: finds boxes."""
    import keras
    from keras import layers

    def normalized(x: Any, filters: int, strides: int) -> Any:
        x = layers.Conv2D(filters, 3, strides, "same")(x)
        return layers.ReLU()(layers.BatchNormalization()(x))

    picture = keras.Input((size, size, 3))
    x, seen = picture, []
    for filters in (width // 4, width // 2, width, 2 * width, 2 * width):
        x = normalized(normalized(x, filters, 2), filters, 1)
        seen.append(x)
    levels = [layers.Conv2D(width, 1)(seen.pop())]
    for finer in reversed(seen[1:]):
        above = layers.UpSampling2D()(levels[-1])
        levels.append(layers.Add()([above, layers.Conv2D(width, 1)(finer)]))
    shared = [layers.Conv2D(width, 3, padding="same", activation="relu") for _ in range(4)]
    for layer in shared:
        levels = [layer(level) for level in levels]
    ends = [(layers.Conv2D(9 * each, 3, padding="same"), each) for each in (20, 4)]
    found = [
        layers.Concatenate(1)([layers.Reshape((-1, each))(end(level)) for level in levels])
        for end, each in ends
    ]
    model = keras.Model(picture, found)
    losses = [keras.losses.BinaryFocalCrossentropy(from_logits=True), keras.losses.Huber()]
    model.compile(keras.optimizers.SGD(0.001, momentum=0.9), losses, jit_compile=False)
    boxes = found[0].shape[1]
    kinds = (_numbers(batch, boxes, 20) > 1).astype("float32")
    return KerasTraining(model, _numbers(batch, size, size, 3), [kinds, _numbers(batch, boxes, 4)])


def windows(batch: int = 8, size: int = 64, width: int = 48, window: int = 4) -> KerasTraining:
    """Attention within windows of a picture, shifted every other time, with a learned bias."""
    import keras
    from keras import layers, ops

    class Within(layers.Layer):  # type: ignore[misc]
        """Attention within windows that begin so many pixels further on."""

        def __init__(self, heads: int, shift: int) -> None:
            super().__init__()
            self.heads, self.shift = heads, shift

        def build(self, shape: tuple[int, ...]) -> None:
            self.of_pixels = layers.Dense(3 * shape[-1])
            self.together = layers.Dense(shape[-1])
            self.of_pixels.build(shape)
            self.together.build(shape)
            places = window**2
            self.bias = self.add_weight(shape=(self.heads, places, places), initializer="zeros")

        def call(self, x: Any) -> Any:
            _, height, wide, channels = x.shape
            parts = (-1, height // window, window, wide // window, window, channels)
            x = ops.roll(x, (-self.shift, -self.shift), (1, 2)) if self.shift else x
            x = ops.transpose(ops.reshape(x, parts), (0, 1, 3, 2, 4, 5))
            seen = self.of_pixels(ops.reshape(x, (-1, window**2, channels)))
            each = channels // self.heads
            seen = ops.reshape(seen, (-1, window**2, 3, self.heads, each))
            query, key, value = ops.unstack(ops.transpose(seen, (2, 0, 3, 1, 4)), 3)
            alike = ops.matmul(query, ops.swapaxes(key, -1, -2)) / each**0.5
            found = ops.matmul(ops.softmax(alike + self.bias), value)
            found = ops.reshape(ops.transpose(found, (0, 2, 1, 3)), (-1, window**2, channels))
            found = ops.reshape(self.together(found), (-1, *x.shape[1:]))
            found = ops.reshape(
                ops.transpose(found, (0, 1, 3, 2, 4, 5)), (-1, height, wide, channels)
            )
            return ops.roll(found, (self.shift, self.shift), (1, 2)) if self.shift else found

    picture = keras.Input((size, size, 3))
    x = layers.Conv2D(width, 4, 4)(picture)
    for stage in range(3):
        if stage:
            x = layers.Conv2D(width << stage, 2, 2)(layers.LayerNormalization()(x))
        for shift in (0, window // 2):
            seen = Within((width << stage) // 16, shift)(layers.LayerNormalization()(x))
            x = layers.Add()([x, seen])
            wide = layers.Dense(4 * (width << stage), activation="gelu")
            inner = layers.Dense(width << stage)(wide(layers.LayerNormalization()(x)))
            x = layers.Add()([x, inner])
    x = layers.GlobalAveragePooling2D()(layers.LayerNormalization()(x))
    model = keras.Model(picture, layers.Dense(10)(x))
    features = _numbers(batch, size, size, 3)
    return _classifier(model, features, _classes(10, batch), keras.optimizers.AdamW(0.001))


def radiance(batch: int = 256, samples: int = 48, width: int = 128) -> KerasTraining:
    """A field of light: dense layers at many places of each ray, whose colors are added up."""
    import keras
    from keras import layers, ops

    def waves(x: Any) -> Any:
        return ops.concatenate(
            [x, *(wave(2.0**octave * x) for octave in range(8) for wave in (ops.sin, ops.cos))], -1
        )

    class Seen(layers.Layer):  # type: ignore[misc]
        """The color of a ray: what is dense hides what is behind it."""

        def call(self, density: Any, colors: Any) -> Any:
            hidden = 1 - ops.exp(-ops.relu(density) / samples)
            through = ops.cumprod(1 - hidden + 1e-10, axis=1)
            return ops.sum(hidden * through * colors, axis=1)

    places = keras.Input((samples, 3))
    encoded: Any = layers.Lambda(waves)(places)
    x = encoded
    for half in (1, 2):
        for _ in range(4):
            x = layers.Dense(width, activation="relu")(x)
        x = layers.Concatenate()([x, encoded]) if half == 1 else x
    colors = layers.Dense(3, "sigmoid")(layers.Dense(width // 2, "relu")(x))
    model = keras.Model(places, Seen()(layers.Dense(1)(x), colors))
    model.compile(keras.optimizers.Adam(5e-4), "mse")
    return KerasTraining(model, _numbers(batch, samples, 3), _numbers(batch, 3))


COMPOSED: dict[str, Callable[[], KerasTraining]] = {
    build.__name__: build
    for build in (
        recognizer,
        diffusion,
        capsules,
        adversary,
        private,
        wavenet,
        conformer,
        segmenter,
        keypoints,
        windows,
        detector,
        radiance,
    )
}
"""Builders by name."""
