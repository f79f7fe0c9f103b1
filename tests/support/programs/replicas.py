"""Trains two replicas under MirroredStrategy, and measures what TensorFlow's allocator had."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import memopt
from support.programs.steps import digest

LAYERS = 12
WIDTH = 64
BATCH = 4096


def main(options: str) -> dict[str, Any]:
    """The peak of a step, and what came of the training.

    Args:
        options: The options of `memopt.enable` as JSON, or "" to leave it off.
    """
    import numpy as np
    import tensorflow as tf

    from memopt.runtime.replay import replay
    from memopt.runtime.trace import TraceRecorder, step_marker

    if options:
        memopt.enable(**json.loads(options))
    (host,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * 2)
    with tempfile.TemporaryDirectory() as folder:
        recorder = TraceRecorder(Path(folder))
        recorder.start()
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        random = np.random.default_rng(0)
        with strategy.scope():
            weights = [
                tf.Variable(random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8)
                for _ in range(LAYERS)
            ]
        rows = tf.constant(random.standard_normal((BATCH, WIDTH)).astype(np.float32))

        def replica() -> tf.Tensor:
            with tf.GradientTape() as tape:
                value = rows * (1.0 + tf.cast(_replica_number(), tf.float32))
                for weight in weights:
                    value = tf.tanh(tf.matmul(value, weight))
                loss = tf.reduce_mean(value * value)
            context = tf.distribute.get_replica_context()
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, tape.gradient(loss, weights))
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.assign_sub(0.5 * gradient)
            return loss

        def _replica_number() -> Any:
            return tf.distribute.get_replica_context().replica_id_in_sync_group

        step = tf.function(
            lambda: strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(replica), axis=None)
        )
        losses = [float(step())]
        with step_marker(0):
            losses.append(float(step()))
        trace = recorder.stop()
    measured = replay(trace.events, trace.steps[-1])
    return {
        "losses": losses,
        "weights": digest([weight.numpy() for weight in weights]),
        "step_peak_bytes": measured.step_peak_bytes,
        "peak_bytes": measured.peak_bytes,
        "records": [
            [r.held_bytes, r.peak_before_bytes, r.peak_after_bytes, r.budget_bytes]
            for r in memopt.last_reports()
            if r.outcome == "rewritten"
        ],
    }
