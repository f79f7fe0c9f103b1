"""Measures how far training steps can be brought down by budgets, and what it costs.

Every model's step is brought within shares of what it needs when TensorFlow runs it unchanged, by
each algorithm, and to the lowest peak that can be found; each result is run in a fresh process,
compared bit for bit with the original, and its peak and time compared with those predicted. Beside
them: only an order, the rule of about sqrt(n) segments, and TensorFlow's own memory optimizer; and
the floor, what one operation needs by itself, so that no plan at all is below it. With
--profiled the step is timed first, operation by operation, and planned by that. With --plans every
algorithm and scheduler is planned as well, without running the results. Prints tables, writes JSON
if asked, and draws the curve of the planner:

    python benchmarks/budget_peaks.py [--json FILE] [--models NAME ...] [--budgets PERCENT ...]
        [--algorithms NAME ...] [--mode exact|as-is] [--profiled] [--picture FILE] [--plans]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from lowest import optimize_lowest
from machine import describe_machine
from peaks_picture import draw_peaks
from rich.console import Console
from rich.table import Table
from support.native import optimize_native

import memopt
from memopt.costs.estimator import GrapplerCosts
from memopt.costs.profiled import ProfiledCosts
from memopt.errors import BudgetError
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.optimization.infeasible_budget import find_floor
from memopt.optimization.overhead import estimate_overhead
from memopt.rematerialization.algorithms import ALGORITHMS, BEST, COMPRESSING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.costs.cost_model import CostModel
    from memopt.models import TrainingStep
    from memopt.result import OptimizationResult
    from memopt.runtime.verification import Verification

BUDGETS = (80, 70, 60, 50, 40, 30, 25, 20, 15)
COMPARED = (BEST, "standard", "path", "segments")
SCHEDULERS = ("list", "dfs", "postorder", BEST)
NATIVE_SCOPE = "gradient_tape/"
TIMING_ROUNDS = 9
_MEBIBYTE = 1 << 20


class Rewrite(NamedTuple):
    """A rewritten step, and what is expected of it.

    Attributes:
        name: How it was rewritten.
        percent: The budget as a share of what the unchanged step needs; `None` without one.
        graph_def: The result.
        predicted_bytes: Its peak on top of what is held; `None` if nothing is predicted.
        predicted_ratio: Its step time by that of the original, as estimated.
        floor_bytes: What one of its operations needs by itself, on top of what is held.
        seconds: How long rewriting took.
    """

    name: str
    percent: int | None
    graph_def: GraphDef
    predicted_bytes: int | None
    predicted_ratio: float | None
    floor_bytes: int | None
    seconds: float


def main() -> None:
    """Measure, print, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures, after each model")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--budgets", nargs="*", type=int, default=list(BUDGETS))
    parser.add_argument("--algorithms", nargs="*", default=list(COMPARED))
    parser.add_argument("--mode", choices=["exact", "as-is"], default="exact")
    parser.add_argument("--profiled", action="store_true", help="plan by a profile of the step")
    parser.add_argument("--picture", help="where to draw peak and time of the first model")
    parser.add_argument("--plans", action="store_true", help="plan with everything, run nothing")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for model in arguments.models:
        step = MODELS[model]()
        if arguments.plans:
            rows.extend(plan_all(model, step, arguments.budgets))
        else:
            rows.extend(measure_all(model, step, arguments))
        print(f"{model} done", file=sys.stderr, flush=True)
        if arguments.json:
            result = {"machine": describe_machine(), "mode": arguments.mode, "rows": rows}
            Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")
    (print_plans if arguments.plans else print_measured)(rows)
    if arguments.picture:
        model = arguments.models[0]
        title = f"{model}: {describe_machine()}"
        chosen = [row for row in rows if row["step"] == model and row["rewrite"] == BEST]
        Path(arguments.picture).write_text(draw_peaks(chosen, title))


