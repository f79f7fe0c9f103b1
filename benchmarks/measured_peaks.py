"""Measures what recomputation does to real training steps: memory, time, and equality.

Every model's step is run in fresh processes before and after each rewrite: TensorFlow's own with
the scope of GradientTape, memopt at the same level, and memopt with options beyond it. Results are
compared bit for bit; peaks are those of TensorFlow's allocator. Prints a table, and writes JSON if
asked:

    python benchmarks/measured_peaks.py [--json FILE] [--models NAME ...] [--mode exact|as-is]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from machine import describe_machine
from support.native import optimize_native
from tables import print_measured

import memopt
from memopt.item import GrapplerItem
from memopt.models import MODELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.models import TrainingStep

LEVEL = "RECOMPUTATION_HEURISTICS"
SCOPE = "gradient_tape/"
VARIANTS: dict[str, dict[str, Any]] = {
    "memopt, as native": {"target_scope": SCOPE},
    "memopt, auto": {"target_scope": "auto"},
    "memopt, auto, cost": {"target_scope": "auto", "rule": "cost", "all_ports": True},
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--mode", choices=["exact", "as-is"], default="exact")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for model in arguments.models:
        rows.extend(measure(model, arguments.mode))
        print(f"{model} done", file=sys.stderr)
    print_measured(rows)
    if arguments.json:
        result = {"machine": describe_machine(), "mode": arguments.mode, "rows": rows}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


def measure(model: str, mode: Any) -> Iterator[dict[str, Any]]:
    """Run one model's step before and after every rewrite."""
    step = MODELS[model]()
    nodes = len(step.function.graph.get_operations())
    for name, graph_def in rewrites(step):
        verification = memopt.verify(step.function, graph_def, inputs=step.inputs, mode=mode)
        yield {
            "step": model,
            "rewrite": name,
            "added": len(graph_def.node) - nodes,
            "equal": verification.equal,
            "verdict": "bit for bit" if verification.equal else str(verification.within_tolerance),
            "held_bytes": verification.original.held_bytes,
            "original_bytes": verification.original.step_peak_bytes,
            "rewritten_bytes": verification.rewritten.step_peak_bytes,
            "time_ratio": verification.time_ratio,
        }


def rewrites(step: TrainingStep) -> Iterator[tuple[str, GraphDef]]:
    """The step's graph after TensorFlow's own rewrite and after memopt's."""
    item = GrapplerItem.from_concrete_function(step.function)
    fetch = [name.removesuffix(":0") for name in item.fetch]
    yield "native", optimize_native(item.graph_def, LEVEL, fetch, SCOPE)
    for name, options in VARIANTS.items():
        yield name, memopt.optimize(step.function, **options).graph_def


if __name__ == "__main__":
    main()
