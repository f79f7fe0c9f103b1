"""Trains a Keras model and measures what TensorFlow's allocator had in use."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import memopt
from support.programs.steps import digest


def main(options: str) -> dict[str, Any]:
    """The peak of an epoch, and what came of the training.

    Args:
        options: The options of `memopt.enable` as JSON, or "" to leave it off.
    """
    import keras
    import numpy as np

    from memopt.runtime.replay import replay
    from memopt.runtime.trace import TraceRecorder, step_marker

    if options:
        memopt.enable(**json.loads(options))
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        recorder = TraceRecorder(Path(folder))
        recorder.start()
        layers = [keras.layers.Dense(384, activation="gelu") for _ in range(10)]
        model = keras.Sequential([keras.Input((384,)), *layers, keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse", jit_compile=False)
        data = np.ones((512, 384), np.float32), np.ones((512, 1), np.float32)
        model.fit(*data, batch_size=256, verbose=0, shuffle=False)
        with step_marker(0):
            history = model.fit(*data, batch_size=256, verbose=0, shuffle=False)
        trace = recorder.stop()
    measured = replay(trace.events, trace.steps[-1])
    return {
        "loss": history.history["loss"],
        "weights": digest(model.get_weights()),
        "step_peak_bytes": measured.step_peak_bytes,
        "records": [
            [r.peak_before_bytes, r.peak_after_bytes, r.budget_bytes]
            for r in memopt.last_reports()
            if r.outcome == "rewritten"
        ],
    }
