"""Measures Keras `fit` with memopt switched on inside TensorFlow, beside the same program without.

Each model is trained in two fresh processes, one with memopt and one without, for each level and
budget: the allocator's peak of an epoch on top of what the training holds, epochs timed in turns,
what the first step takes longer, and the time that memopt itself takes for 1,000 nodes. Losses and
weights are compared bit for bit. Prints a table, and writes JSON if asked:

    python benchmarks/keras_fit.py [--json FILE] [--models NAME ...] [--options JSON ...]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import describe_machine
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import keras

OPTIONS = (
    {"level": "recomputation_heuristics"},
    {"level": "scheduling_heuristics"},
    {"level": "heuristics"},
    {"level": "ordered"},
    {"budget": "50%"},
    {"budget": "30%"},
)
ROUNDS = 5
BATCHES = 4
_MEBIBYTE = 1 << 20
_RESULT = "RESULT "


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--options", nargs="*", type=json.loads, default=list(OPTIONS))
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        train(arguments.train[0], json.loads(arguments.train[1]))
        return
    rows = []
    for model in arguments.models:
        for options in arguments.options:
            rows.append(compare(model, options))
            print(f"{model}, {options} done", file=sys.stderr)
    show(rows)
    if arguments.json:
        result = {"machine": describe_machine(), "rows": rows}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


def compare(model: str, options: dict[str, str]) -> dict[str, Any]:
    """One model with memopt and without, in two processes that take turns."""
    with training(model, None) as ask_without, training(model, options) as ask_with:
        without, rewritten = ask_without("measure"), ask_with("measure")
        times_s = [(ask_without("time"), ask_with("time")) for _ in range(ROUNDS)]
        is_equal = ask_without("state") == ask_with("state")
    return {
        "model": model,
        "options": options,
        "peak_without_bytes": without["peak_bytes"],
        "peak_bytes": rewritten["peak_bytes"],
        "held_bytes": without["held_bytes"],
        "time_ratio": statistics.median(after / before for before, after in times_s),
        "first_step_s": rewritten["first_step_s"],
        "first_step_without_s": without["first_step_s"],
        "records": rewritten["records"],
        "equal": is_equal,
    }


@contextmanager
def training(model: str, options: dict[str, str] | None) -> Iterator[Callable[[str], Any]]:
    """A training in a process of its own, as a function that asks it."""
    environment = os.environ | {
        "TF_CPU_ALLOCATOR_USE_BFC": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "ABSL_MIN_LOG_LEVEL": "3",
    }
    environment.pop("MEMOPT_FLAGS", None)
    process = subprocess.Popen(  # noqa: S603 - this interpreter, this file
        [sys.executable, __file__, "--train", model, json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def ask(command: str) -> Any:
        print(command, file=stdin, flush=True)
        for line in stdout:
            if line.startswith(_RESULT):
                return json.loads(line.removeprefix(_RESULT))
        message = f"the training of {model} with {options} died"
        raise RuntimeError(message)

    try:
        yield ask
    finally:
        stdin.close()
        process.wait()


def train(name: str, options: dict[str, Any] | None) -> None:
    """Train, and answer what is asked on standard input."""
    import keras
    import tensorflow as tf

    import memopt
    from memopt.runtime.replay import replay
    from memopt.runtime.trace import TraceRecorder, step_marker

    if options is not None:
        memopt.enable(**options)
    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(1)
    recorder = TraceRecorder(Path(tempfile.mkdtemp()))
    recorder.start()
    model, features, labels, batch = MODELS[name]()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    model.compile(optimizer, loss, jit_compile=False)
    losses: list[float] = []

    def fit(count: int) -> float:
        started = time.perf_counter()
        data = features[:count], labels[:count]
        history = model.fit(*data, batch_size=batch, verbose=0, shuffle=False)
        losses.extend(history.history["loss"])
        return time.perf_counter() - started

    first_step_s = fit(batch)
    with step_marker(0):
        fit(len(features))
    trace = recorder.stop()
    measured = replay(trace.events, trace.steps[-1])
    records = [
        {"nodes": record.nodes, "milliseconds": record.milliseconds, "outcome": record.outcome}
        for record in (memopt.last_reports() if options is not None else ())
        if record.outcome != "passed over"
    ]
    for line in sys.stdin:
        answer: Any = None
        if line.strip() == "measure":
            answer = {
                "peak_bytes": measured.step_peak_bytes,
                "held_bytes": measured.held_bytes,
                "first_step_s": first_step_s,
                "records": records,
            }
        elif line.strip() == "time":
            answer = fit(len(features))
        elif line.strip() == "state":
            weights = b"".join(array.tobytes() for array in model.get_weights())
            answer = [losses, hashlib.sha256(weights).hexdigest()]
        print(_RESULT + json.dumps(answer), flush=True)


def mlp() -> tuple[keras.Model, Any, Any, int]:
    """A deep stack of dense layers, with its data and batch size."""
    import keras
    import numpy as np

    generator = np.random.default_rng(0)
    dense = [keras.layers.Dense(256, activation="relu") for _ in range(24)]
    model = keras.Sequential([keras.Input((256,)), *dense, keras.layers.Dense(10)])
    batch = 1024
    features = generator.standard_normal((BATCHES * batch, 256), dtype=np.float32)
    return model, features, generator.integers(10, size=BATCHES * batch), batch


def resnet50() -> tuple[keras.Model, Any, Any, int]:
    """ResNet50 of Keras on small pictures."""
    import keras
    import numpy as np

    generator = np.random.default_rng(0)
    shape, batch = (64, 64, 3), 8
    model = keras.applications.ResNet50(
        weights=None, input_shape=shape, classes=10, classifier_activation=None
    )
    features = generator.standard_normal((BATCHES * batch, *shape), dtype=np.float32)
    return model, features, generator.integers(10, size=BATCHES * batch), batch


def gpt() -> tuple[keras.Model, Any, Any, int]:
    """A small decoder: four blocks of causal attention and dense layers, with dropout."""
    import keras
    import numpy as np

    generator = np.random.default_rng(0)
    tokens, width, vocabulary, batch = 64, 128, 1000, 16
    layers = keras.layers
    token_ids = keras.Input((tokens,), dtype="int32")
    features = layers.Embedding(vocabulary, width)(token_ids)
    for _ in range(4):
        normal = layers.LayerNormalization()(features)
        attended = layers.MultiHeadAttention(4, width // 4)(normal, normal, use_causal_mask=True)
        features = features + layers.Dropout(0.1)(attended)
        hidden = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(features))
        features = features + layers.Dense(width)(hidden)
    model = keras.Model(token_ids, layers.Dense(vocabulary)(features))
    shape = (BATCHES * batch, tokens)
    numbers = generator.integers(vocabulary, size=(2, *shape)).astype(np.int32)
    return model, numbers[0], numbers[1], batch


MODELS = {"mlp": mlp, "resnet50": resnet50, "gpt": gpt}


def show(rows: list[dict[str, Any]]) -> None:
    """Peaks on top of what is held, in MiB; times as ratios and seconds."""
    table = Table(title=describe_machine(), title_justify="left")
    columns = ("model", "memopt.enable", "without", "with", "time", "first step", "rewriting")
    for column in (*columns, "losses, weights"):
        table.add_column(column, justify="right" if column in columns[2:] else "left")
    for row in rows:
        done = [record for record in row["records"] if record["outcome"] == "rewritten"]
        nodes = sum(record["nodes"] for record in done)
        spent_ms = sum(record["milliseconds"] for record in done)
        extra_s = row["first_step_s"] - row["first_step_without_s"]
        table.add_row(
            row["model"],
            ", ".join(f"{name}={value}" for name, value in row["options"].items()),
            f"{row['peak_without_bytes'] / _MEBIBYTE:.1f}",
            f"{row['peak_bytes'] / _MEBIBYTE:.1f}",
            f"x{row['time_ratio']:.2f}",
            f"{extra_s:+.1f} s",
            f"{1000 * spent_ms / nodes:.0f} ms/1,000" if nodes else "",
            "bit for bit" if row["equal"] else "not equal",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
