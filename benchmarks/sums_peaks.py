"""Measures what accumulating sums does to real steps: memory, time, and equality.

Steps are run in fresh processes before and after each way to accumulate: TensorFlow's own, memopt's
port of it, a variable in a fixed order, and running sums. Peaks are those of TensorFlow's
allocator. Prints a table, and writes JSON if asked:

    python benchmarks/sums_peaks.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np
import tensorflow as tf
from machine import describe_machine
from support.native import optimize_native
from tables import print_measured

import memopt
from memopt.cluster import Device
from memopt.item import GrapplerItem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.runtime.verification import Verification

LEVEL = "scheduling_heuristics"
SMALL = Device.parse("CPU:0=CPU:1MiB")
"""So small that every sum at the peak is worth it."""

SIDE = 1024
LAYERS = (4, 9, 30)
VARIANTS: dict[str, dict[str, Any]] = {
    "memopt, as Grappler": {"as_grappler": True},
    "memopt, ordered": {
        "pass_options": ("addn-scheduling{running_sums=false,ordered=true,trust_feeds=true}",)
    },
    "memopt": {},
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures")
    arguments = parser.parse_args()
    rows = [row for name, function, inputs in steps() for row in measure(name, function, inputs)]
    print_measured(rows)
    if arguments.json:
        result = {"machine": describe_machine(), "rows": rows}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


def steps() -> Iterator[tuple[str, Any, Any]]:
    """Names, functions and inputs of what is run."""
    x = np.random.default_rng(1).standard_normal((SIDE, SIDE)).astype(np.float32)
    for layers in LAYERS:
        yield f"{layers} layers", sum_of_layers(layers, shaped=False), [x]
        yield f"{layers} layers, shaped", sum_of_layers(layers, shaped=True), [x]


def sum_of_layers(layers: int, *, shaped: bool) -> Any:
    """A deep net whose result is the sum of what all of its layers give.

    Args:
        layers: How many.
        shaped: Whether shapes are known without what is fed.
    """
    random = np.random.default_rng(0)
    weight = tf.Variable(random.standard_normal((SIDE, SIDE)).astype(np.float32) * 0.05)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(x: tf.Tensor) -> tf.Tensor:
        results = []
        # Grappler takes the shapes of what is fed as unknown, those of variables included.
        x, fixed = (tf.reshape(known, [SIDE, SIDE]) if shaped else known for known in (x, weight))
        for _ in range(layers):
            x = tf.tanh(tf.matmul(x, fixed))
            results.append(x)
        return tf.raw_ops.AddN(inputs=results)

    function = step.get_concrete_function(tf.TensorSpec([SIDE, SIDE]))
    function.keep_alive = weight
    return function


def measure(name: str, function: Any, inputs: Any) -> Iterator[dict[str, Any]]:
    """Run one step before and after every rewrite."""
    for variant, graph_def in rewrites(function):
        verification = memopt.verify(function, graph_def, inputs=inputs)
        yield {
            "step": name,
            "rewrite": variant,
            "added": len(graph_def.node) - len(function.graph.get_operations()),
            "equal": verification.equal,
            "verdict": verdict(verification),
            "original_bytes": verification.original.step_peak_bytes,
            "rewritten_bytes": verification.rewritten.step_peak_bytes,
            "time_ratio": verification.time_ratio,
        }


def verdict(verification: Verification) -> str:
    """How equal the results are."""
    if verification.equal:
        return "bit for bit"
    largest = max(one.max_abs_difference or 0.0 for one in verification.differences)
    return f"within {largest:.1e}"


def rewrites(function: Any) -> Iterator[tuple[str, GraphDef]]:
    """The step's graph after TensorFlow's own rewrite and after memopt's."""
    item = GrapplerItem.from_concrete_function(function)
    fetch = [name.removesuffix(":0") for name in item.fetch]
    yield "Grappler", optimize_native(item.graph_def, LEVEL.upper(), fetch, devices=[SMALL])
    for name, options in VARIANTS.items():
        yield name, memopt.optimize(function, level=LEVEL, devices=[SMALL], **options).graph_def


if __name__ == "__main__":
    main()
