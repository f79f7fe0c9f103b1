"""SavedModels before and after: bits, predicted and measured peaks, step times, by both loaders.

Each training step is saved, rewritten as a file, and both run in fresh processes under TensorFlow's
default settings, by Python's loader and by TensorFlow's C++ loader. Prints a table.

    python benchmarks/saved_models.py [--budget 60%] [--json FILE] [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from machine import describe_machine
from rich.console import Console
from rich.table import Table

import memopt
from memopt.models import MODELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

STEPS: Mapping[str, Mapping[str, int]] = {
    "mlp": {"batch": 1024, "layers": 12},
    "bert": {},
    "resnet50": {"batch": 8, "image_size": 64, "classes": 10},
    "unet": {},
}
"""The project's own models, with their sizes where they are not the usual ones."""


def save_step(name: str, path: Path) -> str:
    """Write one of the project's own training steps; returns the signature."""
    step = MODELS[name](**STEPS[name])
    count = len(step.inputs)
    specs = [
        tf.TensorSpec(tensor.shape, tensor.dtype, f"x{number}")
        for number, tensor in enumerate(step.function.inputs[:count])
    ]
    module = tf.Module()
    module.kept = list(step.variables)
    train = tf.function(lambda *tensors: {"loss": step.function(*tensors)}, input_signature=specs)
    tf.saved_model.save(module, str(path), signatures={"train_step": train})
    return "train_step"


def save_mobilenet(path: Path) -> str:
    """Write a Keras application, compiled, by `memopt.export_training_step`."""
    keras.utils.set_random_seed(1)
    model = keras.applications.MobileNetV2((96, 96, 3), weights=None, classes=10)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    memopt.export_training_step(model, path, batch_size=16)
    return "train_step"


SAVED: Mapping[str, Callable[[Path], str]] = {
    **{name: partial(save_step, name) for name in STEPS},
    "keras MobileNetV2": save_mobilenet,
}


def measure(name: str, budget: str) -> Iterator[dict[str, Any]]:
    """Save, rewrite and run one; a row for each loader."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before", Path(folder) / "after"
        key = SAVED[name](before)
        report = memopt.optimize_saved_model(before, after, budget=budget)
        (done,) = report.rewritten
        verification = memopt.verify_saved_models(before, after, signatures=[key])
        for one in verification.signatures:
            found = one.verification
            yield {
                "step": name,
                "loader": one.loader,
                "predicted_before_bytes": done.peak_before_bytes - done.held_bytes,
                "predicted_after_bytes": done.peak_after_bytes - done.held_bytes,
                "before_bytes": found.original.step_peak_bytes,
                "after_bytes": found.rewritten.step_peak_bytes,
                "time_ratio": found.time_ratio,
                "equal": found.equal,
                "as_in_python": one.as_in_python,
                "budget_kept": done.keeps_budget,
            }


def print_rows(rows: list[dict[str, Any]]) -> None:
    """The figures for people: peaks of the step's own memory, in MiB."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("step", "loader"):
        table.add_column(column)
    for column in ("predicted", "measured", "change", "time", "bits"):
        table.add_column(column, justify="right")
    for row in rows:
        predicted, measured = (
            " -> ".join(f"{row[f'{kind}{side}_bytes'] / 2**20:.1f}" for side in ("before", "after"))
            for kind in ("predicted_", "")
        )
        change = row["after_bytes"] / row["before_bytes"] - 1
        bits = "equal" if row["equal"] else "as in Python" if row["as_in_python"] else "OTHER"
        time = f"x{row['time_ratio']:.2f}"
        table.add_row(row["step"], row["loader"], predicted, measured, f"{change:+.0%}", time, bits)
    Console(width=110).print(table)


def main() -> None:
    """Measure all, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SAVED))
    parser.add_argument("--budget", default="60%")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in arguments.names or SAVED:
        rows += measure(name, arguments.budget)
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1))
    print_rows(rows)


if __name__ == "__main__":
    main()
