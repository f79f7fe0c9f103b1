"""Trains steps whose graphs leave the batch open, or that stand in a loop with all they compute."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[], Any]
    Weights = Callable[[], list[Any]]

_BATCH, _SAMPLES, _WIDTH, _LAYERS = 256, 576, 256, 12


def main(kind: str, options: str) -> dict[str, Any]:
    """The step's own peak in each of some calls, the records of memopt, and a digest of results."""
    import numpy as np
    import tensorflow as tf

    import memopt
    from memopt.runtime.replay import replay
    from memopt.runtime.trace import TraceRecorder, step_marker

    asked = json.loads(options)
    if asked is not None:
        memopt.enable(**asked)
    tf.random.set_seed(1)
    recorder = TraceRecorder(Path(tempfile.mkdtemp()))
    recorder.start()
    step, weights = KINDS[kind]()
    results = [step()]
    for number in range(2):
        with step_marker(number):
            results.append(step())
    trace = recorder.stop()
    own = [replay(trace.events, marked).step_peak_bytes for marked in trace.steps]
    digest = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in [*results, *weights()]))
    records = [] if asked is None else memopt.last_reports()
    return {
        "own": max(own),
        "digest": digest.hexdigest(),
        # What a data set runs comes again with each pass.
        "records": list(
            dict.fromkeys(
                (each.outcome, each.reason, each.peak_before_bytes, each.peak_after_bytes)
                for each in records
                if each.outcome != "passed over"
            )
        ),
        "held": max((each.held_bytes or 0 for each in records), default=0),
    }


def _samples() -> tuple[Any, Any]:
    import numpy as np

    features = np.random.default_rng(0).standard_normal((_SAMPLES, _WIDTH), dtype=np.float32)
    return features, features[:, ::-1].copy()


def _keras_fit(steps_per_execution: int = 1) -> tuple[Step, Weights]:
    """The last batch is not full; several in one call stand in a loop, and in a branch."""
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(_WIDTH, activation="gelu") for _ in range(_LAYERS)]
    model = keras.Sequential([keras.Input((_WIDTH,)), *layers])
    model.compile("adam", "mse", jit_compile=False, steps_per_execution=steps_per_execution)
    features, labels = _samples()

    def step() -> Any:
        fitted = model.fit(features, labels, batch_size=_BATCH, verbose=0, shuffle=False)
        return fitted.history["loss"]

    return step, model.get_weights


def _train(weights: list[Any], features: Any, labels: Any) -> Any:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        hidden = features
        for weight in weights:
            hidden = hidden + tf.nn.gelu(hidden @ weight)
        loss = tf.reduce_mean((hidden - labels) ** 2)
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(0.01 * gradient)
    return loss


def _weights() -> list[Any]:
    import tensorflow as tf

    shape = (_WIDTH, _WIDTH)
    return [tf.Variable(tf.random.normal(shape, stddev=0.05)) for _ in range(_LAYERS)]


def _open_signature() -> tuple[Step, Weights]:
    import tensorflow as tf

    weights = _weights()
    spec = tf.TensorSpec((None, _WIDTH))

    @tf.function(input_signature=[spec, spec])  # type: ignore[untyped-decorator]
    def train(features: Any, labels: Any) -> Any:
        return _train(weights, features, labels)

    features, labels = _samples()
    return lambda: train(features, labels).numpy(), lambda: [each.numpy() for each in weights]


def _loop() -> tuple[Step, Weights]:
    import tensorflow as tf

    weights = _weights()
    features, labels = map(tf.constant, _samples())

    @tf.function  # type: ignore[untyped-decorator]
    def train() -> Any:
        loss = 0.0
        for _ in tf.range(3):
            loss = _train(weights, features, labels)
        return loss

    return lambda: train().numpy(), lambda: [each.numpy() for each in weights]


def _branch() -> tuple[Step, Weights]:
    import tensorflow as tf

    weights = _weights()
    features, labels = map(tf.constant, _samples())
    count = tf.Variable(0)

    @tf.function  # type: ignore[untyped-decorator]
    def train() -> Any:
        count.assign_add(1)
        return tf.cond(
            count % 3 > 0, lambda: _train(weights, features, labels), lambda: tf.constant(0.0)
        )

    return lambda: train().numpy(), lambda: [each.numpy() for each in weights]


