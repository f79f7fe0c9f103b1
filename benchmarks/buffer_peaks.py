"""Measures how well peaks are predicted for steps whose order is enforced.

Every model's step is put in program order by control edges and run in a fresh process; the peak of
TensorFlow's allocator stands beside what memopt's buffers predict and what TensorFlow's simulation
(GraphMemory) does. The simulation counts constants, inputs and every value read from a variable, so
it is compared with all that is in use, the other two without what is held before the step. Prints a
table, and writes JSON if asked:

    python benchmarks/buffer_peaks.py [--json FILE] [--models NAME ...] [--tiny]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from machine import describe_machine
from rich.console import Console
from rich.table import Table
from support.total_order import chained

import memopt
from memopt.buffers.assignment import buffer_graph_of
from memopt.buffers.buffer_graph import simulate
from memopt.graph.graphdef import from_graph_def
from memopt.graph.traversal import Numbering
from memopt.models import MODELS, TINY
from memopt.runtime.process import step_process
from memopt.runtime.program import Program
from memopt.runtime.step_graph import needed_nodes
from memopt.shapes.properties import Properties


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--tiny", action="store_true", help="sizes that take a moment")
    arguments = parser.parse_args()
    rows = []
    for model in arguments.models:
        rows.append(measure(model, tiny=arguments.tiny))
        print(f"{model} done", file=sys.stderr)
    print_table(rows)
    if arguments.json:
        result = {"machine": describe_machine(), "rows": rows}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def measure(model: str, *, tiny: bool) -> dict[str, Any]:
    """One model's peaks, in bytes on top of what the step holds."""
    step = MODELS[model](**(TINY[model] if tiny else {}))
    program = Program.from_concrete_function(step.function, step.inputs)
    graph_def, order = chained(program.item.graph_def)
    program = program.replace_graph(graph_def)
    item = program.item
    with step_process(program) as process:
        process.run(2)
        measurement = process.measure()
    properties = Properties.of(item)
    properties.require()
    graph = from_graph_def(graph_def)
    buffer_graph = buffer_graph_of(graph, properties, fed=item.feed, fetched=item.fetch)
    numbering = Numbering.of(graph)
    needed = needed_nodes(graph_def, item.fetch, ())
    sequence = [numbering.place(graph[name]) for name in order if name in needed]
    timeline = simulate(buffer_graph, sequence)
    return {
        "model": model,
        "nodes": len(sequence),
        "predicted_bytes": timeline.step_peak_bytes,
        "real_bytes": measurement.step_peak_bytes,
        "predicted_held_bytes": timeline.held_bytes,
        "real_held_bytes": measurement.held_bytes,
        "native_bytes": max(memopt.analyze(item).peak_bytes.values()),
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    """The figures for people, in bytes."""
    table = Table(title=describe_machine(), title_justify="left")
    table.add_column("model")
    for column in ("nodes", "real", "predicted", "off by", "all, real", "native", "off by"):
        table.add_column(column, justify="right")
    for row in rows:
        real = row["real_bytes"]
        everything = real + row["real_held_bytes"]
        table.add_row(
            row["model"],
            str(row["nodes"]),
            f"{real:,}",
            f"{row['predicted_bytes']:,}",
            f"{row['predicted_bytes'] / real - 1:+.4%}",
            f"{everything:,}",
            f"{row['native_bytes']:,}",
            f"{row['native_bytes'] / everything - 1:+.0%}",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
