"""Small networks that tutorials train, with data for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_models import KerasTraining

if TYPE_CHECKING:
    from collections.abc import Callable

    import keras


def _classifier(model: keras.Model, optimizer: Any, batch: int = 32) -> KerasTraining:
    """A classifier of images, a batch of them, and what they are."""
    import numpy as np

    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    rng = np.random.default_rng(0)
    features = rng.random((batch, *model.input_shape[1:]), np.float32)
    return KerasTraining(model, features, rng.integers(0, 10, batch).astype(np.int32))


def _convolved(features: Any, width: int, stride: int = 1) -> Any:
    """What a convolution makes of features, normalized."""
    from keras import layers

    convolution = layers.Conv2D(width, 3, stride, padding="same", use_bias=False)
    return layers.BatchNormalization()(convolution(features))


def mnist() -> KerasTraining:
    """Two convolutions for digits, as Keras' first example has them."""
    import keras
    from keras import layers

    stack = [
        *(layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D()),
        *(layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D()),
        *(layers.Flatten(), layers.Dropout(0.5), layers.Dense(10, activation="softmax")),
    ]
    model = keras.Sequential([keras.Input((28, 28, 1)), *stack])
    return _classifier(model, "adam", batch=128)


def cifar10() -> KerasTraining:
    """Four convolutions for small pictures."""
    import keras
    from keras import layers

    stack: list[Any] = []
    for width in (32, 64):
        stack += [
            layers.Conv2D(width, 3, padding="same", activation="relu"),
            layers.Conv2D(width, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.25),
        ]
    stack += [layers.Flatten(), layers.Dense(512, activation="relu"), layers.Dropout(0.5)]
    stack.append(layers.Dense(10, activation="softmax"))
    model = keras.Sequential([keras.Input((32, 32, 3)), *stack])
    return _classifier(model, "rmsprop")


def resnet20() -> KerasTraining:
    """The residual network for small pictures, with three blocks of each width."""
    import keras
    from keras import layers

    pictures = keras.Input((32, 32, 3))
    features = layers.ReLU()(_convolved(pictures, 16))
    for number in range(9):
        width, before = 16 << number // 3, features.shape[-1]
        stride = 1 + (width > before)
        added = _convolved(layers.ReLU()(_convolved(features, width, stride)), width)
        if width > before:
            features = layers.Conv2D(width, 1, stride, padding="same")(features)
        features = layers.ReLU()(layers.Add()([features, added]))
    classes = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(features))
    model = keras.Model(pictures, classes)
    return _classifier(model, keras.optimizers.SGD(0.1, momentum=0.9))


def contrastive(batch: int = 24, size: int = 48) -> KerasTraining:
    """Pictures told from others by two noisy views of each, with five residual blocks (SimCLR)."""
    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    pictures = keras.Input((size, size, 3))
    features = pictures
    for width, stride in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1)):
        added = _convolved(layers.ReLU()(_convolved(features, width, stride)), width)
        shown = layers.Conv2D(width, 1, stride)(features)
        features = layers.ReLU()(layers.Add()([added, shown]))
    described = layers.Dense(128, activation="relu")(layers.GlobalAveragePooling2D()(features))
    encoder = keras.Model(pictures, layers.Dense(64)(described))

    class Views(keras.Model):  # type: ignore[misc]
        """How alike two views of all pictures are."""

        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder

        def call(self, pictures: Any, training: bool | None = None) -> Any:
            described = [
                tf.math.l2_normalize(self.encoder(self.view(pictures, seed), training=training), -1)
                for seed in (5, 6)
            ]
            together = tf.concat(described, 0)
            return tf.matmul(together, together, transpose_b=True) / 0.1

        def view(self, pictures: Any, seed: int) -> Any:
            turned = tf.image.stateless_random_flip_left_right(pictures, (seed, 1))
            seen = tf.image.stateless_random_contrast(turned, 0.6, 1.4, (seed, 2))
            return seen + 0.1 * tf.random.stateless_normal(tf.shape(seen), (seed, 3))

    def loss(_: Any, alike: Any) -> Any:
        others = alike - 1e9 * tf.eye(2 * batch)
        same = tf.concat([tf.range(batch, 2 * batch), tf.range(batch)], 0)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(same, others))

    model = Views()
    model.compile(keras.optimizers.Lion(1e-4), loss, jit_compile=False)
    data = np.random.default_rng(0).standard_normal((batch, size, size, 3), np.float32)
    return KerasTraining(model, data, np.zeros(batch, np.float32))


def nbeats(batch: int = 256, length: int = 96, width: int = 256) -> KerasTraining:
    """Dense stacks for time series, each on what the ones before did not explain (N-BEATS)."""
    import keras
    import numpy as np
    from keras import layers

    left = keras.Input((length,))
    inputs, forecasts = left, []
    for _ in range(10):
        features = left
        for _ in range(4):
            features = layers.Dense(width, activation="relu")(features)
        left = layers.Subtract()([left, layers.Dense(length)(features)])
        forecasts.append(layers.Dense(24)(features))
    model = keras.Model(inputs, layers.Add()(forecasts))
    model.compile("adam", "mae", jit_compile=False)
    rng = np.random.default_rng(0)
    series, next_values = (rng.standard_normal((batch, size), np.float32) for size in (length, 24))
    return KerasTraining(model, series, next_values)