def _iterator() -> tuple[Step, Weights]:
    """Data sets of which a pass over all of it ends with what is left."""
    import tensorflow as tf

    weights = _weights()
    batches = tf.data.Dataset.from_tensor_slices(_samples()).batch(_BATCH).repeat().prefetch(1)
    iterator = iter(batches)

    @tf.function  # type: ignore[untyped-decorator]
    def train(batches: Any) -> Any:
        return _train(weights, *next(batches))

    def step() -> Any:
        return [train(iterator).numpy() for _ in range(3)]

    return step, lambda: [each.numpy() for each in weights]


def _data_set() -> tuple[Step, Weights]:
    """TensorFlow instantiates what a data set runs for each pass over it."""
    import tensorflow as tf

    weights = _weights()
    batches = tf.data.Dataset.from_tensor_slices(_samples()).batch(_BATCH, drop_remainder=True)

    @tf.function  # type: ignore[untyped-decorator]
    def train(batches: Any) -> Any:
        loss = 0.0
        for features, labels in batches:
            loss = _train(weights, features, labels)
        return loss

    return lambda: train(batches).numpy(), lambda: [each.numpy() for each in weights]


def _recurrent() -> tuple[Step, Weights]:
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.layers.LSTM(64, return_sequences=True), keras.layers.LSTM(64)]
    model = keras.Sequential([keras.Input((16, 32)), *layers, keras.layers.Dense(32)])
    model.compile("adam", "mse", jit_compile=False)
    features = _samples()[0][:, :32]
    sequences = features[:, None, :].repeat(16, axis=1)

    def step() -> Any:
        fitted = model.fit(sequences, features, batch_size=_BATCH, verbose=0, shuffle=False)
        return fitted.history["loss"]

    return step, model.get_weights


def _padded() -> tuple[Step, Weights]:
    """Sequences that are padded to the longest of a batch, as many as nobody counted."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(_WIDTH, activation="gelu") for _ in range(_LAYERS)]
    model = keras.Sequential([keras.Input((None, _WIDTH)), *layers])
    model.compile("adam", "mse", jit_compile=False)
    features, labels = _samples()
    lengths = range(20, 36)

    def sequences() -> Any:
        for length in lengths:
            yield features[:length], labels[:length]

    spec = tf.TensorSpec((None, _WIDTH))
    data = tf.data.Dataset.from_generator(sequences, output_signature=(spec, spec))

    def step() -> Any:
        return model.fit(data.padded_batch(8), verbose=0).history["loss"]

    return step, model.get_weights


def _texts() -> tuple[Step, Weights]:
    """Texts that the step itself splits into words, and pads to the longest of a batch."""
    import keras
    import numpy as np
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    texts = [" ".join(f"w{i % 7}" for i in range(40 + number % 41)) for number in range(4 * 32)]
    vectorized = keras.layers.TextVectorization()
    vectorized.adapt(texts)
    layers = [keras.layers.Embedding(50, 64, mask_zero=True), keras.layers.LSTM(96)]
    given = keras.Input((1,), dtype="string")
    model = keras.Sequential([given, vectorized, *layers, keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    labels = np.arange(len(texts), dtype=np.float32) / len(texts)
    data = tf.data.Dataset.from_tensor_slices((np.array(texts)[:, None], labels))

    def step() -> Any:
        return model.fit(data.batch(32), verbose=0).history["loss"]

    return step, lambda: [each for each in model.get_weights() if each.dtype == np.float32]


KINDS = {
    "keras fit": _keras_fit,
    "keras loop": lambda: _keras_fit(steps_per_execution=2),
    "open signature": _open_signature,
    "loop": _loop,
    "branch": _branch,
    "iterator": _iterator,
    "data set": _data_set,
    "padded": _padded,
    "texts": _texts,
    "recurrent": _recurrent,
}
