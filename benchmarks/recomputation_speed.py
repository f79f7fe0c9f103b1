"""Times the recomputation beside TensorFlow's own, on the same graphs in the same process.

All take a GraphDef in memory and give a GraphDef in memory. "pass" is the pass alone, which is what
Grappler does too; "verified" is the whole optimizer, which checks the graph before and after it.
Prints a table, and writes JSON if asked:

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

from graphs import NODES_PER_LAYER, chain
from machine import describe_machine
from rich.console import Console
from rich.table import Table
from support.native import normalize_native, optimize_native

from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.optimizer import MemoryOptimizer
from memopt.passes import Context, Recomputation
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

LEVEL = "RECOMPUTATION_HEURISTICS"
CHAIN_SIZES = (1_000, 7_000, 10_000, 50_000, 100_000)


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
    """Time all three in turns; medians in nanoseconds, ratios to native of the same round."""
    received = normalize_native(graph_def, fetch)
    item = GrapplerItem(received, fetch=tuple(fetch))
    optimizer = MemoryOptimizer(LEVEL, scope)
    work = {
        "pass": lambda: run_pass(received, fetch, scope),
        "verified": lambda: optimizer.optimize(None, item),
        "native": lambda: optimize_native(received, LEVEL, fetch, scope),
    }
    times = [{kind: timed(do) for kind, do in work.items()} for _ in range(rounds)]
    row: dict[str, Any] = {"graph": name, "nodes": len(received.node)}
    for kind in work:
        row[f"{kind}_ns"] = int(statistics.median(time[kind] for time in times))
        row[f"{kind}_ratio"] = statistics.median(time[kind] / time["native"] for time in times)
    return row


def run_pass(graph_def: GraphDef, fetch: list[str], scope: str) -> GraphDef:
    """The pass without verification: in, rewrite, out."""
    graph = from_graph_def(graph_def)
    fed = frozenset(node.name for node in graph if node.op == "Placeholder")
    context = Context(Properties.unknown(), fed=fed, fetched=frozenset(fetch))
    Recomputation(target_scope=scope).run(Rewriter(graph), context)
    return to_graph_def(graph)


def timed(work: Callable[[], object]) -> int:
    """Nanoseconds of one call, without Python's collector, as the optimizer runs."""
    gc.collect()
    gc.disable()
    start = time.perf_counter_ns()
    work()
    taken_ns = time.perf_counter_ns() - start
    gc.enable()
    return taken_ns


def print_table(rows: list[dict[str, Any]]) -> None:
    """The figures for people."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("graph", "nodes", "native", "pass", "verified", "verified per node"):
        table.add_column(column, justify="left" if column == "graph" else "right")
    for row in rows:
        table.add_row(
            row["graph"],
            f"{row['nodes']:,}",
            f"{row['native_ns'] / 1e6:.0f} ms",
            f"{row['pass_ns'] / 1e6:.0f} ms, x{row['pass_ratio']:.2f}",
            f"{row['verified_ns'] / 1e6:.0f} ms, x{row['verified_ratio']:.2f}",
            f"{row['verified_ns'] / row['nodes'] / 1e3:.1f} us",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
