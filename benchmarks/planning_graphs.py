"""Plans published instances, and random layered ones, beside what other planners report of them.

Prints for each graph and budget what memopt's plans cost over computing everything once, for each
seed, the bound, and the seconds that planning took, median and most; every plan is judged by the
checker. The published graphs are read from a folder, and left out where it is absent:

    python benchmarks/planning_graphs.py [--graphs FOLDER] [--seeds N] [--layered N ...]
                                         [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from machine import describe_machine
from rich.console import Console
from rich.table import Table
from support.layered_graphs import layered_graph

import memopt
from memopt.errors import BudgetError
from memopt.planning.checker import judge
from memopt.planning.cost_graph import CostGraph

if TYPE_CHECKING:
    from collections.abc import Iterator

GRAPHS = Path(__file__).resolve().parents[2] / "shared" / "planning_graphs"
BUDGETS = (90, 80, 70)
PUBLISHED = {
    ("rl1_n100", 90): ("0.8", "0.8", "0.0"),
    ("rl1_n100", 80): ("2.3", "2.3", "0.3"),
    ("rl1_n100", 70): ("", "", "over"),
    ("rl2_n250", 90): ("0.9", "0.9", "0.0"),
    ("rl2_n250", 80): ("limit", "4.9", "0.0"),
    ("rl2_n250", 70): ("", "", "2.6"),
    ("rl3_n500", 90): ("limit", "0.7", "0.03"),
    ("rl3_n500", 80): ("limit", "3.4", "2.3"),
    ("rl3_n500", 70): ("", "", "over"),
    ("rl4_n1000", 90): ("limit", "0.7", "0.4"),
    ("rl4_n1000", 80): ("limit", "3.4", "2.5"),
    ("rl4_n1000", 70): ("", "", "7.4"),
    ("fcn8", 90): ("0.0", "0.029", "0.1"),
    ("fcn8", 80): ("0.136", "0.136", "0.1"),
    ("fcn8", 70): ("", "0.892", "3.0"),
    ("resnet50", 90): ("0.1", "0.108", "0.2"),
    ("resnet50", 80): ("0.3", "0.279", "0.4"),
    ("resnet50", 70): ("", "", "0.8"),
}
"""Over the base cost in %: Checkmate's MILP, Moccasin, FastSA. "limit": not within its time."""
_PERCENT = 100


def main() -> None:
    """Plan, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=Path, default=GRAPHS, help="a folder of JSON files")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--layered", type=int, nargs="*", default=[2000, 8000])
    parser.add_argument("--json", help="where to write the figures")
    arguments = parser.parse_args()
    # What compiles the loops, where they never ran before, is nobody's planning time.
    with contextlib.suppress(BudgetError):
        memopt.plan(layered_graph(40, 0), 0.5)
    rows = []
    for graph in graphs(arguments.graphs, arguments.layered):
        for percent in BUDGETS:
            rows.append(plan(graph, percent, arguments.seeds))
            print(f"{graph.name} {percent}% done", file=sys.stderr)
    show(rows)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


def graphs(folder: Path, sizes: list[int]) -> Iterator[CostGraph]:
    """The published ones, then layered ones."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        print(f"no published graphs in {folder}: name their folder with --graphs", file=sys.stderr)
    for path in paths:
        yield CostGraph.load(path)
    for size in sizes:
        yield layered_graph(size, seed=1)


def plan(graph: CostGraph, percent: int, seeds: int) -> dict[str, Any]:
    """One budget with every seed."""
    base = judge(graph, graph.order.tolist())
    index = {label: op for op, label in enumerate(graph.ids)}
    overheads: list[float | None] = []
    seconds: list[float] = []
    bound = 0.0
    for seed in range(seeds):
        started_s = time.perf_counter()
        try:
            found = memopt.plan(graph, f"{percent}%", seed=seed)
        except BudgetError:
            found = None
        seconds.append(time.perf_counter() - started_s)
        if found is None:
            overheads.append(None)
        else:
            judged = judge(graph, [index[label] for label in found.sequence], found.swaps)
            assert judged.peak_bytes * _PERCENT <= base.peak_bytes * percent
            overheads.append(_PERCENT * (judged.cost / base.cost - 1))
            bound = _PERCENT * (found.lower_bound / base.cost - 1)
    return {
        "graph": graph.name,
        "operations": graph.operation_count,
        "budget": percent,
        "overheads": overheads,
        "bound": bound,
        "seconds": seconds,
    }


def show(rows: list[dict[str, Any]]) -> None:
    """A line for each graph and budget."""
    table = Table(title=f"% over the base cost; {describe_machine()}")
    for column in ("graph", "budget"):
        table.add_column(column)
    for column in (
        "MILP",
        "Moccasin",
        "FastSA",
        "memopt",
        "worst seed",
        "bound",
        "seconds",
        "slowest",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        kept = [overhead for overhead in row["overheads"] if overhead is not None]
        is_always_kept = len(kept) == len(row["overheads"])
        table.add_row(
            row["graph"],
            f"{row['budget']}%",
            *PUBLISHED.get((row["graph"], row["budget"]), ("", "", "")),
            f"{kept[0]:.3f}" if row["overheads"][0] is not None else "over",
            f"{max(kept):.3f}" if is_always_kept else "over",
            f"{row['bound']:.3f}",
            f"{median(row['seconds']):.1f}",
            f"{max(row['seconds']):.1f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
