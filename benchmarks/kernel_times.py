"""Compares the times of operations that plans go by with what is measured, kind by kind.

Keras training steps as Grappler leaves them, fused operations included, run for real, one operation
at a time. For each kind of operation that takes at least a hundredth of a step: what Grappler's
model says of all of them together, what `KernelCosts` says, and what was measured, each as a share
of the step; and by how much the two are off at most, beside the other operations of the step.
Prints tables, and writes JSON if asked:

    python benchmarks/kernel_times.py [--json FILE] [--models NAME ...] [--steps N]
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")

from keras_default import builders
from machine import describe_machine
from rich.console import Console
from rich.table import Table

from memopt.cluster import ANY_CPU
from memopt.costs.estimator import GrapplerCosts
from memopt.costs.kernel_costs import KernelCosts
from memopt.graph.graphdef import from_graph_def
from memopt.plugin.settled_item import settle_item
from memopt.runtime.profile import profile
from memopt.runtime.program import Program
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from keras_models import KerasTraining

    from memopt.costs.cost_model import CostModel

DEFAULT = ("vit", "unet", "mobilenetv2", "autoencoder", "bert", "mlp")
LEAST_SHARE = 0.01
"""Of a step; kinds of operations that take less are not shown."""


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--models", nargs="*", default=list(DEFAULT))
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    models = builders(None)
    results = {}
    for name in arguments.models:
        results[name] = compare(settled_program(models[name]()), arguments.steps)
        show(name, results[name])
    if arguments.json:
        result = {"machine": describe_machine(), "models": results}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


def settled_program(training: KerasTraining) -> Program:
    """A Keras training step as Grappler leaves it."""
    import tensorflow as tf

    features, labels = (tf.constant(each) for each in (training.features, training.labels))
    model = training.model
    model.optimizer.build(model.trainable_variables)
    step = tf.function(lambda x, y: model.train_step((x, y)), jit_compile=False)
    function = step.get_concrete_function(features, labels)
    program = Program.from_concrete_function(function, (features, labels))
    settled = settle_item(program.item)
    assert settled is not None
    return replace(program, item=settled)


def compare(program: Program, steps: int) -> list[dict[str, Any]]:
    """By kind of operation: nanoseconds by both models, and as measured; the dearest first."""
    measured_ns = profile(program, steps=steps, mode="as-is").times_ns
    properties = Properties.of(program.item)
    models: dict[str, CostModel] = {"grappler": GrapplerCosts(), "kernels": KernelCosts()}
    sums: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(int))
    for node in from_graph_def(program.item.graph_def):
        if node.name not in measured_ns:
            continue
        row = sums[node.op]
        row["op"] = node.op
        row["operations"] += 1
        row["measured_ns"] += measured_ns[node.name]
        for name, costs in models.items():
            row[f"{name}_ns"] += costs.cost(node, ANY_CPU, properties).execution_ns
    return sorted((dict(row) for row in sums.values()), key=lambda row: -row["measured_ns"])


def show(name: str, rows: list[dict[str, Any]]) -> None:
    """Print one model's table."""
    total = {key: sum(row[key] for row in rows) for key in rows[0] if key.endswith("_ns")}
    table = Table("op", "operations", "by Grappler", "by kernels", "measured", title=name)
    shown = [row for row in rows if row["measured_ns"] >= LEAST_SHARE * total["measured_ns"]]
    for row in shown:
        shares = (row[key] / total[key] for key in ("grappler_ns", "kernels_ns", "measured_ns"))
        table.add_row(row["op"], f"{row['operations']:,}", *(f"{share:.1%}" for share in shares))
    for column in table.columns[1:]:
        column.justify = "right"
    console = Console()
    console.print(describe_machine())
    console.print(table)
    for key, model in (("grappler_ns", "Grappler's model"), ("kernels_ns", "rates of kernels")):
        ratios = [max(row[key], 1) / row["measured_ns"] for row in shown]
        console.print(f"{model}: x{max(ratios) / min(ratios):,.0f} between the kinds shown")


if __name__ == "__main__":
    main()
