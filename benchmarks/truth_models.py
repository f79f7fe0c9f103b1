"""More than forty small Keras models of all kinds, with data: what predictions are held against."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from keras_models import MODELS as KERAS_MODELS
from keras_models import KerasTraining, _application, _classes, _classifier, _numbers

if TYPE_CHECKING:
    from collections.abc import Callable

_APPLICATIONS = {
    "VGG16": (4, 32),
    "VGG19": (4, 32),
    "ResNet101": (2, 32),
    "ResNet50V2": (4, 32),
    "InceptionResNetV2": (2, 75),
    "Xception": (2, 71),
    "MobileNet": (4, 64),
    "MobileNetV3Small": (4, 64),
    "MobileNetV3Large": (4, 64),
    "DenseNet169": (2, 32),
    "EfficientNetB1": (2, 64),
    "EfficientNetV2B0": (2, 64),
    "EfficientNetV2S": (2, 32),
    "NASNetMobile": (2, 64),
}


def _regression(model: Any, features: Any, labels: Any, optimizer: Any = None) -> KerasTraining:
    import keras

    model.compile(optimizer or keras.optimizers.Adam(1e-3), "mse", jit_compile=False)
    return KerasTraining(model, features, labels)


def wavenet() -> KerasTraining:
    """Gated dilated convolutions whose skips meet at the end."""
    import keras
    from keras import layers

    value = inputs = keras.Input((256, 16))
    value, skips = layers.Conv1D(32, 1)(value), []
    for number in range(8):
        dilated = partial(layers.Conv1D, 32, 2, dilation_rate=2 ** (number % 4), padding="causal")
        gated = layers.Multiply()([dilated(activation=a)(value) for a in ("tanh", "sigmoid")])
        skip = layers.Conv1D(32, 1)(gated)
        skips.append(skip)
        value = layers.Add()([value, skip])
    outputs = layers.Conv1D(16, 1)(layers.Activation("relu")(layers.Add()(skips)))
    return _regression(keras.Model(inputs, outputs), _numbers(8, 256, 16), _numbers(8, 256, 16))


def branches() -> KerasTraining:
    """Four convolutions side by side, again and again."""
    import keras
    from keras import layers

    value = inputs = keras.Input((32, 32, 3))
    value = layers.Conv2D(16, 3, padding="same")(value)
    for _ in range(4):
        ways = [
            layers.Activation(name)(layers.Conv2D(16, 3, padding="same")(value))
            for name in ("relu", "tanh", "gelu", "elu")
        ]
        value = layers.BatchNormalization()(layers.Add()(ways))
    outputs = layers.Dense(10)(layers.GlobalAveragePooling2D()(value))
    return _classifier(keras.Model(inputs, outputs), _numbers(8, 32, 32, 3), _classes(10, 8))


def mixer() -> KerasTraining:
    """Layers that mix patches and channels in turns."""
    import keras
    from keras import layers

    value = inputs = keras.Input((32, 32, 3))
    value = layers.Reshape((16, 64))(layers.Conv2D(64, 8, 8)(value))
    for _ in range(4):
        mixed = layers.Permute((2, 1))(layers.LayerNormalization()(value))
        mixed = layers.Dense(16)(layers.Dense(32, activation="gelu")(mixed))
        value = layers.Add()([value, layers.Permute((2, 1))(mixed)])
        mixed = layers.Dense(128, activation="gelu")(layers.LayerNormalization()(value))
        value = layers.Add()([value, layers.Dense(64)(mixed)])
    outputs = layers.Dense(10)(layers.GlobalAveragePooling1D()(value))
    return _classifier(
        keras.Model(inputs, outputs),
        _numbers(16, 32, 32, 3),
        _classes(10, 16),
        keras.optimizers.AdamW(1e-3),
    )


def _recurrent(make: Callable[[Any], Any]) -> KerasTraining:
    import keras
    from keras import layers

    inputs = keras.Input((24, 16))
    outputs = layers.Dense(10)(make(layers)(inputs))
    return _classifier(keras.Model(inputs, outputs), _numbers(16, 24, 16), _classes(10, 16))


def gru() -> KerasTraining:
    """A recurrent layer."""
    return _recurrent(lambda layers: layers.GRU(32))


def unrolled_lstm() -> KerasTraining:
    """A recurrent layer without a loop."""
    return _recurrent(lambda layers: layers.LSTM(32, unroll=True))


def bidirectional() -> KerasTraining:
    """Two loops, one of them backwards."""
    return _recurrent(lambda layers: layers.Bidirectional(layers.LSTM(16)))


def video() -> KerasTraining:
    """A recurrent layer of convolutions."""
    import keras
    from keras import layers

    inputs = keras.Input((6, 16, 16, 3))
    value = layers.ConvLSTM2D(8, 3, padding="same")(inputs)
    outputs = layers.Dense(10)(layers.GlobalAveragePooling2D()(value))
    return _classifier(keras.Model(inputs, outputs), _numbers(4, 6, 16, 16, 3), _classes(10, 4))


def volumes() -> KerasTraining:
    """Convolutions and poolings in three dimensions."""
    import keras
    from keras import layers

    value = inputs = keras.Input((16, 16, 16, 1))
    for width in (8, 16):
        value = layers.Conv3D(width, 3, padding="same", activation="relu")(value)
        value = layers.MaxPooling3D()(layers.BatchNormalization()(value))
    value = layers.Conv3DTranspose(8, 2, 2)(value)
    outputs = layers.Dense(10)(layers.GlobalMaxPooling3D()(value))
    return _classifier(keras.Model(inputs, outputs), _numbers(4, 16, 16, 16, 1), _classes(10, 4))


def translation() -> KerasTraining:
    """A decoder that attends to an encoder."""
    import keras
    from keras import layers

    given, target = keras.Input((24, 32)), keras.Input((20, 32))

    def block(value: Any, memory: Any) -> Any:
        attended = layers.MultiHeadAttention(4, 8)(value, memory)
        value = layers.LayerNormalization()(layers.Add()([value, attended]))
        wide = layers.Dense(32)(layers.Dense(96, activation="gelu")(value))
        return layers.LayerNormalization()(layers.Add()([value, wide]))

    memory = block(block(given, given), given)
    value = block(block(target, target), memory)
    outputs = layers.Dense(12)(block(value, memory))
    return _regression(
        keras.Model([given, target], outputs),
        [_numbers(8, 24, 32), _numbers(8, 20, 32)],
        _numbers(8, 20, 12),
    )


def llama() -> KerasTraining:
    """Attention of groups, root-mean-square normalization and gated layers."""
    import keras
    from keras import layers

    tokens = keras.Input((24,), dtype="int32")
    value = layers.Embedding(100, 32)(tokens)
    for _ in range(3):
        normal = layers.RMSNormalization()(value)
        attended = layers.GroupQueryAttention(8, 4, 2)(normal, normal, use_causal_mask=True)
        value = layers.Add()([value, attended])
        normal = layers.RMSNormalization()(value)
        gated = layers.Multiply()(
            [layers.Dense(64, activation="silu")(normal), layers.Dense(64)(normal)]
        )
        value = layers.Add()([value, layers.Dense(32)(gated)])
    outputs = layers.Dense(100)(value)
    return _classifier(
        keras.Model(tokens, outputs),
        _classes(100, 8, 24),
        _classes(100, 8, 24),
        keras.optimizers.AdamW(1e-3),
    )


def variational() -> KerasTraining:
    """An autoencoder with noise in the middle and a decoder of transposed convolutions."""
    import keras
    from keras import layers

    value = inputs = keras.Input((16, 16, 3))
    for width in (16, 32):
        value = layers.Conv2D(width, 3, 2, padding="same", activation="relu")(value)
    middle = layers.GaussianNoise(0.5)(layers.Dense(16)(layers.Flatten()(value)))
    value = layers.Reshape((4, 4, 32))(layers.Dense(512, activation="relu")(middle))
    for width in (16, 3):
        value = layers.Conv2DTranspose(width, 3, 2, padding="same", activation="tanh")(value)
    images = _numbers(8, 16, 16, 3)
    return _regression(keras.Model(inputs, value), images, images)


def recommendation() -> KerasTraining:
    """Embeddings of several features, their products, and dense layers."""
    import keras
    from keras import layers

    users, items = keras.Input((), dtype="int32"), keras.Input((6,), dtype="int32")
    user, item = layers.Embedding(200, 16)(users), layers.Embedding(300, 16)(items)
    both = layers.Dot(axes=(1, 2))([user, item])
    value = layers.Concatenate()([user, layers.Flatten()(item), both])
    for width in (64, 32):
        value = layers.Dropout(0.2)(layers.Dense(width, activation="relu")(value))
    return _regression(
        keras.Model([users, items], layers.Dense(1)(value)),
        [_classes(200, 64), _classes(300, 64, 6)],
        _numbers(64, 1),
        keras.optimizers.Adagrad(0.01),
    )


def experts() -> KerasTraining:
    """Several dense layers, weighed by another."""
    import keras
    from keras import layers

    value = inputs = keras.Input((32,))
    for _ in range(3):
        ways = [layers.Dense(48, activation="gelu")(value) for _ in range(4)]
        weights = layers.Dense(4, activation="softmax")(value)
        stacked = keras.ops.stack(ways, axis=1)
        value = keras.ops.sum(stacked * keras.ops.expand_dims(weights, -1), axis=1)
    outputs = layers.Dense(10)(value)
    return _classifier(
        keras.Model(inputs, outputs), _numbers(64, 32), _classes(10, 64), keras.optimizers.Lamb()
    )


def siamese() -> KerasTraining:
    """One network called twice."""
    import keras
    from keras import layers

    one, other = keras.Input((24, 24, 3)), keras.Input((24, 24, 3))
    tower = keras.Sequential(
        [
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.SeparableConv2D(24, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(16),
        ]
    )
    outputs = layers.Dense(1)(keras.ops.abs(tower(one) - tower(other)))
    images = _numbers(8, 24, 24, 3)
    return _regression(keras.Model([one, other], outputs), [images, images[::-1]], _numbers(8, 1))


def words() -> KerasTraining:
    """Convolutions of several widths over words."""
    import keras
    from keras import layers

    tokens = keras.Input((40,), dtype="int32")
    value = layers.SpatialDropout1D(0.1)(layers.Embedding(200, 24)(tokens))
    ways = [
        layers.GlobalMaxPooling1D()(layers.Conv1D(24, width, activation="relu")(value))
        for width in (2, 3, 4)
    ]
    outputs = layers.Dense(10)(layers.Dropout(0.3)(layers.Concatenate()(ways)))
    return _classifier(
        keras.Model(tokens, outputs), _classes(200, 16, 40), _classes(10, 16), "rmsprop"
    )


def excitation() -> KerasTraining:
    """Residual blocks that weigh their channels, with group normalization."""
    import keras
    from keras import layers

    value = inputs = keras.Input((24, 24, 3))
    value = layers.Conv2D(24, 3, padding="same")(value)
    for _ in range(3):
        inner = layers.Conv2D(24, 3, padding="same", use_bias=False)(value)
        inner = layers.Activation("swish")(layers.GroupNormalization(4)(inner))
        scale = layers.GlobalAveragePooling2D(keepdims=True)(inner)
        scale = layers.Conv2D(24, 1, activation="sigmoid")(
            layers.Conv2D(6, 1, activation="relu")(scale)
        )
        value = layers.Add()([value, layers.Multiply()([inner, scale])])
        value = layers.AveragePooling2D(3, 1, padding="same")(value)
    outputs = layers.Dense(10)(layers.GlobalAveragePooling2D()(value))
    return _classifier(
        keras.Model(inputs, outputs), _numbers(8, 24, 24, 3), _classes(10, 8), "nadam"
    )


def pyramid() -> KerasTraining:
    """Features of several sizes, resized and summed."""
    import keras
    from keras import layers

    value = inputs = keras.Input((32, 32, 3))
    sides = []
    for width in (12, 24, 36):
        value = layers.Conv2D(width, 3, 2, padding="same", activation="relu")(value)
        sides.append(layers.Conv2D(12, 1)(value))
    value = sides[-1]
    for side in reversed(sides[:-1]):
        value = layers.Add()([layers.UpSampling2D(interpolation="bilinear")(value), side])
    outputs = layers.Conv2D(2, 3, padding="same")(layers.ZeroPadding2D(1)(value))
    outputs = layers.Cropping2D(1)(outputs)
    return _regression(keras.Model(inputs, outputs), _numbers(4, 32, 32, 3), _numbers(4, 16, 16, 2))


def fields() -> KerasTraining:
    """Sines of coordinates, as in neural fields."""
    import keras
    from keras import layers

    value = inputs = keras.Input((3,))
    for _ in range(6):
        value = keras.ops.sin(3.0 * layers.Dense(48)(value))
    outputs = layers.Dense(3)(keras.ops.concatenate([value, keras.ops.cos(value)], axis=-1))
    return _regression(
        keras.Model(inputs, outputs), _numbers(512, 3), _numbers(512, 3), keras.optimizers.Lion()
    )


def tabular() -> KerasTraining:
    """Dense layers of all activations with normalization and dropout."""
    import keras
    from keras import layers

    value = inputs = keras.Input((30,))
    for name in ("relu", "selu", "softplus", "mish", "leaky_relu", "softsign"):
        value = layers.BatchNormalization()(layers.Dense(64, activation=name)(value))
        value = layers.AlphaDropout(0.1)(value)
    return _classifier(
        keras.Model(inputs, layers.Dense(10)(value)),
        _numbers(256, 30),
        _classes(10, 256),
        keras.optimizers.Ftrl(),
    )


def grouped() -> KerasTraining:
    """Convolutions of groups, which Keras has XLA compile on a host."""
    import keras
    from keras import layers

    value = inputs = keras.Input((16, 16, 32))
    for _ in range(3):
        inner = layers.Conv2D(32, 5, padding="same", groups=8)(value)
        value = layers.Add()([value, layers.Activation("gelu")(inner)])
    outputs = layers.Dense(10)(layers.GlobalAveragePooling2D()(value))
    return _classifier(keras.Model(inputs, outputs), _numbers(4, 16, 16, 32), _classes(10, 4))


MODELS: dict[str, Callable[[], KerasTraining]] = {
    **KERAS_MODELS,
    **{
        name.lower(): partial(_application, name, batch, size)
        for name, (batch, size) in _APPLICATIONS.items()
    },
    **{
        function.__name__: function
        for function in (
            *(wavenet, branches, mixer, gru, unrolled_lstm, bidirectional, video, volumes),
            *(translation, llama, variational, recommendation, experts, siamese, words),
            *(excitation, pyramid, fields, tabular, grouped),
        )
    },
}
"""Builders by name."""
