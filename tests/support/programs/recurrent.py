"""A program that trains a recurrent layer: what its step needs, as measured and as predicted."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 3


def main(layer: str, options: str) -> dict[str, Any]:
    """Its peak, its weights, and what memopt says.

    Args:
        layer: Of `LAYERS`; "narrow" before it for little besides.
        options: Of `memopt.enable`, as JSON; null for a training without memopt.
    """
    return measured(lambda: _model(layer), options)


def measured(build: Callable[[], tuple[Any, Any]], options: str) -> dict[str, Any]:
    """The peak of a training, its weights, and what memopt says.

    Args:
        build: Makes a model and a batch.
        options: Of `memopt.enable`, as JSON; null for a training without memopt.
    """
    import keras
    import numpy as np

    import memopt
    from memopt.runtime.replay import replay
    from memopt.runtime.trace import TraceRecorder, step_marker

    given = json.loads(options)
    if given is not None:
        memopt.enable(**given)
    keras.utils.set_random_seed(1)
    recorder = TraceRecorder(Path(tempfile.mkdtemp()))
    recorder.start()
    model, features = build()
    labels = np.ones((len(features), 1), np.float32)
    for number in range(STEPS):
        with step_marker(number):
            model.train_on_batch(features, labels)
    trace = recorder.stop()
    last = replay(trace.events, trace.steps[-1])
    records = [each for each in memopt.last_reports() if each.nodes > 100]
    weights = b"".join(array.tobytes() for array in model.get_weights())
    return {
        "own": last.step_peak_bytes,
        "weights": hashlib.sha256(weights).hexdigest(),
        "records": [
            [each.outcome, each.reason, each.peak_after_bytes - each.held_bytes] for each in records
        ],
    }


def _model(layer: str) -> tuple[Any, Any]:
    import keras
    import numpy as np

    layers = keras.layers
    made = {
        "lstm": lambda: [layers.LSTM(64, return_sequences=True), layers.LSTM(64)],
        "gru": lambda: [layers.GRU(64, return_sequences=True), layers.GRU(64)],
        "bidirectional": lambda: [layers.Bidirectional(layers.LSTM(64))],
        "convolutional": lambda: [layers.ConvLSTM2D(8, 3), layers.Flatten()],
    }
    shape = (12, 16, 16, 4) if layer == "convolutional" else (48, 32)
    batch = 4 if layer == "convolutional" else 64
    # What has nothing to do with loops, and recomputes for a budget.
    wide = [layers.Dense(512, activation="gelu") for _ in range(6)]
    is_narrow = layer == "convolutional" or layer.startswith("narrow ")
    layer = layer.removeprefix("narrow ")
    before = [] if is_narrow else wide
    model = keras.Sequential([keras.Input(shape), *before, *made[layer](), layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    features = np.random.default_rng(0).standard_normal((batch, *shape), dtype=np.float32)
    return model, features
