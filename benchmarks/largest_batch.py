"""Finds the largest batch that trains within a limit of TensorFlow's allocator.

Side by side: the step unchanged, TensorFlow's own memory optimizer, memopt's order alone, and the
rule of about sqrt(n) checkpoints in that order, for which each batch is built, rewritten, and run
for a few steps in a fresh process with the limit (of doubled batches the last that ran, then halves
of what is between it and the first that did not); then what `memopt.fit` finds with at most 20 %
more time, as estimated, and with any. In brackets the time of a step at that batch, for each
example. Prints a table, and writes JSON if asked:

    python benchmarks/largest_batch.py [--json FILE] [--models NAME=LIMIT ...] [--ways NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from lowest import optimize_lowest
from machine import describe_machine
from rich.console import Console
from rich.table import Table
from support.native import optimize_native

import memopt
from memopt.errors import OutOfMemoryError
from memopt.models import MODELS
from memopt.options import parse_bytes
from memopt.runtime.entry import as_program
from memopt.runtime.process import step_process
from memopt.runtime.program import Program
from memopt.runtime.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.item import GrapplerItem

    Rewrite = Callable[[GrapplerItem], GraphDef]

LIMITS = {"bert": "100MB", "resnet50": "460MB", "mlp": "100MB"}
FEWEST = {"bert": 2, "resnet50": 2, "mlp": 256}
FINEST = {"bert": 2, "resnet50": 4, "mlp": 256}
"""The step between batches that are told apart."""
TIMED_STEPS = 5
OVERHEADS = {"fit 20%": "20%", "fit": "1000%"}
"""What `memopt.fit` may add to the estimated time."""


def main() -> None:
    """Search, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--models", nargs="*", default=[f"{k}={v}" for k, v in LIMITS.items()])
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for text in arguments.models:
        model, _, limit = text.partition("=")
        limit_bytes = parse_bytes(limit or LIMITS[model])
        row: dict[str, Any] = {"step": model, "limit_bytes": limit_bytes}
        for name in arguments.ways:
            row[name] = find(model, limit_bytes, name)._asdict()
            print(f"{model}, {name}: {row[name]}", file=sys.stderr, flush=True)
        rows.append(row)
    show(rows, arguments.ways)
    if arguments.json:
        result = {"machine": describe_machine(), "rows": rows}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


class Largest(NamedTuple):
    """The largest batch that runs in one way.

    Attributes:
        batch: How many examples; 0 if none runs.
        example_ns: What a step takes for each of them.
    """

    batch: int
    example_ns: float


def find(model: str, limit_bytes: int, way: str) -> Largest:
    """The largest batch in one of the ways."""
    if way in OVERHEADS:
        return fitted(model, limit_bytes, OVERHEADS[way])
    return largest_batch(model, limit_bytes, REWRITES[way])


def largest_batch(model: str, limit_bytes: int, rewrite: Rewrite) -> Largest:
    """The largest batch that runs."""
    best = Largest(0, 0.0)
    batch = FEWEST[model]
    while step_ns := run(model, batch, limit_bytes, rewrite):
        best, batch = Largest(batch, step_ns / batch), 2 * batch
    fails, finest = batch, FINEST.get(model, 1)
    while fails - best.batch > finest:
        batch = (best.batch + fails) // 2 // finest * finest
        if batch in (best.batch, fails):
            break
        if step_ns := run(model, batch, limit_bytes, rewrite):
            best = Largest(batch, step_ns / batch)
        else:
            fails = batch
    return best


def run(model: str, batch: int, limit_bytes: int, rewrite: Rewrite) -> float:
    """What a step of that batch takes, rewritten; 0 if it is over the limit."""
    step = MODELS[model](batch=batch)
    program = as_program(step.function, step.inputs)
    return time_step(program.replace_graph(rewrite(program.item)), limit_bytes)


def time_step(program: Program, limit_bytes: int) -> float:
    """What a step takes; 0 if it is over the limit."""
    try:
        with step_process(program, Settings(memory_limit_bytes=limit_bytes)) as process:
            process.run(2)
            return median(process.time(TIMED_STEPS))
    except OutOfMemoryError:
        return 0.0


def fitted(model: str, limit_bytes: int, overhead: str) -> Largest:
    """The largest batch that `memopt.fit` finds and has proved."""
    step = MODELS[model](batch=None)
    found = memopt.fit(step.function, limit_bytes, max_overhead=overhead)
    program = Program.from_item(found.item).replace_graph(found.graph_def)
    return Largest(found.size, time_step(program, limit_bytes) / found.size)


def unchanged(item: GrapplerItem) -> GraphDef:
    """The step as it is."""
    return item.graph_def


def native(item: GrapplerItem) -> GraphDef:
    """TensorFlow's own recomputation, with the scope of GradientTape."""
    fetch = [name.removesuffix(":0") for name in item.fetch]
    return optimize_native(item.graph_def, "RECOMPUTATION_HEURISTICS", fetch, "gradient_tape/")


def ordered(item: GrapplerItem) -> GraphDef:
    """Only an order."""
    return memopt.optimize(item, level="ordered").graph_def


def checkpointed(item: GrapplerItem) -> GraphDef:
    """The rule of about sqrt(n) segments, in memopt's order."""
    return optimize_lowest(item, algorithm="sqrt").graph_def


REWRITES = {"unchanged": unchanged, "native": native, "ordered": ordered, "sqrt(n)": checkpointed}
WAYS = (*REWRITES, *OVERHEADS)


def show(rows: list[dict[str, Any]], ways: list[str]) -> None:
    """The largest batches, and by how much the last way's is larger than the first's."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("step", "limit", *ways, "gain"):
        table.add_column(column, justify="right")
    for row in rows:
        before, after = row[ways[0]]["batch"], row[ways[-1]]["batch"]
        gain = after / before if before else 0.0
        batches = [
            f"{row[name]['batch']} ({row[name]['example_ns'] / 1e6:.3f} ms)" for name in ways
        ]
        table.add_row(row["step"], f"{row['limit_bytes'] / 1e6:.0f} MB", *batches, f"x{gain:.1f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
