"""Measures training steps that XLA compiles: as they are, and within budgets.

Every step is compiled as written, without recomputation and within budgets, and run beside the
original, each in a fresh process, under TensorFlow's default settings: the peak of the step's own
memory as TensorFlow's allocator has it and as the compiler said, whether all bits are the same, and
the ratio of step times. Where a budget is not kept, it is the lowest that was found. Prints a
table, and writes JSON if asked:

    python benchmarks/xla.py [--models NAME ...] [--budgets PERCENT ...] [--json FILE] [--any-bits]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")

from machine import describe_machine
from rich.console import Console
from rich.table import Table

from memopt.errors import BudgetError
from memopt.item import COMPILED
from memopt.models import MODELS
from memopt.options import Budget
from memopt.runtime.entry import as_program
from memopt.runtime.function import build_function
from memopt.runtime.verification import verify_programs
from memopt.xla.entry import CompiledOptions, rewrite_compiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from memopt.runtime.verification import Verification

NAMES = ("mlp", "bert", "gpt", "vit", "resnet50", "mobilenetv2", "unet")
BUDGETS = (70, 50, 30)
_MEBIBYTE = 1 << 20
_STEPS = 2
_ROUNDS = 7


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--models", nargs="*", default=list(NAMES))
    parser.add_argument("--budgets", nargs="*", type=int, default=list(BUDGETS))
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--any-bits", action="store_true", help="accept other last bits")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.models:
        for row in measure(name, arguments.budgets, same_bits=not arguments.any_bits):
            rows.append(row)
            print(json.dumps(row), flush=True)
    show(rows)
    if arguments.json:
        figures = {"machine": describe_machine(), "rows": rows}
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def measure(name: str, budgets: list[int], *, same_bits: bool) -> Iterator[dict[str, Any]]:
    """The figures of a model: without a budget, within each, and beside `tf.recompute_grad`."""
    function, kept_alive = compiled_step(name)
    program = as_program(function)
    for budget in (None, *budgets):
        options = CompiledOptions(
            budget=None if budget is None else Budget.parse(f"{budget}%"), same_bits=same_bits
        )
        started = time.monotonic()
        row: dict[str, Any] = {"model": name, "what": f"{budget}%" if budget else "no budget"}
        try:
            done = rewrite_compiled(function, options)
        except BudgetError as error:
            form = error.result
            row |= {"kept": False, "said_bytes": form.step_bytes}
            graph_def, is_changed = form.compiled.graph_def, bool(form.reports)
        else:
            row |= {"kept": True, "said_bytes": done.memory.step_peak_bytes}
            graph_def, is_changed = done.function.graph.as_graph_def(), bool(done.reports)
        row["seconds"] = time.monotonic() - started
        if not is_changed:
            yield row | {"is_changed": False}
            continue
        yield row | _figures(verified(program, graph_def))
    if name == "mlp":
        again, again_alive = compiled_step("recompute_grad")
        other = as_program(again)
        result = verify_programs(other, other, steps=_STEPS, timing_rounds=1)
        yield {
            "model": name,
            "what": "tf.recompute_grad",
            "own_bytes": result.rewritten.step_peak_bytes,
            "step_ns": None if result.timing is None else result.timing.rewritten_step_ns,
        }
        del again_alive
    del kept_alive


def verified(program: Any, graph_def: Any) -> Verification:
    """The original and a form of it, run for real beside each other."""
    return verify_programs(
        program, program.replace_graph(graph_def), steps=_STEPS, timing_rounds=_ROUNDS
    )


def _figures(result: Verification) -> dict[str, Any]:
    timing = result.timing
    return {
        "is_changed": True,
        "before_bytes": result.original.step_peak_bytes,
        "own_bytes": result.rewritten.step_peak_bytes,
        "equal": result.equal,
        "ratio": None if timing is None else timing.ratio,
        "step_ns": None if timing is None else timing.original_step_ns,
    }


def compiled_step(name: str) -> tuple[ConcreteFunction, Any]:
    """A training step that XLA compiles, and what has to live as long as it."""
    if name == "recompute_grad":
        from recompute_grad_peaks import training_step

        step = training_step(6, again=True)
        function, kept_alive = step.function, step
    elif name in MODELS:
        model = MODELS[name]()
        function, kept_alive = model.function, model
    else:
        function, kept_alive = keras_step(name)
    return build_function(function.graph.as_graph_def(), function, None, {COMPILED: True}), (
        function,
        kept_alive,
    )


def keras_step(name: str) -> tuple[ConcreteFunction, Any]:
    """The training step of a model of `keras_models`."""
    import keras_models
    import tensorflow as tf

    training = getattr(keras_models, name)()
    model = training.model
    model.optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(features, labels, model(features, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    arguments = (tf.constant(training.features), tf.constant(training.labels))
    return step.get_concrete_function(*arguments), training


def show(rows: list[dict[str, Any]]) -> None:
    """The table."""
    table = Table(title=f"Compiled by XLA; {describe_machine()}")
    for column in ("step", "budget", "MiB", "of", "as the compiler said", "time", "bits", "s"):
        table.add_column(column)
    for row in rows:
        table.add_row(*_cells(row))
    Console(width=120).print(table)


def _cells(row: dict[str, Any]) -> Iterator[str]:
    yield row["model"]
    yield row["what"] + ("" if row.get("kept", True) else " (not kept)")
    own_bytes = row.get("own_bytes")
    yield "" if own_bytes is None else f"{own_bytes / _MEBIBYTE:.1f}"
    before = row.get("before_bytes")
    yield "" if before is None else f"{before / _MEBIBYTE:.1f} ({own_bytes / before:.0%})"
    said = row.get("said_bytes")
    yield "" if said is None else f"{said / _MEBIBYTE:.1f}"
    ratio = row.get("ratio")
    yield "" if ratio is None else f"x{ratio:.2f}"
    yield {True: "equal", False: "last bits differ", None: ""}[row.get("equal")]
    yield f"{row['seconds']:.0f}" if "seconds" in row else ""


if __name__ == "__main__":
    main()
