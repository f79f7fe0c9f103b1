"""Trains a step part of which XLA compiles, and measures what TensorFlow's allocator had in use."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import memopt
from support.programs.steps import digest

LAYERS = 4


def main(
    options: str, channels: str = "64", read: str = "1", what: str = "convolution"
) -> dict[str, Any]:
    """The peak of a step, and what came of the training.

    Args:
        options: The options of `memopt.enable` as JSON, or "" to leave it off.
        channels: How many there are, each with a filter of its own.
        read: How many of them each filter reads.
        what: What XLA compiles: each "convolution", or a "layer" of one and tanh.
    """
    import numpy as np
    import tensorflow as tf

    from memopt.runtime.replay import replay
    from memopt.runtime.trace import TraceRecorder, step_marker

    if options:
        memopt.enable(**json.loads(options))
    random = np.random.default_rng(0)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        recorder = TraceRecorder(Path(folder))
        recorder.start()
        filters = [
            tf.Variable(
                random.standard_normal((7, 7, int(read), int(channels)), dtype=np.float32) / 8
            )
            for _ in range(LAYERS)
        ]
        images = tf.constant(random.standard_normal((4, 8, 8, int(channels)), dtype=np.float32))

        @tf.function(jit_compile=True)  # type: ignore[untyped-decorator] # TensorFlow has no types
        def convolve(value: Any, weights: Any) -> Any:
            result = tf.nn.convolution(value, weights, padding="SAME")
            return tf.tanh(result) if what == "layer" else result

        @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
        def step() -> Any:
            with tf.GradientTape() as tape:
                value = images
                for weights in filters:
                    value = tf.nn.gelu(convolve(value, weights))
                loss = tf.reduce_mean(value * value)
            for weights, gradient in zip(filters, tape.gradient(loss, filters), strict=True):
                weights.assign_sub(0.1 * gradient)
            return loss

        losses = [float(step()) for _ in range(2)]
        with step_marker(0):
            losses.append(float(step()))
        trace = recorder.stop()
    measured = replay(trace.events, trace.steps[-1])
    return {
        "losses": losses,
        "weights": digest([variable.numpy() for variable in filters]),
        "step_peak_bytes": measured.step_peak_bytes,
        "records": [
            [r.held_bytes, r.peak_before_bytes, r.peak_after_bytes, r.reason]
            for r in memopt.last_reports()
            if r.outcome in ("rewritten", "unchanged")
        ],
    }
