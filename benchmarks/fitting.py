"""The largest batch by `memopt.fit`, and how long it takes to find it.

Each model's step takes any batch; its largest size within a limit of TensorFlow's allocator is
found by planning, and proved by one real step. Beside it the largest that is predicted to run
unchanged and, with `--unchanged`, whether it does. Prints a table, and writes JSON if asked:

    python benchmarks/fitting.py [--json FILE] [--unchanged] [--models NAME=LIMIT ...]
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

from machine import describe_machine
from rich.console import Console
from rich.table import Table

import memopt
from memopt.errors import OutOfMemoryError
from memopt.fitting.dimensions import find_dimensions, with_size
from memopt.models import MODELS
from memopt.options import parse_bytes
from memopt.runtime.process import step_process
from memopt.runtime.program import Program
from memopt.runtime.settings import Settings

if TYPE_CHECKING:
    from memopt.item import GrapplerItem

LIMITS = {"mlp": "100MB", "bert": "100MB", "resnet50": "460MB"}


def main() -> None:
    """Fit, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--unchanged", action="store_true", help="run the unchanged steps as well")
    parser.add_argument("--models", nargs="*", default=[f"{k}={v}" for k, v in LIMITS.items()])
    arguments = parser.parse_args()
    rows = []
    for text in arguments.models:
        model, _, limit = text.partition("=")
        rows.append(fit(model, limit or LIMITS[model], unchanged=arguments.unchanged))
    show(rows)
    if arguments.json:
        result = {"machine": describe_machine(), "rows": rows}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


def fit(model: str, limit: str, *, unchanged: bool) -> dict[str, Any]:
    """One model's row."""
    item = memopt.GrapplerItem.from_concrete_function(MODELS[model](batch=None).function)
    begun_s = time.monotonic()
    found = memopt.fit(item, limit, progress=lambda line: print(line, file=sys.stderr, flush=True))
    row = found.to_json() | {"step": model, "all_seconds": time.monotonic() - begun_s}
    if unchanged:
        row["unchanged_runs"] = runs(item, found.free_size, parse_bytes(limit))
    return row


def runs(item: GrapplerItem, size: int, limit_bytes: int) -> bool:
    """Whether the unchanged step of a size runs within a limit."""
    program = Program.from_item(with_size(item, find_dimensions(item), size))
    try:
        with step_process(program, Settings(memory_limit_bytes=limit_bytes)) as process:
            process.run(1)
    except OutOfMemoryError:
        return False
    return True


def show(rows: list[dict[str, Any]]) -> None:
    """A line for each model."""
    table = Table(title=describe_machine(), title_justify="left")
    columns = "step limit unchanged fitted factor overhead predicted measured planned seconds"
    for column in columns.split():
        table.add_column(column, justify="right")
    for row in rows:
        runs_too = ""
        if "unchanged_runs" in row:
            runs_too = " (runs)" if row["unchanged_runs"] else " (does not run)"
        table.add_row(
            row["step"],
            f"{row['memory_bytes'] / 1e6:.0f} MB",
            f"{row['free_size']}{runs_too}",
            str(row["size"]),
            f"x{row['factor']:.1f}" if row["factor"] else "",
            f"{row['overhead']:.1%}",
            f"{row['peak_bytes'] / 1e6:.1f}",
            f"{(row['measured_peak_bytes'] or 0) / 1e6:.1f}",
            f"{len(row['probes'])} sizes, {row['seconds']:.0f} s",
            f"{row['all_seconds']:.0f}",
        )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