def measure_all(
    model: str, step: TrainingStep, arguments: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Run one model's step before and after every rewrite; equal graphs are run once."""
    done: dict[bytes, Verification] = {}
    for rewrite in rewrites(step, arguments):
        key = rewrite.graph_def.SerializeToString(deterministic=True)
        if key not in done:
            done[key] = memopt.verify(
                step.function,
                rewrite.graph_def,
                inputs=step.inputs,
                mode=arguments.mode,
                timing_rounds=TIMING_ROUNDS,
            )
        verification = done[key]
        row = {
            "step": model,
            "rewrite": rewrite.name,
            "percent": rewrite.percent,
            "predicted_bytes": rewrite.predicted_bytes,
            "predicted_ratio": rewrite.predicted_ratio,
            "floor_bytes": rewrite.floor_bytes,
            "planning_seconds": round(rewrite.seconds, 1),
            "original_bytes": verification.original.step_peak_bytes,
            "rewritten_bytes": verification.rewritten.step_peak_bytes,
            "held_bytes": verification.original.held_bytes,
            "time_ratio": verification.time_ratio,
            "equal": verification.equal,
        }
        print(row, file=sys.stderr, flush=True)
        yield row


def rewrites(step: TrainingStep, arguments: argparse.Namespace) -> Iterator[Rewrite]:
    """Each rewrite of a step."""
    item = GrapplerItem.from_concrete_function(step.function)
    costs: CostModel = GrapplerCosts()
    if arguments.profiled:
        profile = memopt.profile(step.function, inputs=step.inputs)
        costs = ProfiledCosts([profile.run_metadata], item, GrapplerCosts())

    def rewritten(
        name: str, percent: int | None, optimize: Callable[..., OptimizationResult], **options: Any
    ) -> Rewrite:
        started = time.perf_counter()
        result = optimize(item, costs=costs, **options)
        seconds = time.perf_counter() - started
        ratio = 1 + estimate_overhead(item, result, costs)
        return Rewrite(name, percent, *_graph_and_peak(result), ratio, floor_of(result), seconds)

    fetch = [name.removesuffix(":0") for name in item.fetch]
    native = optimize_native(item.graph_def, "HEURISTICS", fetch, NATIVE_SCOPE)
    yield Rewrite("native", None, native, None, None, None, 0.0)
    yield rewritten("order only", None, memopt.optimize, level="ordered")
    yield rewritten("sqrt(n) segments", None, optimize_lowest, algorithm="sqrt")
    for percent in arguments.budgets:
        for algorithm in arguments.algorithms:
            options = {"budget": f"{percent}%", "algorithm": algorithm}
            try:
                yield rewritten(algorithm, percent, memopt.optimize, **options)
            except BudgetError:
                continue
    for algorithm in arguments.algorithms:
        yield rewritten(f"{algorithm}, lowest", None, optimize_lowest, algorithm=algorithm)


def floor_of(result: OptimizationResult) -> int | None:
    """What no order and no recomputation gets below, on top of what is held."""
    runtime = result.report.runtime
    if runtime is None:
        return None
    floor = find_floor(runtime.after, from_graph_def(result.graph_def).library)
    return floor.size_bytes - runtime.after.held_bytes


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
    for column in ("step", "rewrite", "budget"):
        table.add_column(column)
    numbers = "before floor predicted measured share estimated time equal planning"
    for column in numbers.split():
        table.add_column(column, justify="right")
    for row in rows:
        before, after = row["original_bytes"], row["rewritten_bytes"]
        table.add_row(
            row["step"],
            row["rewrite"],
            "" if row["percent"] is None else f"{row['percent']} %",
            f"{before / _MEBIBYTE:.1f}",
            _mebibytes(row["floor_bytes"]),
            _mebibytes(row["predicted_bytes"]),
            _mebibytes(after),
            f"{after / before:.0%}",
            "" if row["predicted_ratio"] is None else f"x{row['predicted_ratio']:.2f}",
            f"x{row['time_ratio']:.2f}",
            "bit for bit" if row["equal"] else "no",
            f"{row['planning_seconds']:.1f} s",
        )
    Console(width=130).print(table)


def _mebibytes(count: int | None) -> str:
    return "" if count is None else f"{count / _MEBIBYTE:.2f}"


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
