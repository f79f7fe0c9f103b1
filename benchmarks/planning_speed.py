"""Times how long it takes to bring chains of layers within a budget, by every algorithm.

A chain's step is a GraphDef in memory; what comes out is ordered, rematerialized and verified. The
budget is half of what the step needs when TensorFlow runs it unchanged, which no order alone keeps.
Prints a table, and writes JSON if asked:

    python benchmarks/planning_speed.py [--json FILE] [--largest NODES] [--budget PERCENT]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
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
ALGORITHMS = ("standard", "path", "segments", "peakpriority", "best")
_MEBIBYTE = 1 << 20


def main() -> None:
    """Time, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--budget", type=int, default=50)
    arguments = parser.parse_args()
    rows = []
    for nodes in (size for size in SIZES if size <= arguments.largest):
        graph_def = chain(nodes // NODES_PER_LAYER, batch=64, width=64)
        item = GrapplerItem(graph_def, fetch=("train",))
        rows.append(plan(item, "order only", {"level": "ordered"}))
        for algorithm in ALGORITHMS:
            options = {"budget": f"{arguments.budget}%", "algorithm": algorithm}
            rows.append(plan(item, algorithm, options))
            print(f"{nodes}, {algorithm} done", file=sys.stderr)
    show(rows)
    if arguments.json:
        result = {"machine": describe_machine(), "rows": rows}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


def plan(item: GrapplerItem, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """One optimization, with its time and what it reached."""
    row: dict[str, Any] = {"nodes": len(item.graph_def.node), "algorithm": name}
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
    return row


def show(rows: list[dict[str, Any]]) -> None:
    """Seconds, and the step's own peak in MiB as predicted."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("nodes", "algorithm", "seconds", "before", "after"):
        table.add_column(column, justify="right")
    for row in rows:
        peaks = ["", "not kept"]
        if "after_bytes" in row:
            found = (row["before_bytes"], row["after_bytes"])
            peaks = [f"{size_bytes / _MEBIBYTE:.1f}" for size_bytes in found]
        table.add_row(str(row["nodes"]), row["algorithm"], f"{row['seconds']:.1f}", *peaks)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
