"""Keras models beyond `models/`, with data for them, in sizes for a small machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import keras


@dataclass(frozen=True)
class KerasTraining:
    """A compiled model and one batch for it.

    Attributes:
        model: The model, compiled without XLA.
        features: One batch of what it reads.
        labels: One batch of what it is to answer.
    """

    model: keras.Model
    features: Any
    labels: Any


def _numbers(*shape: int) -> Any:
    import numpy as np

    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _classes(most: int, *shape: int) -> Any:
    import numpy as np

    return np.random.default_rng(1).integers(most, size=shape).astype(np.int32)


def _classifier(
    model: keras.Model, features: Any, labels: Any, optimizer: Any = None
) -> KerasTraining:
    import keras

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = optimizer or keras.optimizers.SGD(0.01, momentum=0.9)
    model.compile(optimizer, loss, jit_compile=False)
    return KerasTraining(model, features, labels)


def _application(name: str, batch: int, size: int) -> KerasTraining:
    import keras

    shape = (size, size, 3)
    model = getattr(keras.applications, name)(
        weights=None, input_shape=shape, classes=10, classifier_activation=None
    )
    return _classifier(model, _numbers(batch, *shape), _classes(10, batch))


def resnet50(batch: int = 8, size: int = 64) -> KerasTraining:
    """ResNet50 on small pictures."""
    return _application("ResNet50", batch, size)


def inceptionv3(batch: int = 8, size: int = 96) -> KerasTraining:
    """Branches side by side."""
    return _application("InceptionV3", batch, size)


def mobilenetv2(batch: int = 8, size: int = 64) -> KerasTraining:
    """Convolutions by channel, and few channels between them."""
    return _application("MobileNetV2", batch, size)


def densenet121(batch: int = 8, size: int = 64) -> KerasTraining:
    """Concatenations of all that was before."""
    return _application("DenseNet121", batch, size)


def efficientnetb0() -> KerasTraining:
    """Squeeze and excitation."""
    return _application("EfficientNetB0", 8, 64)


def convnexttiny() -> KerasTraining:
    """Convolutions of 7 x 7 in as many groups as channels."""
    return _application("ConvNeXtTiny", 4, 64)


def _attention_block(features: Any, heads: int, width: int, *, causal: bool = False) -> Any:
    from keras import layers

    normal = layers.LayerNormalization()(features)
    attended = layers.MultiHeadAttention(heads, width // heads)(
        normal, normal, use_causal_mask=causal
    )
    features = features + layers.Dropout(0.1)(attended)
    hidden = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(features))
    return features + layers.Dense(width)(hidden)


def vit(batch: int = 16, size: int = 64, width: int = 128, blocks: int = 6) -> KerasTraining:
    """A small vision transformer: patches of 8 x 8."""
    import keras
    from keras import layers

    patch = 8
    pictures = keras.Input((size, size, 3))
    tokens = layers.Conv2D(width, patch, patch)(pictures)
    features = layers.Reshape(((size // patch) ** 2, width))(tokens)
    for _ in range(blocks):
        features = _attention_block(features, 4, width)
    pooled = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(features))
    model = keras.Model(pictures, layers.Dense(10)(pooled))
    optimizer = keras.optimizers.AdamW(1e-3)
    return _classifier(model, _numbers(batch, size, size, 3), _classes(10, batch), optimizer)


def _language_model(
    batch: int, tokens: int, width: int, blocks: int, *, causal: bool
) -> KerasTraining:
    import keras
    from keras import layers

    vocabulary = 1000
    token_ids = keras.Input((tokens,), dtype="int32")
    features = layers.Embedding(vocabulary, width)(token_ids)
    for _ in range(blocks):
        features = _attention_block(features, 4, width, causal=causal)
    model = keras.Model(token_ids, layers.Dense(vocabulary)(features))
    data = _classes(vocabulary, batch, tokens)
    return _classifier(model, data, data, keras.optimizers.Adam(1e-3))


def bert(batch: int = 16, tokens: int = 64, width: int = 128, blocks: int = 4) -> KerasTraining:
    """A small encoder that names every token."""
    return _language_model(batch, tokens, width, blocks, causal=False)


def gpt(batch: int = 16, tokens: int = 64, width: int = 128, blocks: int = 4) -> KerasTraining:
    """A small decoder."""
    return _language_model(batch, tokens, width, blocks, causal=True)


def unet(batch: int = 4, size: int = 96) -> KerasTraining:
    """Down and up again, with what was before beside it."""
    import keras
    from keras import layers

    def two(features: Any, width: int) -> Any:
        for _ in range(2):
            features = layers.Conv2D(width, 3, padding="same", use_bias=False)(features)
            features = layers.ReLU()(layers.BatchNormalization()(features))
        return features

    pictures = keras.Input((size, size, 3))
    features, kept = pictures, []
    for depth in range(3):
        features = two(features, 16 << depth)
        kept.append(features)
        features = layers.MaxPooling2D()(features)
    features = two(features, 128)
    for depth in reversed(range(3)):
        features = layers.Conv2DTranspose(16 << depth, 2, 2)(features)
        features = two(layers.Concatenate()([features, kept[depth]]), 16 << depth)
    model = keras.Model(pictures, layers.Conv2D(4, 1)(features))
    return _classifier(model, _numbers(batch, size, size, 3), _classes(4, batch, size, size))


def mlp(batch: int = 1024, width: int = 256) -> KerasTraining:
    """A deep stack of dense layers."""
    import keras

    dense = [keras.layers.Dense(width, activation="relu") for _ in range(24)]
    model = keras.Sequential([keras.Input((width,)), *dense, keras.layers.Dense(10)])
    return _classifier(model, _numbers(batch, width), _classes(10, batch))


def lstm() -> KerasTraining:
    """Two recurrent layers: loops."""
    import keras
    from keras import layers

    batch, tokens, width, vocabulary = 32, 32, 128, 500
    token_ids = keras.Input((tokens,), dtype="int32")
    features = layers.Embedding(vocabulary, width)(token_ids)
    for _ in range(2):
        features = layers.LSTM(width, return_sequences=True)(features)
    model = keras.Model(token_ids, layers.Dense(vocabulary)(features))
    data = _classes(vocabulary, batch, tokens)
    return _classifier(model, data, data)


def gru() -> KerasTraining:
    """Two recurrent layers over a long series, with dropout between turns."""
    import keras
    from keras import layers

    batch, steps, width = 32, 96, 192
    series = keras.Input((steps, 16))
    features = layers.GRU(width, return_sequences=True, recurrent_dropout=0.1)(series)
    features = layers.GRU(width)(features)
    model = keras.Model(series, layers.Dense(10)(features))
    return _classifier(model, _numbers(batch, steps, 16), _classes(10, batch))


def bidirectional() -> KerasTraining:
    """A tagger: words from both sides."""
    import keras
    from keras import layers

    batch, tokens, width, vocabulary = 32, 64, 128, 500
    token_ids = keras.Input((tokens,), dtype="int32")
    features = layers.Embedding(vocabulary, width, mask_zero=True)(token_ids)
    for _ in range(2):
        features = layers.Bidirectional(layers.LSTM(width, return_sequences=True))(features)
    model = keras.Model(token_ids, layers.Dense(32)(features))
    return _classifier(model, _classes(vocabulary, batch, tokens), _classes(32, batch, tokens))


def convlstm() -> KerasTraining:
    """Pictures of a film: convolutions in each turn."""
    import keras
    from keras import layers

    batch, frames, size = 4, 16, 24
    film = keras.Input((frames, size, size, 3))
    features = layers.ConvLSTM2D(16, 3, padding="same", return_sequences=True)(film)
    features = layers.ConvLSTM2D(16, 3, padding="same")(features)
    model = keras.Model(film, layers.Dense(10)(layers.GlobalAveragePooling2D()(features)))
    return _classifier(model, _numbers(batch, frames, size, size, 3), _classes(10, batch))


def graph_network() -> KerasTraining:
    """Messages along the edges of a graph, summed by segment."""
    import keras
    from keras import layers

    nodes, edges, width = 2000, 12000, 64
    ends = _classes(nodes, 2, edges)

    class Messages(layers.Layer):  # type: ignore[misc] # Keras has no types
        """What the neighbours of each node say, summed."""

        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(width, activation="relu")

        def call(self, features: Any) -> Any:
            """Gather along edges, transform, sum."""
            sent = self.dense(keras.ops.take(features, ends[0], axis=0))
            return features + keras.ops.segment_sum(sent, ends[1], num_segments=nodes)

    inputs = keras.Input(batch_shape=(nodes, 16))
    features = layers.Dense(width)(inputs)
    for _ in range(5):
        features = Messages()(features)
    model = keras.Model(inputs, layers.Dense(7)(features))
    return _classifier(model, _numbers(nodes, 16), _classes(7, nodes), keras.optimizers.Adam(1e-3))


def autoencoder() -> KerasTraining:
    """Convolutions with strides, and transposed ones."""
    import keras
    from keras import layers

    batch, size = 16, 64
    pictures = keras.Input((size, size, 3))
    features = pictures
    for width in (32, 64, 128):
        features = layers.Conv2D(width, 3, 2, padding="same", activation="relu")(features)
    for width in (64, 32, 16):
        features = layers.Conv2DTranspose(width, 3, 2, padding="same", activation="relu")(features)
    model = keras.Model(pictures, layers.Conv2D(3, 3, padding="same")(features))
    model.compile(keras.optimizers.Adam(1e-3), "mse", jit_compile=False)
    data = _numbers(batch, size, size, 3)
    return KerasTraining(model, data, data)


def accumulation() -> KerasTraining:
    """Convolutions whose gradients are summed over two steps: the optimizer has a branch."""
    import keras
    from keras import layers

    batch, size, width = 16, 48, 32
    model = keras.Sequential([keras.Input((size, size, 3))])
    for _ in range(3):
        model.add(layers.Conv2D(width, 3, padding="same"))
        model.add(layers.BatchNormalization())
        model.add(layers.Activation("relu"))
        model.add(layers.Conv2D(width, 3, padding="same", activation="relu"))
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(10))
    optimizer = keras.optimizers.Adam(1e-3, gradient_accumulation_steps=2)
    return _classifier(model, _numbers(batch, size, size, 3), _classes(10, batch), optimizer)


def recommender() -> KerasTraining:
    """Embeddings and a perceptron, as DLRM; Adagrad gathers their gradients in branches."""
    import keras
    from keras import layers

    batch, tables, words, width, numbers = 2048, 6, 5000, 32, 13
    dense = keras.Input((numbers,))
    categories = [keras.Input((8,), dtype="int32") for _ in range(tables)]
    features = dense
    for units in (256, 128, width):
        features = layers.Dense(units, activation="relu")(features)
    vectors = [features]
    for category in categories:
        embedded = layers.Embedding(words, width)(category)
        vectors.append(layers.GlobalAveragePooling1D()(embedded))
    stacked = keras.ops.stack(vectors, 1)
    products = keras.ops.matmul(stacked, keras.ops.transpose(stacked, (0, 2, 1)))
    hidden = layers.Concatenate()([features, layers.Flatten()(products)])
    for units in (512, 256):
        hidden = layers.Dense(units, activation="relu")(hidden)
        hidden = layers.BatchNormalization()(hidden)
    model = keras.Model([dense, *categories], layers.Dense(2)(hidden))
    data = [_numbers(batch, numbers), *(_classes(words, batch, 8) for _ in range(tables))]
    return _classifier(model, data, _classes(2, batch), keras.optimizers.Adagrad(0.01))


def loss_scaling() -> KerasTraining:
    """Residual convolutions; the optimizer updates nothing in a step that overflows: a branch."""
    import keras
    from keras import layers

    batch, size = 16, 64
    image = keras.Input((size, size, 3))
    features = layers.Conv2D(32, 3, padding="same")(image)
    for width in (32, 64, 96):
        for _ in range(2):
            before = features
            features = layers.Conv2D(width, 3, padding="same")(features)
            features = layers.Activation("relu")(layers.BatchNormalization()(features))
            if before.shape[-1] != width:
                before = layers.Conv2D(width, 1)(before)
            features = layers.Add()([before, features])
        features = layers.MaxPooling2D()(features)
    logits = layers.Dense(10)(layers.GlobalAveragePooling2D()(features))
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(1e-3))
    model = keras.Model(image, logits)
    return _classifier(model, _numbers(batch, size, size, 3), _classes(10, batch), optimizer)


def pointnet(batch: int = 16, points: int = 1024) -> KerasTraining:
    """Points in space, turned by matrices that are learned: wide results for each point."""
    import keras
    from keras import layers

    def normalized(features: Any) -> Any:
        return layers.ReLU()(layers.BatchNormalization()(features))

    def of_points(features: Any, *widths: int) -> Any:
        for width in widths:
            features = normalized(layers.Conv1D(width, 1)(features))
        return features

    def turned(features: Any, width: int) -> Any:
        seen = layers.GlobalMaxPooling1D()(of_points(features, 32, 64, 256))
        for hidden in (128, 64):
            seen = normalized(layers.Dense(hidden)(seen))
        matrix = layers.Reshape((width, width))(layers.Dense(width * width)(seen))
        return layers.Dot((2, 1))([features, matrix])

    inputs = keras.Input((points, 3))
    features = turned(of_points(turned(inputs, 3), 32, 32), 32)
    seen = layers.GlobalMaxPooling1D()(of_points(features, 32, 64, 256))
    logits = layers.Dense(10)(normalized(layers.Dense(64)(seen)))
    model = keras.Model(inputs, logits)
    return _classifier(model, _numbers(batch, points, 3), _classes(10, batch), "adam")


MODELS: dict[str, Callable[[], KerasTraining]] = {
    function.__name__: function
    for function in (
        resnet50,
        inceptionv3,
        mobilenetv2,
        densenet121,
        efficientnetb0,
        convnexttiny,
        vit,
        bert,
        gpt,
        unet,
        autoencoder,
        accumulation,
        loss_scaling,
        recommender,
        mlp,
        lstm,
        gru,
        bidirectional,
        convlstm,
        graph_network,
        pointnet,
    )
}
"""Builders by name."""
