"""Times how long it takes to bring chains of layers within a budget, by every algorithm.

A chain's step is a GraphDef in memory; what comes out is ordered, rematerialized and verified. The
budget is half of what the step needs when TensorFlow runs it unchanged, which no order alone keeps.
Each is done in a process of its own, and the most memory that the process had at any time is told
beside what it had before: with TensorFlow and the GraphDef. Prints a table, and writes JSON if
asked:

    python benchmarks/planning_speed.py [--json FILE] [--sizes NODES ...] [--algorithms NAME ...]
        [--budget PERCENT]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from graphs import NODES_PER_LAYER, chain
from machine import describe_machine
from rich.console import Console
from rich.table import Table

import memopt
from memopt.errors import BudgetError
from memopt.item import GrapplerItem

SIZES = (1_000, 10_000, 100_000)
ORDER_ONLY = "order only"
ALGORITHMS = (ORDER_ONLY, "standard", "path", "segments", "peakpriority", "best")
_KIBIBYTE, _MEBIBYTE = 1 << 10, 1 << 20


def main() -> None:
    """Time, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--algorithms", nargs="*", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--budget", type=int, default=50)
    arguments = parser.parse_args()
    rows, fresh = [], multiprocessing.get_context("spawn")
    for nodes in arguments.sizes:
        for algorithm in arguments.algorithms:
            with ProcessPoolExecutor(1, mp_context=fresh) as process:
                rows.append(process.submit(plan, nodes, algorithm, arguments.budget).result())
            print(f"{nodes}, {algorithm} done", file=sys.stderr)
    show(rows)
    if arguments.json:
        result = {"machine": describe_machine(), "rows": rows}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


def plan(nodes: int, algorithm: str, percent: int) -> dict[str, Any]:
    """One optimization, with its time, the process's memory, and what it reached."""
    item = GrapplerItem(chain(nodes // NODES_PER_LAYER, batch=64, width=64), fetch=("train",))
    options: dict[str, Any] = {"budget": f"{percent}%", "algorithm": algorithm}
    if algorithm == ORDER_ONLY:
        options = {"level": "ordered"}
    row: dict[str, Any] = {"nodes": len(item.graph_def.node), "algorithm": algorithm}
    row["process_before_bytes"] = _most_bytes()
    started = time.perf_counter()
    try:
        report = memopt.optimize(item, **options).report
    except BudgetError as error:
        row["lowest_bytes"] = error.lowest_bytes
    else:
        assert report.runtime is not None
        row["before_bytes"] = report.runtime.before.step_peak_bytes
        row["after_bytes"] = report.runtime.after.step_peak_bytes
    row["seconds"] = time.perf_counter() - started
    row["process_bytes"] = _most_bytes()
    return row


def _most_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE


def show(rows: list[dict[str, Any]]) -> None:
    """Seconds, what the process had in MiB, and the step's own peak in MiB as predicted."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("nodes", "algorithm", "seconds", "process", "before", "after"):
        table.add_column(column, justify="right")
    for row in rows:
        peaks = ["", "not kept"]
        if "after_bytes" in row:
            found = (row["before_bytes"], row["after_bytes"])
            peaks = [f"{size_bytes / _MEBIBYTE:.1f}" for size_bytes in found]
        process = [row[key] / _MEBIBYTE for key in ("process_before_bytes", "process_bytes")]
        texts = (f"{row['seconds']:.1f}", f"{process[0]:.0f} to {process[1]:.0f}", *peaks)
        table.add_row(str(row["nodes"]), row["algorithm"], *texts)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