def graph_attention(nodes: int = 1500, edges: int = 9000, width: int = 64) -> KerasTraining:
    """Attention of each node of a graph to its neighbours, four heads of it."""
    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers, ops

    rng = np.random.default_rng(1)
    senders, receivers = rng.integers(nodes, size=(2, edges)).astype(np.int32)
    heads = 4

    class Attention(layers.Layer):  # type: ignore[misc] # Keras has no types
        """What the neighbours say, weighed by a softmax over each node's edges."""

        def __init__(self) -> None:
            super().__init__()
            self.project = layers.Dense(width * heads)
            self.sent, self.received = layers.Dense(1), layers.Dense(1)

        def call(self, features: Any) -> Any:
            said = ops.reshape(self.project(features), (nodes, heads, width))
            scores = ops.take(self.sent(said), senders, axis=0)
            scores = ops.leaky_relu(scores + ops.take(self.received(said), receivers, axis=0))
            most = tf.math.unsorted_segment_max(scores, receivers, nodes)
            weights = ops.exp(scores - ops.take(most, receivers, axis=0))
            sums = ops.segment_sum(weights, receivers, num_segments=nodes)
            weights = weights / (ops.take(sums, receivers, axis=0) + 1e-9)
            heard = weights * ops.take(said, senders, axis=0)
            heard = ops.segment_sum(heard, receivers, num_segments=nodes)
            return ops.elu(ops.mean(heard, axis=1))

    inputs = features = keras.Input(batch_shape=(nodes, 32))
    for _ in range(3):
        features = Attention()(features)
    model = keras.Model(inputs, layers.Dense(10, activation="softmax")(features))
    return _classifier(model, keras.optimizers.Adam(1e-3), nodes)


def resnext(batch: int = 8, size: int = 64) -> KerasTraining:
    """Residual blocks with convolutions of groups, which Keras has XLA compile on a CPU."""
    import keras
    from keras import layers

    inputs = keras.Input(batch_shape=(batch, size, size, 3))
    features = layers.ReLU()(_convolved(inputs, 32, 2))
    for width, blocks in ((64, 2), (128, 3), (256, 3)):
        for number in range(blocks):
            stride = 2 if number == 0 and width > 64 else 1  # noqa: PLR2004 - the first width
            inner = layers.Conv2D(width // 2, 1, use_bias=False)(features)
            inner = layers.ReLU()(layers.BatchNormalization()(inner))
            inner = layers.Conv2D(width // 2, 3, stride, padding="same", groups=8, use_bias=False)(
                inner
            )
            inner = layers.ReLU()(layers.BatchNormalization()(inner))
            inner = layers.Conv2D(width, 1, use_bias=False)(inner)
            inner = layers.BatchNormalization()(inner)
            if number == 0:
                features = layers.Conv2D(width, 1, stride, use_bias=False)(features)
                features = layers.BatchNormalization()(features)
            features = layers.ReLU()(inner + features)
    features = layers.GlobalAveragePooling2D()(features)
    model = keras.Model(inputs, layers.Dense(10, activation="softmax")(features))
    return _classifier(model, keras.optimizers.SGD(0.1, momentum=0.9), batch)


def kan(batch: int = 512, width: int = 64, centers: int = 8) -> KerasTraining:
    """A Kolmogorov-Arnold network: each weight is a sum of radial functions of its input."""
    import keras
    import numpy as np
    from keras import layers, ops

    class Radial(layers.Layer):  # type: ignore[misc] # Keras has no types
        """A linear layer of radial functions of each number, and of the numbers themselves."""

        def __init__(self) -> None:
            super().__init__()
            self.curved, self.straight = layers.Dense(width), layers.Dense(width)

        def call(self, features: Any) -> Any:
            places = np.linspace(-2, 2, centers, dtype=np.float32)
            near = ops.exp(-ops.square((features[..., None] - places) * 1.75))
            near = ops.reshape(near, (batch, -1))
            return self.curved(near) + self.straight(ops.silu(features))

    inputs = features = keras.Input(batch_shape=(batch, width))
    for _ in range(6):
        features = layers.LayerNormalization()(Radial()(features))
    model = keras.Model(inputs, layers.Dense(10, activation="softmax")(features))
    return _classifier(model, keras.optimizers.Adam(1e-3), batch)


TUTORIALS: dict[str, Callable[[], KerasTraining]] = {
    function.__name__: function
    for function in (mnist, cifar10, resnet20, contrastive, nbeats, graph_attention, resnext, kan)
}
"""Builders by name."""
