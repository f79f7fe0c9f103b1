"""Small convolutional networks that tutorials train, with data for them."""

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

    def convolved(features: Any, width: int, stride: int = 1) -> Any:
        convolution = layers.Conv2D(width, 3, stride, padding="same", use_bias=False)
        return layers.BatchNormalization()(convolution(features))

    pictures = keras.Input((32, 32, 3))
    features = layers.ReLU()(convolved(pictures, 16))
    for number in range(9):
        width, before = 16 << number // 3, features.shape[-1]
        stride = 1 + (width > before)
        added = convolved(layers.ReLU()(convolved(features, width, stride)), width)
        if width > before:
            features = layers.Conv2D(width, 1, stride, padding="same")(features)
        features = layers.ReLU()(layers.Add()([features, added]))
    classes = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(features))
    model = keras.Model(pictures, classes)
    return _classifier(model, keras.optimizers.SGD(0.1, momentum=0.9))


TUTORIALS: dict[str, Callable[[], KerasTraining]] = {
    function.__name__: function for function in (mnist, cifar10, resnet20)
}
"""Builders by name."""
