"""Measures memopt beside `tf.recompute_grad`, which a model has to be written for.

The model is a stack of dense layers in blocks; the same stack is built with every block inside
`tf.recompute_grad`. Each step is run in a fresh process: as TensorFlow runs it, in an order by
memopt, and the plain one by memopt within the lower of the two peaks of `tf.recompute_grad`.
Prints a table, and writes JSON if asked:

    python benchmarks/recompute_grad_peaks.py [--json FILE] [--blocks N ...]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from machine import describe_machine
from rich.console import Console
from rich.table import Table

import memopt
from memopt.models.compilation import compile_training_step
from memopt.runtime.entry import as_program
from memopt.runtime.process import step_process
from memopt.runtime.settings import Settings
from memopt.runtime.values import load_values

if TYPE_CHECKING:
    from memopt.models import TrainingStep

LAYERS, WIDTH, BATCH, CLASSES = 24, 256, 2048, 10
BLOCKS = (2, 4, 6, 12)
ROUNDS = 5
STEPS = 3
_MEBIBYTE = 1 << 20


class Block(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Dense layers whose results are kept, or recomputed for the gradients."""

    def __init__(self, layers: int, *, again: bool) -> None:
        super().__init__()
        self._dense = [
            keras.layers.Dense(WIDTH, activation="relu", kernel_initializer="he_normal")
            for _ in range(layers)
        ]
        self._again = again

    def build(self, shape: tuple[int, ...]) -> None:
        """Make the weights: inside of `tf.recompute_grad` they cannot be made."""
        for layer in self._dense:
            layer.build(shape)

    def call(self, features: tf.Tensor) -> tf.Tensor:
        """Run the layers, one after the other."""
        run = tf.recompute_grad(self._run) if self._again else self._run
        return run(features)

    def _run(self, features: tf.Tensor) -> tf.Tensor:
        for layer in self._dense:
            features = layer(features)
        return features


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--blocks", nargs="*", type=int, default=list(BLOCKS))
    arguments = parser.parse_args()
    rows = [row for blocks in arguments.blocks for row in measure(blocks)]
    show(rows)
    if arguments.json:
        result = {"machine": describe_machine(), "rows": rows}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


def measure(blocks: int) -> list[dict[str, Any]]:
    """The steps of one division into blocks, side by side."""
    plain, again = (training_step(blocks, again=again) for again in (False, True))
    first = measure_programs(
        {
            "plain": as_program(plain.function, plain.inputs),
            "tf.recompute_grad": as_program(again.function, again.inputs),
            "tf.recompute_grad, ordered": _rewritten(again, level="ordered"),
        }
    )
    limit_bytes = min(row["held_bytes"] + row["step_peak_bytes"] for row in first[1:])
    second = measure_programs(
        {
            "plain": as_program(plain.function, plain.inputs),
            "memopt, within that": _rewritten(plain, budget=limit_bytes),
        }
    )
    return [{"blocks": blocks, **row} for row in (*first, second[1])]


def training_step(blocks: int, *, again: bool) -> TrainingStep:
    """The stack in blocks of equal length."""
    generator = np.random.default_rng(0)
    samples = generator.standard_normal((BATCH, WIDTH), dtype=np.float32)
    labels = generator.integers(CLASSES, size=BATCH, dtype=np.int32)

    def build() -> keras.Model:
        features = samples_in = keras.Input((WIDTH,))
        for _ in range(blocks):
            features = Block(LAYERS // blocks, again=again)(features)
        return keras.Model(samples_in, keras.layers.Dense(CLASSES)(features))

    return compile_training_step("stack", build, (samples, labels), seed=0)


def _rewritten(step: TrainingStep, **options: Any) -> Any:
    program = as_program(step.function, step.inputs)
    return program.replace_graph(memopt.optimize(program.item, **options).graph_def)


def measure_programs(programs: dict[str, Any]) -> list[dict[str, Any]]:
    """Peaks, losses and times of steps, the first of which is what the others compare with."""
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(step_process(program, Settings()))
            for name, program in programs.items()
        }
        rows: list[dict[str, Any]] = []
        for name, process in processes.items():
            losses = [
                float(value) for file in process.run(STEPS) for value in load_values(file).values()
            ]
            measured = process.measure()
            rows.append(
                {
                    "rewrite": name,
                    "step_peak_bytes": measured.step_peak_bytes,
                    "held_bytes": measured.held_bytes,
                    "losses": losses,
                }
            )
        times_ns = {name: list[float]() for name in processes}
        for _ in range(ROUNDS):
            for name, process in processes.items():
                times_ns[name].append(statistics.fmean(process.time(3)))
    base = times_ns["plain"]
    for row in rows:
        own = times_ns[row["rewrite"]]
        row["time_ratio"] = statistics.median(a / b for a, b in zip(own, base, strict=True))
        row["equal"] = row["losses"] == rows[0]["losses"]
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Peaks of the step on top of what it holds, in MiB."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("blocks", "step", "measured", "time", "losses"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for row in rows:
        table.add_row(
            str(row["blocks"]),
            row["rewrite"],
            f"{row['step_peak_bytes'] / _MEBIBYTE:.2f}",
            f"x{row['time_ratio']:.2f}",
            "equal" if row["equal"] else "not equal",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
