"""Small training steps, one for each kind of Keras layer, loss and optimizer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import keras
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

_IMAGE = (4, 16, 16, 8)
_SIGNAL = (4, 32, 8)
_VOLUME = (2, 8, 8, 8, 4)
_ROWS = (16, 24)
_TOKENS = (4, 12)


def _numbers(shape: tuple[int, ...]) -> Any:
    import tensorflow as tf

    return tf.TensorSpec(shape, tf.float32)


def _layer(make: Callable[[Any], keras.Layer], *shapes: tuple[int, ...]) -> ConcreteFunction:
    """Call a layer in training, and take gradients for its inputs and weights."""
    import keras
    import tensorflow as tf

    layer = make(keras.layers)

    def call(inputs: Any) -> Any:
        given = inputs[0] if len(inputs) == 1 else list(inputs)
        try:
            return layer(given, training=True)
        except TypeError:
            return layer(given)

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(*inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = tf.nest.flatten(call(inputs))
            loss = sum(tf.reduce_mean(tf.square(tf.cast(out, tf.float32))) for out in outputs)
        sources = [*inputs, *layer.trainable_variables]
        return loss, *(g for g in tape.gradient(loss, sources) if g is not None)

    call([tf.zeros(shape) for shape in shapes])
    return step.get_concrete_function(*(_numbers(shape) for shape in shapes))


def _named(name: str, *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """What makes something of that name, of a module that has it."""
    return lambda module: getattr(module, name)(*arguments, **options)


def _embedding(output: tuple[int, ...] = _TOKENS) -> ConcreteFunction:
    import keras
    import tensorflow as tf

    layer = keras.layers.Embedding(50, 16)
    layer.build()

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(tokens: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(layer(tokens)))
        return loss, tf.convert_to_tensor(tape.gradient(loss, layer.trainable_variables[0]))

    return step.get_concrete_function(tf.TensorSpec(output, tf.int32))


def _loss(make: Callable[[Any], Any], labels: Any = None, width: int = 10) -> ConcreteFunction:
    import keras
    import tensorflow as tf

    loss = make(keras.losses)
    spec = labels or tf.TensorSpec((16, width), tf.float32)

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(truth: Any, predicted: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(predicted)
            value = loss(truth, tf.nn.sigmoid(predicted))
        return value, tape.gradient(value, predicted)

    return step.get_concrete_function(spec, tf.TensorSpec((16, width), tf.float32))


def _sparse_loss() -> ConcreteFunction:
    import tensorflow as tf

    labels = tf.TensorSpec((16,), tf.int32)
    return _loss(lambda k: k.SparseCategoricalCrossentropy(from_logits=True), labels)


def _optimizer(make: Callable[[Any], Any], *, is_sparse: bool = False) -> ConcreteFunction:
    import keras
    import tensorflow as tf

    optimizer = make(keras.optimizers)
    weights = keras.Variable(tf.zeros((40, 24)))
    bias = keras.Variable(tf.zeros((24,)))
    optimizer.build([weights, bias])

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(tokens: Any, inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            if is_sparse:
                rows = tf.gather(weights.value, tokens)
            else:
                rows = tf.matmul(inputs, weights.value)
            loss = tf.reduce_mean(tf.square(rows + bias.value))
        gradients = tape.gradient(loss, [weights.value, bias.value])
        optimizer.apply_gradients(zip(gradients, [weights, bias], strict=True))
        return loss

    return step.get_concrete_function(
        tf.TensorSpec((16,), tf.int32), tf.TensorSpec((16, 40), tf.float32)
    )


def _operations(compute: Callable[[Any, Any], Any], *shapes: tuple[int, ...]) -> ConcreteFunction:
    """Plain TensorFlow, with its gradients."""
    import tensorflow as tf

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(*inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(compute(tf, inputs))
        return loss, *(g for g in tape.gradient(loss, inputs) if g is not None)

    return step.get_concrete_function(*(_numbers(shape) for shape in shapes))


def _convolutions() -> dict[str, Callable[[], ConcreteFunction]]:
    found: dict[str, Callable[[], ConcreteFunction]] = {}
    shapes = {1: _SIGNAL, 2: _IMAGE, 3: _VOLUME}
    ways: dict[str, dict[str, Any]] = {
        "": {},
        " strided": {"strides": 2},
        " dilated": {"dilation_rate": 2},
        " same": {"padding": "same"},
        " grouped": {"groups": 2, "padding": "same"},
        " pointwise": {"kernel_size": 1},
    }
    for rank, shape in shapes.items():
        for way, options in ways.items():
            given = {"filters": 6, "kernel_size": 3, **options}
            name = f"Conv{rank}D"
            found[name + way] = partial(_layer, _named(name, **given), shape)
        for way, options in (
            ("", {}),
            (" strided", {"strides": 2}),
            (" same", {"padding": "same"}),
        ):
            given = {"filters": 6, "kernel_size": 3, **options}
            name = f"Conv{rank}DTranspose"
            found[name + way] = partial(_layer, _named(name, **given), shape)
    for rank in (1, 2):
        for way, options in (
            ("", {}),
            (" strided", {"strides": 2}),
            (" same", {"padding": "same"}),
        ):
            for name in (f"DepthwiseConv{rank}D", f"SeparableConv{rank}D"):
                given = {"kernel_size": 3, **options}
                if name.startswith("Sep"):
                    given["filters"] = 6
                found[name + way] = partial(
                    _layer,
                    _named(name, **given),
                    shapes[rank],
                )
    return found


def _poolings() -> dict[str, Callable[[], ConcreteFunction]]:
    found: dict[str, Callable[[], ConcreteFunction]] = {}
    for rank, shape in {1: _SIGNAL, 2: _IMAGE, 3: _VOLUME}.items():
        for kind in ("MaxPooling", "AveragePooling"):
            name = f"{kind}{rank}D"
            found[name] = partial(_layer, _named(name, 2), shape)
            found[f"{name} overlapping"] = partial(
                _layer,
                _named(name, 3, strides=2, padding="same"),
                shape,
            )
            name = f"Global{kind}{rank}D"
            found[name] = partial(_layer, _named(name), shape)
        for kind in ("UpSampling", "ZeroPadding", "Cropping"):
            name = f"{kind}{rank}D"
            found[name] = partial(
                _layer,
                _named(name, 1 if "Z" in name or "C" in name else 2),
                shape,
            )
    return found


def _recurrent() -> dict[str, Callable[[], ConcreteFunction]]:
    found: dict[str, Callable[[], ConcreteFunction]] = {}
    for name in ("LSTM", "GRU", "SimpleRNN"):
        found[name] = partial(_layer, _named(name, 12), _SIGNAL)
        found[f"{name} sequences"] = partial(
            _layer, _named(name, 12, return_sequences=True), _SIGNAL
        )
        found[f"{name} unrolled"] = partial(_layer, _named(name, 12, unroll=True), (4, 6, 8))
    found["Bidirectional"] = partial(_layer, lambda k: k.Bidirectional(k.LSTM(12)), _SIGNAL)
    found["ConvLSTM1D"] = partial(_layer, lambda k: k.ConvLSTM1D(4, 3), (2, 5, 16, 4))
    found["ConvLSTM2D"] = partial(_layer, lambda k: k.ConvLSTM2D(4, 3), (2, 5, 8, 8, 4))
    found["TimeDistributed"] = partial(_layer, lambda k: k.TimeDistributed(k.Dense(5)), _SIGNAL)
    return found


def _others() -> dict[str, Callable[[], ConcreteFunction]]:
    found: dict[str, Callable[[], ConcreteFunction]] = {
        "Dense": partial(_layer, lambda k: k.Dense(12), _ROWS),
        "Dense of three": partial(_layer, lambda k: k.Dense(12), _SIGNAL),
        "EinsumDense": partial(
            _layer, lambda k: k.EinsumDense("abc,cd->abd", (None, 12), bias_axes="d"), _SIGNAL
        ),
        "Embedding": _embedding,
        "MultiHeadAttention": partial(
            _layer,
            lambda k: _Attends(k.MultiHeadAttention(2, 8)),
            _SIGNAL,
        ),
        "GroupQueryAttention": partial(
            _layer, lambda k: _Attends(k.GroupQueryAttention(8, 4, 2)), _SIGNAL
        ),
        "Attention": partial(_layer, lambda k: k.Attention(), _SIGNAL, _SIGNAL),
        "AdditiveAttention": partial(_layer, lambda k: k.AdditiveAttention(), _SIGNAL, _SIGNAL),
        "BatchNormalization": partial(_layer, lambda k: k.BatchNormalization(), _IMAGE),
        "BatchNormalization of rows": partial(_layer, lambda k: k.BatchNormalization(), _ROWS),
        "LayerNormalization": partial(_layer, lambda k: k.LayerNormalization(), _SIGNAL),
        "GroupNormalization": partial(_layer, lambda k: k.GroupNormalization(2), _IMAGE),
        "RMSNormalization": partial(_layer, lambda k: k.RMSNormalization(), _SIGNAL),
        "UnitNormalization": partial(_layer, lambda k: k.UnitNormalization(), _ROWS),
        "SpectralNormalization": partial(
            _layer, lambda k: k.SpectralNormalization(k.Dense(12)), _ROWS
        ),
        "Dropout": partial(_layer, lambda k: k.Dropout(0.5), _ROWS),
        "SpatialDropout2D": partial(_layer, lambda k: k.SpatialDropout2D(0.5), _IMAGE),
        "GaussianNoise": partial(_layer, lambda k: k.GaussianNoise(0.5), _ROWS),
        "GaussianDropout": partial(_layer, lambda k: k.GaussianDropout(0.5), _ROWS),
        "AlphaDropout": partial(_layer, lambda k: k.AlphaDropout(0.5), _ROWS),
        "Permute": partial(_layer, lambda k: k.Permute((2, 1)), _SIGNAL),
        "RepeatVector": partial(_layer, lambda k: k.RepeatVector(3), _ROWS),
        "Flatten": partial(_layer, lambda k: k.Flatten(), _IMAGE),
        "Reshape": partial(_layer, lambda k: k.Reshape((8, 32)), _SIGNAL),
        "Resizing": partial(_layer, lambda k: k.Resizing(12, 12), _IMAGE),
        "PReLU": partial(_layer, lambda k: k.PReLU(), _ROWS),
        "Maximum": partial(_layer, lambda k: k.Maximum(), _ROWS, _ROWS),
        "Minimum": partial(_layer, lambda k: k.Minimum(), _ROWS, _ROWS),
        "Multiply": partial(_layer, lambda k: k.Multiply(), _ROWS, _ROWS),
        "Subtract": partial(_layer, lambda k: k.Subtract(), _ROWS, _ROWS),
        "Average": partial(_layer, lambda k: k.Average(), _ROWS, _ROWS),
        "Dot": partial(_layer, lambda k: k.Dot(axes=1), _ROWS, _ROWS),
        "Concatenate": partial(_layer, lambda k: k.Concatenate(), _ROWS, _ROWS),
    }
    for name in (
        "relu elu selu softplus softsign tanh sigmoid hard_sigmoid silu gelu mish softmax "
        "log_softmax leaky_relu relu6 celu exponential hard_silu hard_tanh log_sigmoid glu "
        "soft_shrink hard_shrink squareplus tanh_shrink sparse_plus sparsemax"
    ).split():
        found[f"activation {name}"] = partial(_layer, _named("Activation", name), _ROWS)
    return found


def _losses() -> dict[str, Callable[[], ConcreteFunction]]:
    names = (
        "BinaryCrossentropy BinaryFocalCrossentropy CategoricalCrossentropy CategoricalHinge "
        "CategoricalFocalCrossentropy CosineSimilarity Dice Hinge Huber KLDivergence LogCosh "
        "MeanAbsoluteError MeanAbsolutePercentageError MeanSquaredError "
        "MeanSquaredLogarithmicError Poisson SquaredHinge Tversky"
    )
    found: dict[str, Callable[[], ConcreteFunction]] = {
        f"loss {name}": partial(_loss, _named(name)) for name in names.split()
    }
    found["loss SparseCategoricalCrossentropy"] = _sparse_loss
    return found


def _optimizers() -> dict[str, Callable[[], ConcreteFunction]]:
    found: dict[str, Callable[[], ConcreteFunction]] = {}
    names = "Adadelta Adafactor Adagrad Adam Adamax AdamW Ftrl Lamb Lion Nadam RMSprop SGD Muon"
    for name in names.split():
        make = _named(name)
        found[f"optimizer {name}"] = partial(_optimizer, make)
        found[f"optimizer {name} of rows"] = partial(_optimizer, make, is_sparse=True)
    found["optimizer SGD with momentum"] = partial(_optimizer, lambda k: k.SGD(momentum=0.9))
    return found


def _plain() -> dict[str, Callable[[], ConcreteFunction]]:
    """What graph networks and hand-written steps use besides layers."""
    return {
        "segment sums": partial(
            _operations,
            lambda tf, x: tf.math.unsorted_segment_sum(x[0], tf.range(16) // 4, 4),
            _ROWS,
        ),
        "segment means": partial(
            _operations,
            lambda tf, x: tf.math.unsorted_segment_mean(x[0], tf.range(16) // 4, 4),
            _ROWS,
        ),
        "segment maxima": partial(
            _operations,
            lambda tf, x: tf.math.unsorted_segment_max(x[0], tf.range(16) // 4, 4),
            _ROWS,
        ),
        "sorted segment sums": partial(
            _operations, lambda tf, x: tf.math.segment_sum(x[0], tf.range(16) // 4), _ROWS
        ),
        "gather_nd": partial(
            _operations, lambda tf, x: tf.gather_nd(x[0], [[0, 1], [3, 2]]), _ROWS
        ),
        "scatter_nd": partial(
            _operations,
            lambda tf, x: tf.scatter_nd(tf.reshape(tf.range(16), (16, 1)), x[0], (20, 24)),
            _ROWS,
        ),
        "tensor_scatter": partial(
            _operations,
            lambda tf, x: tf.tensor_scatter_nd_update(x[0], [[0], [2]], x[0][:2] * 2.0),
            _ROWS,
        ),
        "top_k": partial(_operations, lambda tf, x: tf.math.top_k(x[0], 3).values, _ROWS),
        "sort": partial(_operations, lambda tf, x: tf.sort(x[0]), _ROWS),
        "cumsum": partial(_operations, lambda tf, x: tf.cumsum(x[0]) * x[0], _ROWS),
        "cumprod": partial(_operations, lambda tf, x: tf.math.cumprod(x[0]), _ROWS),
        "einsum": partial(
            _operations, lambda tf, x: tf.einsum("abc,adc->abd", x[0], x[1]), _SIGNAL, _SIGNAL
        ),
        "band": partial(
            _operations, lambda tf, x: tf.linalg.band_part(x[0] @ x[1], 2, 0), (8, 8), (8, 8)
        ),
        "logsumexp": partial(_operations, lambda tf, x: tf.reduce_logsumexp(x[0], 1), _ROWS),
        "reductions": partial(
            _operations,
            lambda tf, x: (
                tf.reduce_prod(x[0], 1) + tf.reduce_max(x[0], 1) + tf.math.reduce_std(x[0], 1)
            ),
            _ROWS,
        ),
        "norms": partial(
            _operations, lambda tf, x: tf.clip_by_norm(tf.math.l2_normalize(x[0], 1), 1.0), _ROWS
        ),
        "space to depth": partial(
            _operations, lambda tf, x: tf.square(tf.nn.space_to_depth(x[0], 2)), _IMAGE
        ),
        "depth to space": partial(
            _operations, lambda tf, x: tf.square(tf.nn.depth_to_space(x[0], 2)), _IMAGE
        ),
        "batch to space": partial(
            _operations,
            lambda tf, x: tf.square(tf.space_to_batch(x[0], [2, 2], [[0, 0], [0, 0]])),
            _IMAGE,
        ),
        "local response": partial(_operations, lambda tf, x: tf.nn.lrn(x[0]), _IMAGE),
        "reverse": partial(_operations, lambda tf, x: tf.square(tf.reverse(x[0], [1])), _ROWS),
        "roll": partial(_operations, lambda tf, x: tf.square(tf.roll(x[0], 2, 1)), _ROWS),
        "mirror pad": partial(
            _operations, lambda tf, x: tf.pad(x[0], [[0, 0], [2, 2]], "REFLECT") ** 2, _ROWS
        ),
        "resize": partial(
            _operations, lambda tf, x: tf.image.resize(x[0], (9, 9), "bicubic"), _IMAGE
        ),
        "nearest": partial(
            _operations, lambda tf, x: tf.image.resize(x[0], (9, 9), "nearest"), _IMAGE
        ),
        "fourier": partial(_operations, lambda tf, x: tf.abs(tf.signal.rfft(x[0])), (16, 32)),
        "cholesky": partial(
            _operations,
            lambda tf, x: tf.linalg.cholesky(x[0] @ tf.transpose(x[0]) + 3.0 * tf.eye(16)),
            _ROWS,
        ),
        "solve": partial(
            _operations, lambda tf, x: tf.linalg.solve(x[0] + 9.0 * tf.eye(8), x[1]), (8, 8), (8, 3)
        ),
        "half precision": partial(
            _operations,
            lambda tf, x: tf.cast(
                tf.nn.softmax(tf.cast(x[0], tf.bfloat16) @ tf.cast(x[1], tf.bfloat16)), tf.float32
            ),
            _ROWS,
            (24, 8),
        ),
        "where": partial(
            _operations, lambda tf, x: tf.where(x[0] > 0, x[0] * 2.0, tf.exp(x[0])), _ROWS
        ),
        "stack": partial(
            _operations,
            lambda tf, x: tf.stack(tf.unstack(x[0], axis=1)[::-1], axis=1) ** 2,
            (16, 4),
        ),
        "special functions": partial(
            _operations,
            lambda tf, x: (
                tf.math.lgamma(x[0])
                + tf.math.digamma(x[0])
                + tf.math.igamma(x[0], x[0])
                + tf.math.erfinv(x[0])
                + tf.math.atan2(x[0], x[0])
                + tf.sinh(x[0])
                + tf.asinh(x[0])
                + tf.tan(x[0])
            ),
            _ROWS,
        ),
    }


class _Attends:
    """Attention of a sequence to itself, called with one input as other layers are."""

    def __init__(self, layer: keras.Layer) -> None:
        self._layer = layer

    @property
    def trainable_variables(self) -> Any:
        """The layer's."""
        return self._layer.trainable_variables

    def __call__(self, inputs: Any, *, training: bool = False) -> Any:
        """Attend."""
        return self._layer(inputs, inputs, training=training)


STEPS: dict[str, Callable[[], ConcreteFunction]] = {
    **_convolutions(),
    **_poolings(),
    **_recurrent(),
    **_others(),
    **_losses(),
    **_optimizers(),
    **_plain(),
}
"""By name: what makes the step."""
