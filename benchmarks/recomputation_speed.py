"""Times the recomputation beside TensorFlow's own, on the same graphs in the same process.

Both take a GraphDef in memory and give a GraphDef in memory; memopt's time includes its
verification before and after the pass. Prints a table, and writes JSON if asked:

    python benchmarks/recomputation_speed.py [--json FILE] [--rounds N]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from machine import describe_machine
from rich.console import Console
from rich.table import Table
from support.native import normalize_native, optimize_native

from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.optimizer import MemoryOptimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

LEVEL = "RECOMPUTATION_HEURISTICS"
CHAIN_SIZES = (1_000, 7_000, 10_000, 50_000, 100_000)
NODES_PER_LAYER = 9


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rows = [measure(*case, arguments.rounds) for case in cases()]
    print_table(rows)
    if arguments.json:
        result = {"machine": describe_machine(), "rows": rows}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


def cases() -> Iterator[tuple[str, GraphDef, list[str], str]]:
    """Name, graph, fetches and target scope of everything that is timed."""
    for size in CHAIN_SIZES:
        yield f"chain {size:,}", chain(size // NODES_PER_LAYER), ["train"], "gradients/"
    function = MODELS["resnet50"]().function
    item = GrapplerItem.from_concrete_function(function)
    fetch = [name.removesuffix(":0") for name in item.fetch]
    yield "resnet50", item.graph_def, fetch, "gradient_tape/"


def measure(
    name: str, graph_def: GraphDef, fetch: list[str], scope: str, rounds: int
) -> dict[str, Any]:
    """Time both in turns; medians in nanoseconds."""
    received = normalize_native(graph_def, fetch)
    item = GrapplerItem(received, fetch=tuple(fetch))
    optimizer = MemoryOptimizer(LEVEL, scope)
    pairs = [
        (
            timed(lambda: optimizer.optimize(None, item)),
            timed(lambda: optimize_native(received, LEVEL, fetch, scope)),
        )
        for _ in range(rounds)
    ]
    ratios = [ours / native for ours, native in pairs]
    return {
        "graph": name,
        "nodes": len(received.node),
        "memopt_ns": int(statistics.median(ours for ours, _ in pairs)),
        "native_ns": int(statistics.median(native for _, native in pairs)),
        "ratio": statistics.median(ratios),
        "lowest_ratio": min(ratios),
        "highest_ratio": max(ratios),
    }


def timed(work: Callable[[], object]) -> int:
    """Nanoseconds of one call, after the garbage of the last one is gone."""
    gc.collect()
    start = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - start


def chain(layers: int) -> GraphDef:
    """A training step of many dense layers, as `tf.gradients` makes it."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [8, 16], name="x")
        weights = []
        for number in range(layers):
            weight = tf.raw_ops.VariableV2(shape=[16, 16], dtype=tf.float32, name=f"w{number}")
            weights.append(weight)
            x = tf.nn.relu(tf.matmul(x, weight, name=f"matmul{number}"), name=f"relu{number}")
        gradients = tf.gradients(tf.reduce_sum(x), weights)
        updates = [
            tf.raw_ops.AssignSub(ref=weight, value=0.1 * gradient)
            for weight, gradient in zip(weights, gradients, strict=True)
        ]
        tf.group(*updates, name="train")
    return graph.as_graph_def()


def print_table(rows: list[dict[str, Any]]) -> None:
    """The figures for people."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("graph", "nodes", "memopt", "native", "ratio", "memopt per node"):
        table.add_column(column, justify="left" if column == "graph" else "right")
    for row in rows:
        table.add_row(
            row["graph"],
            f"{row['nodes']:,}",
            f"{row['memopt_ns'] / 1e6:.0f} ms",
            f"{row['native_ns'] / 1e6:.0f} ms",
            f"{row['ratio']:.2f} ({row['lowest_ratio']:.2f} to {row['highest_ratio']:.2f})",
            f"{row['memopt_ns'] / row['nodes'] / 1e3:.1f} us",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
