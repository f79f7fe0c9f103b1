"""Measures what splitting operations into parts takes off the memory of training steps.

Each step is brought within a budget without splitting anything and with it, and the results are run
in fresh processes: bits compared, peaks of TensorFlow's allocator, ratio of step times. Beside
them the floors, what one operation needs by itself. Prints a table, writes JSON if asked:

    python benchmarks/fission.py [--json FILE] [--steps NAME ...] [--modes exact as-is]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from machine import describe_machine
from rich.console import Console
from rich.table import Table
from support.attention import attention_step
from support.convolutions import three_convolutions

import memopt
from memopt.errors import BudgetError
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.optimization.infeasible_budget import find_floor
from memopt.plugin.settled import settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.models import TrainingStep
    from memopt.result import OptimizationResult

STEPS: dict[str, tuple[Callable[[], TrainingStep], int]] = {
    "attention": (lambda: attention_step(batch=16, length=256, width=64, heads=4), 30),
    "three convolutions": (lambda: three_convolutions(batch=64), 60),
    **{
        name: (MODELS[name], 30)
        for name in ("bert", "gpt", "mlp", "mobilenetv2", "unet", "resnet50", "densenet121")
    },
}
WHOLE = ("fission{most_parts=1}",)
_MEBIBYTE = 1 << 20
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", help="where to write the figures, after each step")
    parser.add_argument("--steps", nargs="*", default=list(STEPS))
    parser.add_argument("--modes", nargs="*", default=["exact", "as-is"])
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in arguments.steps:
        for mode in arguments.modes:
            rows.append(measure(name, mode))
            print(rows[-1], file=sys.stderr, flush=True)
            if arguments.json:
                result = {"machine": describe_machine(), "rows": rows}
                Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")
    show(rows)


def measure(name: str, mode: Any) -> dict[str, Any]:
    """One step within its budget, without splitting and with it."""
    make, percent = STEPS[name]
    step = make()
    function = step.function if mode == "exact" else settle(step.function)
    item = GrapplerItem.from_concrete_function(function or step.function)
    # TensorFlow has read it already; to memopt it says how the step is going to run.
    with patch.dict(os.environ, {_ONEDNN: "0"} if mode == "exact" else {}):
        whole, _ = within(item, percent, WHOLE)
        started = time.perf_counter()
        split, is_kept = within(item, percent, ())
        seconds = time.perf_counter() - started
    verification = memopt.verify(
        step.function, split.graph_def, inputs=step.inputs, mode=mode, timing_rounds=7
    )
    return {
        "step": name,
        "mode": mode,
        "percent": percent,
        "floor_whole": floor_of(whole),
        "lowest_whole": own_peak(whole),
        "floor_split": floor_of(split),
        "predicted": own_peak(split),
        "kept": is_kept,
        "edits": sum(len(report.edits) for report in split.report.named("fission")),
        "original": verification.original.step_peak_bytes,
        "measured": verification.rewritten.step_peak_bytes,
        "equal": verification.equal,
        "time_ratio": verification.time_ratio,
        "planning_seconds": round(seconds, 1),
    }


def within(
    item: GrapplerItem, percent: int, options: tuple[str, ...]
) -> tuple[OptimizationResult, bool]:
    """The result for a budget, or what comes nearest to it; whether it is kept."""
    try:
        return memopt.optimize(item, budget=f"{percent}%", pass_options=options), True
    except BudgetError as error:
        nearest: OptimizationResult = error.result
        return nearest, False


def floor_of(result: OptimizationResult) -> int:
    """What the largest operation needs, on top of what is held."""
    runtime = result.report.runtime
    assert runtime is not None
    library = from_graph_def(result.graph_def).library
    return find_floor(runtime.after, library).size_bytes - runtime.after.held_bytes


def own_peak(result: OptimizationResult) -> int:
    """What a step is predicted to need on top of what is held."""
    runtime = result.report.runtime
    assert runtime is not None
    return runtime.after.step_peak_bytes


def show(rows: list[dict[str, Any]]) -> None:
    """Peaks of the steps' own in MiB."""
    table = Table(title=describe_machine(), title_justify="left")
    names = "step mode budget before floor plan floor* predicted* measured* kept equal time"
    for column in names.split():
        table.add_column(column, justify="left" if column in ("step", "mode") else "right")
    for row in rows:
        sizes = [
            f"{row[key] / _MEBIBYTE:.1f}"
            for key in (
                *("original", "floor_whole", "lowest_whole"),
                *("floor_split", "predicted", "measured"),
            )
        ]
        table.add_row(
            row["step"],
            row["mode"],
            f"{row['percent']} %",
            *sizes,
            "yes" if row["kept"] else "no",
            "yes" if row["equal"] else "NO",
            f"x{row['time_ratio']:.2f}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
