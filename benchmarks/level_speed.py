"""Times the levels that simulate beside TensorFlow's own, and compares what they reach.

All take a GraphDef in memory and give a GraphDef in memory, for one GPU with a part of the memory
that the graph would need. The peaks are simulated, of the graph that came in and of both that come
out, and are those that TensorFlow's own simulation gives. Prints a table, and writes JSON if asked:

    python benchmarks/level_speed.py [--json FILE] [--rounds N] [--largest NODES]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from graphs import NODES_PER_LAYER, chain
from machine import describe_machine
from rich.console import Console
from rich.table import Table
from support.native import normalize_native, optimize_native
from support.random_sums import addn_stages

from memopt.analysis import analyze
from memopt.cluster import Device, VirtualCluster
from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.optimizer import MemoryOptimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.result import OptimizationResult

GPU, CPU = Device.parse("GPU:0=GPU"), Device.parse("CPU:0=CPU")
CHAIN_SIZES = (1_000, 10_000, 50_000, 100_000)
STAGE_NODES = 14
STAGE_SIZES = (630, 7_000, 50_000)
MOST_NATIVE_NODES = 50_000
"""Beyond this TensorFlow takes minutes; only memopt is timed."""


class Case(NamedTuple):
    """One graph with a level and the share of its peak that the GPU has."""

    name: str
    graph_def: GraphDef
    fetch: tuple[str, ...]
    level: str
    scope: str
    share: float


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--largest", type=int, default=100_000, help="nodes of the largest graph")
    arguments = parser.parse_args()
    rows = [measure(case, arguments.rounds) for case in cases(arguments.largest)]
    print_table(rows)
    if arguments.json:
        result = {"machine": describe_machine(), "rows": rows}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


def cases(largest: int) -> Iterator[Case]:
    """Everything that is timed."""
    for level in ("swapping_heuristics", "heuristics"):
        yield Case("resnet50", *resnet50(), level, "gradient_tape/", 0.5)
    for size in CHAIN_SIZES:
        if size <= largest:
            graph_def = chain(size // NODES_PER_LAYER, batch=256, width=1024, device=GPU.name)
            yield Case("chain", graph_def, ("train",), "swapping_heuristics", "", 0.5)
    for size in STAGE_SIZES:
        if size <= largest:
            graph_def = addn_stages(size // STAGE_NODES, device=GPU.name)
            for level in ("scheduling_heuristics", "heuristics"):
                yield Case("sums", graph_def, ("train",), level, "", 0.5)


def resnet50() -> tuple[GraphDef, tuple[str, ...]]:
    """The training step on a GPU; variables are handles, so that native knows their shapes."""
    item = GrapplerItem.from_concrete_function(MODELS["resnet50"]().function)
    graph_def = item.with_variable_handles()
    for node in graph_def.node:
        node.device = GPU.name
    return graph_def, tuple(dict.fromkeys(name.partition(":")[0] for name in item.fetch))


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Time both in turns; medians in nanoseconds, the ratio of the same rounds."""
    graph_def = normalize_native(case.graph_def, case.fetch)
    feed = tuple(f"{node.name}:0" for node in graph_def.node if node.op == "Placeholder")
    item = GrapplerItem(graph_def, feed=feed, fetch=case.fetch)
    before_bytes = peak_bytes(item)
    devices = (replace(GPU, memory_bytes=int(before_bytes * case.share)), CPU)
    optimizer = MemoryOptimizer(case.level, case.scope, as_grappler=True)
    row: dict[str, Any] = {
        "graph": case.name,
        "level": case.level,
        "nodes": len(graph_def.node),
        "peak_before_bytes": before_bytes,
    }
    results: list[OptimizationResult] = []
    work: dict[str, Callable[[], GraphDef]] = {}

    def memopt() -> GraphDef:
        results[:] = [optimizer.optimize(VirtualCluster(devices), item)]
        return results[0].graph_def

    work["memopt"] = memopt
    if len(graph_def.node) <= MOST_NATIVE_NODES + STAGE_NODES:
        work["native"] = lambda: optimize_native(
            graph_def, case.level.upper(), case.fetch, case.scope, devices=devices
        )
    times: dict[str, list[int]] = {kind: [] for kind in work}
    for _ in range(rounds):
        for kind, do in work.items():
            taken_ns, result = timed(do)
            times[kind].append(taken_ns)
            row[f"{kind}_nodes"] = len(result.node)
            row.setdefault(f"{kind}_peak_bytes", peak_bytes(replace(item, graph_def=result)))
    for kind, taken in times.items():
        row[f"{kind}_ns"] = int(statistics.median(taken))
    if "native" in times:
        pairs = zip(times["memopt"], times["native"], strict=True)
        row["ratio"] = statistics.median(ours / native for ours, native in pairs)
    row["iterations"] = results[0].report.iterations
    return row


def peak_bytes(item: GrapplerItem) -> int:
    """The GPU's simulated peak."""
    return analyze(item, devices=(GPU, CPU)).peak_bytes[GPU.name]


def timed(work: Callable[[], GraphDef]) -> tuple[int, GraphDef]:
    """Nanoseconds of one call and its result, without Python's collector."""
    gc.collect()
    gc.disable()
    start = time.perf_counter_ns()
    result = work()
    taken_ns = time.perf_counter_ns() - start
    gc.enable()
    return taken_ns, result


def print_table(rows: list[dict[str, Any]]) -> None:
    """The figures for people."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("graph", "level"):
        table.add_column(column)
    for column in (
        "nodes",
        "native",
        "memopt",
        "ratio",
        "us a node",
        "iterations",
        "peak",
        "native's",
        "memopt's",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        has_native = "native_ns" in row
        table.add_row(
            row["graph"],
            row["level"],
            f"{row['nodes']:,}",
            f"{row['native_ns'] / 1e9:.2f} s" if has_native else "",
            f"{row['memopt_ns'] / 1e9:.2f} s",
            f"x{row['ratio']:.2f}" if has_native else "",
            f"{row['memopt_ns'] / row['nodes'] / 1e3:.0f}",
            str(row["iterations"]),
            f"{row['peak_before_bytes'] / 1e6:.1f} MB",
            f"{row['native_peak_bytes'] / 1e6:.1f} MB" if has_native else "",
            f"{row['memopt_peak_bytes'] / 1e6:.1f} MB",
        )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
