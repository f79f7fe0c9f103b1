"""Training steps of all kinds, each as a function that trains and returns what came of it."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    import keras

_WIDTH = 16
_LAYERS = 6


def digest(arrays: Iterable[Any]) -> str:
    """The same for the same bits."""
    content = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    return hashlib.sha256(content).hexdigest()


def make_data() -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    samples = generator.standard_normal((32, _WIDTH), dtype=np.float32)
    return samples, generator.integers(4, size=32, dtype=np.int32)


class Net:
    """Dense layers with their gradients, on plain variables."""

    def __init__(self) -> None:
        import tensorflow as tf

        generator = np.random.default_rng(1)
        sizes = [*[_WIDTH] * (_LAYERS + 1), 4]
        self.weights = [
            tf.Variable(generator.standard_normal(pair).astype(np.float32) / 4)
            for pair in pairwise(sizes)
        ]

    def loss(self, samples: Any, labels: Any) -> Any:
        import tensorflow as tf

        hidden = samples
        for weight in self.weights[:-1]:
            hidden = tf.tanh(hidden @ weight) + tf.nn.relu(hidden)
        logits = hidden @ self.weights[-1]
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )

    def train(self, samples: Any, labels: Any) -> Any:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = self.loss(samples, labels)
        for weight, gradient in zip(self.weights, tape.gradient(value, self.weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return value

    def outcome(self, step: Callable[..., Any], count: int = 3) -> str:
        """Train and tell what came of it."""
        losses = [step(*make_data()).numpy() for _ in range(count)]
        return digest([*losses, *(weight.numpy() for weight in self.weights)])


def function() -> str:
    """A tf.function."""
    import tensorflow as tf

    net = Net()
    return net.outcome(tf.function(net.train))


def nested() -> str:
    """A tf.function that calls others."""
    import tensorflow as tf

    net = Net()
    inner = tf.function(net.train)
    return net.outcome(tf.function(lambda samples, labels: inner(samples, labels) * 1.0))


def while_loop() -> str:
    """Several steps in a loop, in a function."""
    import tensorflow as tf

    net = Net()

    def many(samples: Any, labels: Any) -> Any:
        value = tf.constant(0.0)
        for _ in tf.range(3):
            value = net.train(samples, labels)
        return value

    return net.outcome(tf.function(many))


def recurrent() -> str:
    """Gradients through a loop."""
    import tensorflow as tf

    net = Net()

    def step(samples: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            state = samples
            for _ in tf.range(4):
                state = tf.tanh(state @ net.weights[0])
                state.set_shape((32, _WIDTH))
            value = net.loss(state, labels)
        for weight, gradient in zip(net.weights, tape.gradient(value, net.weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return value

    return net.outcome(tf.function(step))


def condition() -> str:
    """A step in one of two branches."""
    import tensorflow as tf

    net = Net()

    def step(samples: Any, labels: Any) -> Any:
        if tf.reduce_sum(samples) > 1e9:
            value = net.loss(samples, labels)
        else:
            value = net.train(samples, labels)
        return value + net.train(samples, labels)

    return net.outcome(tf.function(step))


def not_inlined() -> str:
    """A function that TensorFlow compiles by itself, on a thread of its own."""
    import tensorflow as tf

    net = Net()
    inner = tf.function(net.train, experimental_attributes={"_noinline": True})
    return net.outcome(tf.function(lambda samples, labels: inner(samples, labels) * 1.0))


def saved_model() -> str:
    """A model that was saved and loaded."""
    import tensorflow as tf

    net = Net()
    samples, labels = make_data()
    module = tf.Module()
    module.weights = net.weights
    module.train = tf.function(net.train)
    module.train.get_concrete_function(
        tf.TensorSpec(samples.shape, tf.float32), tf.TensorSpec(labels.shape, tf.int32)
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        loaded = tf.saved_model.load(folder)
    net.weights = list(loaded.weights)
    return net.outcome(loaded.train)


def session() -> str:
    """A session of TensorFlow 1."""
    import tensorflow as tf

    samples, labels = make_data()
    with tf.Graph().as_default():
        v1 = tf.compat.v1
        fed = v1.placeholder(tf.float32, samples.shape), v1.placeholder(tf.int32, labels.shape)
        generator = np.random.default_rng(1)
        weights = [
            v1.get_variable(
                f"w{number}",
                initializer=generator.standard_normal((_WIDTH, _WIDTH)).astype(np.float32) / 4,
                use_resource=number % 2 == 0,
            )
            for number in range(_LAYERS)
        ]
        hidden = fed[0]
        for weight in weights:
            hidden = tf.tanh(hidden @ weight)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=fed[1], logits=hidden)
        )
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        with v1.Session() as running:
            running.run(v1.global_variables_initializer())
            feed = dict(zip(fed, (samples, labels), strict=True))
            losses = [running.run([loss, train], feed)[0] for _ in range(3)]
            return digest([*losses, *running.run(weights)])


def make_keras(
    *,
    steps_per_execution: int = 1,
    optimizer: Any = "adam",
    scope: AbstractContextManager[Any] | None = None,
) -> keras.Model:
    """A small Keras model, the same each time, made inside a scope."""
    import keras

    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(3)
    with scope or nullcontext():
        layers: list[Any] = [keras.Input((_WIDTH,))]
        for _ in range(4):
            layers += [keras.layers.Dense(_WIDTH, activation="relu"), keras.layers.Dropout(0.1)]
        model = keras.Sequential([*layers, keras.layers.Dense(4)])
        model.compile(
            optimizer,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            steps_per_execution=steps_per_execution,
            jit_compile=False,
        )
    return model


def fit(model: keras.Model, *data: Any, **options: Any) -> str:
    """Train and tell what came of it."""
    history = model.fit(*data, verbose=0, **options)
    return digest([history.history["loss"], *model.get_weights()])


def keras_fit() -> str:
    """Keras's training loop."""
    model = make_keras()
    return fit(model, *make_data(), batch_size=8, epochs=2)


def keras_recurrent() -> str:
    """Keras, with loops inside the step whose results meet again behind them."""
    import keras

    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(3)
    recurrent = keras.layers.LSTM(_WIDTH, use_cudnn=False)
    model = keras.Sequential([keras.Input((10, 8)), recurrent, keras.layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=False)
    samples = np.random.default_rng(0).standard_normal((16, 10, 8), dtype=np.float32)
    return fit(model, samples, np.zeros(16, np.int32), batch_size=8, epochs=2)


def keras_many_steps() -> str:
    """Keras with several steps in one call: a loop around the step."""
    model = make_keras(steps_per_execution=2)
    return fit(model, *make_data(), batch_size=8, epochs=2)


def keras_batch() -> str:
    """Keras, batch by batch."""
    model = make_keras()
    losses = [float(model.train_on_batch(*make_data())) for _ in range(3)]
    return digest([losses, *model.get_weights()])


KINDS: dict[str, Callable[[], str]] = {
    kind.__name__: kind
    for kind in (
        function,
        nested,
        while_loop,
        recurrent,
        condition,
        not_inlined,
        saved_model,
        session,
        keras_fit,
        keras_recurrent,
        keras_many_steps,
        keras_batch,
    )
}
