"""Measures how far training steps can be brought down by budgets, and what it costs.

Every model's step is brought within shares of what it needs when TensorFlow runs it unchanged, and
to the lowest peak that can be found; each result is run in a fresh process, compared bit for bit
with the original, and its peak compared with the one predicted. Beside them: only an order, the
rule of about sqrt(n) segments, and TensorFlow's own memory optimizer. With --plans every algorithm
and scheduler is planned as well, without running the results. Prints tables, and writes JSON if
asked:

    python benchmarks/budget_peaks.py [--json FILE] [--models NAME ...] [--budgets PERCENT ...]
        [--mode exact|as-is] [--plans]
"""

from __future__ import annotations

import argparse
import json
import os
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
from support.native import optimize_native

import memopt
from memopt.errors import BudgetError
from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.passes.remat.algorithms import ALGORITHMS, BEST, COMPRESSING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.models import TrainingStep
    from memopt.result import OptimizationResult

BUDGETS = (90, 70, 50, 30)
SCHEDULERS = ("list", "dfs", "postorder", BEST)
NATIVE_SCOPE = "gradient_tape/"
_MEBIBYTE = 1 << 20


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--budgets", nargs="*", type=int, default=list(BUDGETS))
    parser.add_argument("--mode", choices=["exact", "as-is"], default="exact")
    parser.add_argument("--plans", action="store_true", help="plan with everything, run nothing")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for model in arguments.models:
        step = MODELS[model]()
        if arguments.plans:
            rows.extend(plan_all(model, step, arguments.budgets))
        else:
            rows.extend(measure_all(model, step, arguments.budgets, arguments.mode))
        print(f"{model} done", file=sys.stderr)
    (print_plans if arguments.plans else print_measured)(rows)
    if arguments.json:
        result = {"machine": describe_machine(), "mode": arguments.mode, "rows": rows}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


def measure_all(
    model: str, step: TrainingStep, budgets: list[int], mode: Any
) -> Iterator[dict[str, Any]]:
    """Run one model's step before and after every rewrite."""
    for name, graph_def, predicted_bytes in rewrites(step, budgets):
        verification = memopt.verify(step.function, graph_def, inputs=step.inputs, mode=mode)
        yield {
            "step": model,
            "rewrite": name,
            "predicted_bytes": predicted_bytes,
            "original_bytes": verification.original.step_peak_bytes,
            "rewritten_bytes": verification.rewritten.step_peak_bytes,
            "held_bytes": verification.original.held_bytes,
            "time_ratio": verification.time_ratio,
            "equal": verification.equal,
        }


def rewrites(step: TrainingStep, budgets: list[int]) -> Iterator[tuple[str, GraphDef, int | None]]:
    """Each rewrite with its name and the peak of the step's own that it predicts."""
    item = GrapplerItem.from_concrete_function(step.function)
    fetch = [name.removesuffix(":0") for name in item.fetch]
    yield "native", optimize_native(item.graph_def, "HEURISTICS", fetch, NATIVE_SCOPE), None
    yield "order only", *_graph_and_peak(memopt.optimize(item, level="ordered"))
    yield "sqrt(n) segments", *_graph_and_peak(lowest(item, algorithm="sqrt"))
    for percent in budgets:
        try:
            result = memopt.optimize(item, budget=f"{percent}%")
        except BudgetError:
            continue
        yield f"budget {percent}%", *_graph_and_peak(result)
    yield "lowest", *_graph_and_peak(lowest(item))


def lowest(item: GrapplerItem, **options: Any) -> OptimizationResult:
    """The result with the lowest peak that can be found."""
    try:
        return memopt.optimize(item, budget=1, **options)
    except BudgetError as error:
        return memopt.optimize(item, budget=error.lowest_bytes, **options)


def _graph_and_peak(result: OptimizationResult) -> tuple[GraphDef, int | None]:
    runtime = result.report.runtime
    return result.graph_def, None if runtime is None else runtime.after.step_peak_bytes


def plan_all(model: str, step: TrainingStep, budgets: list[int]) -> Iterator[dict[str, Any]]:
    """What every algorithm reaches with every scheduler, as predicted, and how long it takes."""
    item = GrapplerItem.from_concrete_function(step.function)
    # What stores in other forms needs to be told which.
    plain = [name for name in ALGORITHMS if name not in COMPRESSING]
    for algorithm in (*plain, BEST):
        for scheduler in SCHEDULERS:
            for percent in budgets:
                started = time.perf_counter()
                row = {
                    "step": model,
                    "algorithm": algorithm,
                    "scheduler": scheduler,
                    "budget": percent,
                }
                try:
                    result = memopt.optimize(
                        item, budget=f"{percent}%", algorithm=algorithm, scheduler=scheduler
                    )
                except BudgetError as error:
                    row["not_kept_bytes"] = error.lowest_bytes
                else:
                    row["step_peak_bytes"] = _graph_and_peak(result)[1]
                row["seconds"] = time.perf_counter() - started
                yield row


def print_measured(rows: list[dict[str, Any]]) -> None:
    """Peaks of the step on top of what it holds, in MiB."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("step", "rewrite"):
        table.add_column(column)
    for column in ("before", "predicted", "measured", "share", "time", "equal"):
        table.add_column(column, justify="right")
    for row in rows:
        before, after, predicted = (
            row["original_bytes"],
            row["rewritten_bytes"],
            row["predicted_bytes"],
        )
        table.add_row(
            row["step"],
            row["rewrite"],
            f"{before / _MEBIBYTE:.1f}",
            "" if predicted is None else f"{predicted / _MEBIBYTE:.2f}",
            f"{after / _MEBIBYTE:.2f}",
            f"{after / before:.0%}",
            f"x{row['time_ratio']:.2f}",
            "bit for bit" if row["equal"] else "no",
        )
    Console(width=110).print(table)


def print_plans(rows: list[dict[str, Any]]) -> None:
    """A line for each algorithm and scheduler, a column for each budget."""
    budgets = list(dict.fromkeys(row["budget"] for row in rows))
    table = Table(title=f"predicted MiB of the step's own; {describe_machine()}")
    for column in ("step", "algorithm", "scheduler"):
        table.add_column(column)
    for percent in budgets:
        table.add_column(f"{percent}%", justify="right")
    table.add_column("seconds", justify="right")
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["step"], row["algorithm"], row["scheduler"]), []).append(row)
    for key, group in groups.items():
        cells = [_planned(row) for row in group]
        seconds = sum(row["seconds"] for row in group) / len(group)
        table.add_row(*key, *cells, f"{seconds:.1f}")
    Console(width=110).print(table)


def _planned(row: dict[str, Any]) -> str:
    if "step_peak_bytes" in row:
        return f"{row['step_peak_bytes'] / _MEBIBYTE:.1f}"
    return "not kept"


if __name__ == "__main__":
    main()
