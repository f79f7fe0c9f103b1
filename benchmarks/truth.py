"""Holds predictions against real steps: more than forty models, in order and within budgets.

Every model's training step is put into an order, and brought within shares of what it needs; each
result runs in a fresh process, and what memopt predicts of it, held and the step's own, is put
beside what TensorFlow's allocator had. Prints a table, and writes JSON if asked:

    python benchmarks/truth.py [--models NAME ...] [--budgets PERCENT ...] [--kernels measured]
        [--seconds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")

from machine import describe_machine
from rich.console import Console
from rich.table import Table
from truth_models import MODELS

import memopt
from memopt.errors import BudgetError, MemoptError
from memopt.runtime.process import step_process
from memopt.runtime.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keras_models import KerasTraining
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from memopt.result import OptimizationResult

_MEBIBYTE = 1 << 20
_STEPS = 2
_GOAL = 0.001


@dataclass(frozen=True)
class Truth:
    """A prediction beside the real step.

    Attributes:
        model: The model.
        what: "ordered" or the budget.
        budget_bytes: What it means; 0 for none.
        predicted_held_bytes: Before the step, as predicted.
        held_bytes: As measured.
        predicted_own_bytes: The step's own peak, as predicted.
        own_bytes: As measured.
        unknown: Kernels that no rule knows.
        seconds: What rewriting took.
    """

    model: str
    what: str
    budget_bytes: int
    predicted_held_bytes: int
    held_bytes: int
    predicted_own_bytes: int
    own_bytes: int
    unknown: int
    seconds: float

    @property
    def error(self) -> float:
        """How far all that was predicted is from all that was measured."""
        predicted = self.predicted_held_bytes + self.predicted_own_bytes
        return predicted / (self.held_bytes + self.own_bytes) - 1

    @property
    def own_error(self) -> float:
        """The same of the step's own."""
        return self.predicted_own_bytes / self.own_bytes - 1


def main() -> None:
    """Predict, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--budgets", nargs="*", type=int, default=[70, 50, 30])
    parser.add_argument("--kernels", default="rules")
    parser.add_argument("--seconds", type=int, default=10, help="for a plan")
    parser.add_argument("--json", help="where to write the figures")
    arguments = parser.parse_args()
    rows: list[Truth] = []
    for name in arguments.models:
        try:
            for row in truths(name, arguments.budgets, arguments.kernels, arguments.seconds):
                rows.append(row)
                print(f"{name} {row.what}: {row.error:+.4%}, own {row.own_error:+.4%}", flush=True)
        except MemoptError as error:
            print(f"{name}: {error}", flush=True)
        if arguments.json:
            result = {
                "machine": describe_machine(),
                "kernels": arguments.kernels,
                "rows": [asdict(row) for row in rows],
            }
            Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    show(rows)


def truths(name: str, budgets: Sequence[int], kernels: str, seconds: int) -> Iterator[Truth]:
    """A model's step in order, and within each budget."""
    training = MODELS[name]()
    function = step_of(training)
    program = Program.from_concrete_function(function, inputs_of(training))
    options: dict[str, Any] = {"kernels": kernels}
    limited = (f"rematerialization{{planning_seconds={seconds}}}",)
    for budget in (None, *(f"{percent}%" for percent in budgets)):
        started = time.monotonic()
        if budget is None:
            result = memopt.optimize(function, level="ordered", **options)
        else:
            result = _within(function, budget, pass_options=limited, **options)
        seconds_taken = time.monotonic() - started
        runtime = result.report.runtime
        assert runtime is not None
        with step_process(program.replace_graph(result.graph_def)) as process:
            process.run(_STEPS)
            measured = process.measure()
        yield Truth(
            name,
            budget or "ordered",
            runtime.budget_bytes,
            runtime.after.held_bytes,
            measured.held_bytes,
            runtime.after.step_peak_bytes,
            measured.step_peak_bytes,
            sum(each.nodes for each in result.report.unknown_kernels),
            seconds_taken,
        )


def _within(function: ConcreteFunction, budget: str, **options: Any) -> OptimizationResult:
    """The step within a budget, or as near to it as it can be brought."""
    try:
        return memopt.optimize(function, budget=budget, **options)
    except BudgetError as error:
        found: OptimizationResult = error.result
        return found


def step_of(training: KerasTraining) -> ConcreteFunction:
    """A model's training step as a function of one batch."""
    import tensorflow as tf

    model = training.model
    arguments = inputs_of(training)
    model.optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(*values: Any) -> Any:
        *features, labels = values
        with tf.GradientTape() as tape:
            given = features[0] if len(features) == 1 else features
            loss = model.compute_loss(y=labels, y_pred=model(given, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    return step.get_concrete_function(*(tf.TensorSpec(a.shape, a.dtype) for a in arguments))


def inputs_of(training: KerasTraining) -> list[Any]:
    """What a step of a training is given: the features, then the labels."""
    features = training.features
    return [*(features if isinstance(features, list | tuple) else [features]), training.labels]


def show(rows: Sequence[Truth]) -> None:
    """A table, and how many predictions are as near as they should be."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("model", "", "held", "own, predicted", "own, measured", "off by", "own by"):
        table.add_column(column, justify="left" if column in ("model", "") else "right")
    for row in rows:
        table.add_row(
            row.model,
            row.what,
            f"{row.held_bytes / _MEBIBYTE:.2f}",
            f"{row.predicted_own_bytes / _MEBIBYTE:.3f}",
            f"{row.own_bytes / _MEBIBYTE:.3f}",
            f"{row.error:+.3%}",
            f"{row.own_error:+.3%}",
        )
    Console(width=110).print(table)
    near = sum(abs(row.own_error) <= _GOAL for row in rows)
    models = len({row.model for row in rows})
    print(f"{models} models, {len(rows)} steps: {near} within {_GOAL:.1%} of the step's own peak")


if __name__ == "__main__":
    main()
