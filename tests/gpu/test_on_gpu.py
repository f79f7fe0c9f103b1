"""On a GPU: what is predicted is what its allocator has, with the same bits. Skipped elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

TESTS = Path(__file__).resolve().parents[1]

TRAINING = """
import hashlib, json, sys, tempfile
from pathlib import Path
import keras, numpy as np, tensorflow as tf
import memopt
from memopt.runtime.replay import replay
from memopt.runtime.trace import TraceRecorder, step_marker

options = json.loads(sys.argv[1])
tf.config.experimental.enable_op_determinism()
keras.utils.set_random_seed(1)
if options is not None:
    memopt.enable(**options)
recorder = TraceRecorder(Path(tempfile.mkdtemp()))
recorder.start()
layers = keras.layers
model = keras.Sequential([keras.Input((64, 64, 3))])
for width in (32, 32, 64, 64, 64, 64):
    model.add(layers.Conv2D(width, 3, padding="same", use_bias=False))
    model.add(layers.BatchNormalization())
    model.add(layers.Activation("relu"))
model.add(layers.GlobalAveragePooling2D())
model.add(layers.Dense(10))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(), loss, jit_compile=False)
generator = np.random.default_rng(0)
features = tf.constant(generator.standard_normal((64, 64, 64, 3), dtype=np.float32))
labels = tf.constant(generator.integers(10, size=64))
for _ in range(3):
    model.train_on_batch(features, labels)
tf.config.experimental.reset_memory_stats("GPU:0")
with step_marker(0):
    model.train_on_batch(features, labels)
info = tf.config.experimental.get_memory_info("GPU:0")
trace = recorder.stop()
measured = replay(trace.events, trace.steps[0])
weights = b"".join(array.tobytes() for array in model.get_weights())
found = [one for one in memopt.last_reports() if one.outcome in ("rewritten", "unchanged")]
record = max(found, key=lambda one: one.nodes) if found else None
print("RESULT", json.dumps({
    "peak": info["peak"],
    "own": measured.step_peak_bytes,
    "weights": hashlib.sha256(weights).hexdigest(),
    "before": record and record.peak_before_bytes - record.held_bytes,
    "after": record and record.peak_after_bytes - record.held_bytes,
    "budget": record and record.budget_bytes - record.held_bytes,
    "outcome": record and record.outcome,
}))
"""

SWAPPING = """
import json
from dataclasses import replace
from support.native_simulation import GPU, cpu, gpu
from support.swapping import chain
from memopt.analysis import analyze
from memopt.api import optimize
from memopt.item import GrapplerItem
from memopt.runtime.entry import verify

item = GrapplerItem(chain(12, 1024, 4096), feed=("x:0",), fetch=("train",))
limit = int(analyze(item, devices=[gpu(), cpu()]).peak_bytes[GPU] * 0.6)
result = optimize(item, level="swapping_heuristics", devices=[gpu(0, limit), cpu()],
                  pass_options=["swapping{improved=true}"])
found = verify(item, replace(item, graph_def=result.graph_def), steps=2)
print("RESULT", json.dumps({"equal": found.equal, "limit": limit,
    "before": found.original.peak_bytes, "after": found.rewritten.peak_bytes}))
"""

LOOP = """
import json, sys, tempfile
from pathlib import Path
import numpy as np, tensorflow as tf
import memopt
from memopt.runtime.replay import replay
from memopt.runtime.trace import TraceRecorder, step_marker

options = json.loads(sys.argv[1])
tf.config.experimental.enable_op_determinism()
tf.random.set_seed(1)
recorder = TraceRecorder(Path(tempfile.mkdtemp()))
recorder.start()
if options is not None:
    memopt.enable(**options)
weights = [tf.Variable(tf.random.normal((64, 64), stddev=0.1)) for _ in range(2)]

def turn(number, y):
    return number + 1, y + 0.02 * tf.tanh(tf.tanh(y @ weights[0]) @ weights[1])

@tf.function
def train(x):
    with tf.GradientTape() as tape:
        _, y = tf.while_loop(lambda number, _: number < 50, turn, (0, x))
        loss = tf.reduce_mean(y**2)
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(0.1 * gradient)
    return loss

x = tf.random.normal((1024, 64))
found = [train(x).numpy()]
with step_marker(0):
    found.append(train(x).numpy())
trace = recorder.stop()
print("RESULT", json.dumps({
    "own": replay(trace.events, trace.steps[0]).step_peak_bytes,
    "values": b"".join(value.tobytes() for value in (*found, *(w.numpy() for w in weights))).hex(),
    "reasons": [one.reason for one in memopt.last_reports()],
}))
"""

KERNELS = """
import json
import tensorflow as tf
import memopt

@tf.function
def step(x, w):
    return tf.nn.relu(tf.nn.conv2d(x, w, 1, "SAME"))

function = step.get_concrete_function(tf.TensorSpec((8, 32, 32, 16)), tf.TensorSpec((3, 3, 16, 32)))
profile = memopt.profile_kernels(function)
print("RESULT", json.dumps({"environment": profile.environment, "kernels": profile.kernels,
    "failed": [str(each) for each in profile.failed]}))
"""


def run(source: str, *arguments: str, folder: Path) -> dict[str, Any]:
    """What a program in a fresh process prints."""
    paths = [str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "XDG_CACHE_HOME": str(folder),
    }
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return found


def test_a_budget_is_kept_with_the_same_bits(tmp_path: Path) -> None:
    off = run(TRAINING, "null", folder=tmp_path)
    within = run(TRAINING, json.dumps({"budget": "50%"}), folder=tmp_path)
    assert within["outcome"] == "rewritten"
    assert within["weights"] == off["weights"]
    assert within["before"] == pytest.approx(off["own"], rel=0.1)
    assert within["after"] == pytest.approx(within["own"], rel=0.05)
    assert within["own"] <= 1.05 * within["budget"]
    # Its chunks can be larger than what is asked for.
    assert within["peak"] < 0.65 * off["peak"]


def test_loops_run_in_segments_with_the_same_bits(tmp_path: Path) -> None:
    off = run(LOOP, "null", folder=tmp_path)
    within = run(LOOP, json.dumps({"budget": "50%"}), folder=tmp_path)
    assert any("checkpoint-loops" in reason for reason in within["reasons"])
    assert within["values"] == off["values"]
    assert within["own"] <= 0.5 * off["own"]


def test_swapped_tensors_leave_the_gpu(tmp_path: Path) -> None:
    found = run(SWAPPING, folder=tmp_path)
    assert found["equal"]
    assert found["after"] <= found["limit"] < found["before"]


def test_kernels_are_measured_where_they_run(tmp_path: Path) -> None:
    found = run(KERNELS, folder=tmp_path)
    assert found["kernels"] == 3  # the result is handed on, too
    assert not found["failed"]
    assert "NVIDIA" in found["environment"]
