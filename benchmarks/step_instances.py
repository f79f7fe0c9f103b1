"""Planning instances from real training steps: what plans cost, and how far from the best at most.

Each model's step becomes a cost graph (`memopt.cost_graph`), which is planned at several shares of
what its order needs on top of what is held, within some seconds. Prints the overhead of the plans,
the bound that no plan can be below, and the gap between the two; writes the instances if asked:

    python benchmarks/step_instances.py [--models mlp bert ...] [--percents 90 70 50 30]
                                        [--seconds 10] [--exact] [--folder DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")

from machine import describe_machine
from rich.console import Console
from rich.table import Table

import memopt
from memopt.errors import BudgetError
from memopt.models import MODELS
from memopt.planning.checker import judge

_PERCENT = 100


def main() -> None:
    """Export, plan, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=sorted(MODELS))
    parser.add_argument("--percents", type=int, nargs="*", default=[90, 70, 50, 30])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--exact", action="store_true", help="let OR-Tools go on")
    parser.add_argument("--folder", type=Path, help="where the instances go")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.models:
        graph = memopt.cost_graph(MODELS[name]().function)
        if arguments.folder is not None:
            arguments.folder.mkdir(exist_ok=True)
            (arguments.folder / f"{name}.json").write_text(json.dumps(graph.to_json()))
        # What compiles the loops, where they never ran before, is nobody's planning time.
        with suppress(BudgetError):
            memopt.plan(graph, 1.0, time_limit_s=0)
        for percent in arguments.percents:
            rows.append(plan(name, graph, percent, arguments.seconds, exact=arguments.exact))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    show(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


def plan(
    name: str, graph: memopt.CostGraph, percent: int, seconds: float, *, exact: bool
) -> dict[str, Any]:
    """One budget of one step."""
    peak_bytes = judge(graph, graph.order.tolist()).peak_bytes
    own_bytes = peak_bytes - graph.held_bytes
    budget_bytes = graph.held_bytes + own_bytes * percent // _PERCENT
    row: dict[str, Any] = {"step": name, "operations": graph.operation_count, "percent": percent}
    try:
        found = memopt.plan(graph, budget_bytes, time_limit_s=seconds, exact=exact)
    except BudgetError as error:
        lowest = (error.lowest_bytes - graph.held_bytes) / own_bytes
        return row | {"lowest": lowest}
    return row | {
        "overhead": found.overhead,
        "bound": found.lower_bound / found.base_cost - 1,
        "gap": found.gap,
        "status": found.status,
        "seconds": found.seconds,
    }


def show(rows: list[dict[str, Any]]) -> None:
    """A line for each budget."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in "step operations budget overhead bound gap status seconds".split():
        table.add_column(column, justify="right")
    for row in rows:
        start = (row["step"], f"{row['operations']:,}", f"{row['percent']}%")
        if "lowest" in row:
            table.add_row(*start, "", "", "", f"lowest {row['lowest']:.0%}", "")
            continue
        shares = (f"{row[key]:.2%}" for key in ("overhead", "bound", "gap"))
        table.add_row(*start, *shares, row["status"], f"{row['seconds']:.1f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
