"""Measures Keras under TensorFlow's default settings, with memopt and without.

Each model is trained, by `train_on_batch` or by `fit`, in fresh processes that take turns, one
without memopt and one for each set of options of `memopt.enable`: the peak of TensorFlow's
allocator in a step on top of what is held before it, beside what was predicted; the ratio of step
times; what the first step takes longer; and whether losses and weights are the same bit for bit
("varies": TensorFlow itself does not repeat them from process to process). Prints a table, and
writes JSON if asked:

    python benchmarks/keras_default.py [--json FILE] [--models NAME ...] [--options JSON ...]
        [--rounds N] [--exact] [--fit] [--xla] [--from FILE]

With `--from`, models of your own: `FILE` is Python, and each function of it that is named makes a
compiled Keras model, one batch of what it reads and one of what it is to answer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import runpy
import statistics
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composed_models import COMPOSED
from keras_models import MODELS, KerasTraining
from keras_steps import Batches, Fit
from machine import describe_machine
from rich.console import Console
from rich.table import Table
from trainings import answer_questions, started
from tutorial_models import TUTORIALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPTIONS: tuple[dict[str, Any], ...] = ({}, {"budget": "50%"}, {"budget": "30%"})
STEPS_A_ROUND = 3
REPETITIONS = 3
_MEBIBYTE = 1 << 20


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--models", nargs="*", help="all, where none is named")
    parser.add_argument("--from", dest="file", help="a Python file that makes the models")
    parser.add_argument("--options", nargs="*", type=json.loads, default=list(OPTIONS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--exact", action="store_true", help="one operation at a time, no oneDNN")
    parser.add_argument("--fit", action="store_true", help="train by fit, the last batch not full")
    parser.add_argument("--xla", action="store_true", help="have XLA compile the step")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        name, options = arguments.train
        ways = {"is_exact": arguments.exact, "is_fit": arguments.fit, "by_xla": arguments.xla}
        train(builders(arguments.file)[name], json.loads(options), **ways)
        return
    how = [f"--{flag}" for flag in ("exact", "fit", "xla") if getattr(arguments, flag)]
    how += ["--from", arguments.file] if arguments.file else []
    rows = []
    for model in arguments.models or builders(arguments.file):
        rows += compare(model, arguments.options, arguments.rounds, how)
        show(rows[-len(arguments.options) :])
        if arguments.json:
            result = {"machine": describe_machine(), "exact": arguments.exact, "rows": rows}
            Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")
    show(rows)


def builders(file: str | None) -> dict[str, Callable[[], KerasTraining]]:
    """Makers of trainings by name: those of a file, or the ones that are here."""
    if file is None:
        return {**MODELS, **COMPOSED, **TUTORIALS}
    made = runpy.run_path(file)
    return {name: _builder(given) for name, given in made.items() if _is_builder(given, file)}


def _is_builder(given: Any, file: str) -> bool:
    """Whether it is a public function that the file itself defines."""
    code = getattr(given, "__code__", None)
    return code is not None and code.co_filename == file and not given.__name__.startswith("_")


def _builder(build: Callable[[], tuple[Any, Any, Any]]) -> Callable[[], KerasTraining]:
    return lambda: KerasTraining(*build())


def compare(
    model: str, options: list[dict[str, Any]], rounds: int, how: list[str]
) -> list[dict[str, Any]]:
    """One model without memopt and with each set of options, in processes that take turns."""
    with ExitStack() as stack:
        off, *others = (
            stack.enter_context(training(model, given, how)) for given in (None, *options)
        )
        measured = [ask("measure") for ask in (off, *others)]
        times_s = [[ask("time") for ask in (off, *others)] for _ in range(rounds)]
        states = [ask("state") for ask in (off, *others)]
    is_repeated = len({*map(str, states)}) == 1 or repeats(model, states[0], rounds, how)
    without, *rest = measured
    return [
        {
            "model": model,
            "options": given,
            "off": without,
            "with": found,
            "time_ratio": statistics.median(row[number] / row[0] for row in times_s),
            "equal": states[number] == states[0],
            "is_repeated": is_repeated,
        }
        for number, (given, found) in enumerate(zip(options, rest, strict=True), 1)
    ]


def repeats(model: str, state: Any, rounds: int, how: list[str]) -> bool:
    """Whether the training without memopt comes to the same in other processes."""
    for _ in range(REPETITIONS):
        with training(model, None, how) as ask:
            for _ in range(rounds):
                ask("time")
            if ask("state") != state:
                return False
    return True


@contextmanager
def training(
    model: str, options: dict[str, Any] | None, how: list[str]
) -> Iterator[Callable[[str], Any]]:
    """A training in a process of its own, as a function that asks it."""
    arguments = [__file__, "--train", model, json.dumps(options), *how]
    environment = {"TF_ENABLE_ONEDNN_OPTS": "0"} if "--exact" in how else {}
    with started(arguments, [environment]) as ask:
        yield lambda question: ask(question)[0]


def train(
    build: Callable[[], KerasTraining],
    options: dict[str, Any] | None,
    *,
    is_exact: bool = False,
    is_fit: bool = False,
    by_xla: bool = False,
    is_deterministic: bool = False,
) -> None:
    """Train, and answer what is asked on standard input.

    Args:
        build: Makes the training.
        options: Of `memopt.enable`; `None` for a training without memopt.
        is_exact: One operation at a time.
        is_fit: By `fit`, with a last batch that is not full.
        by_xla: Compiled by XLA.
        is_deterministic: Only kernels that give the same bits each time.
    """
    import keras
    import tensorflow as tf

    import memopt
    from memopt.runtime.replay import replay
    from memopt.runtime.trace import TraceRecorder

    if is_exact:
        tf.config.threading.set_inter_op_parallelism_threads(1)
    if is_deterministic:
        tf.config.experimental.enable_op_determinism()
    if options is not None:
        memopt.enable(**options)
    keras.utils.set_random_seed(1)
    recorder = TraceRecorder(Path(tempfile.mkdtemp()))
    recorder.start()
    training = build()
    training.model.jit_compile = by_xla
    run = Fit(training) if is_fit else Batches(training)
    started_s = time.perf_counter()
    run.step()
    first_step_s = time.perf_counter() - started_s
    run.marked_steps()
    trace = recorder.stop()
    steps = [replay(trace.events, marked) for marked in trace.steps]
    records = [
        {
            "nodes": record.nodes,
            "seconds": record.milliseconds / 1000,
            "outcome": record.outcome,
            "held_bytes": record.held_bytes,
            "peak_before_bytes": record.peak_before_bytes,
            "peak_after_bytes": record.peak_after_bytes,
            "budget_bytes": record.budget_bytes,
            "reason": record.reason,
        }
        for record in (memopt.last_reports() if options is not None else ())
        if record.outcome != "passed over"
    ]

    def measured() -> dict[str, Any]:
        return {
            "peak_bytes": max(each.step_peak_bytes for each in steps),
            "least_peak_bytes": min(each.step_peak_bytes for each in steps),
            "held_bytes": steps[-1].held_bytes,
            "first_step_s": first_step_s,
            "records": records,
        }

    def state() -> list[Any]:
        weights = b"".join(array.tobytes() for array in training.model.get_weights())
        return [run.losses, hashlib.sha256(weights).hexdigest()]

    answer_questions(
        {
            "measure": measured,
            "time": lambda: min(run.step() for _ in range(STEPS_A_ROUND)),
            "state": state,
        }
    )


def show(rows: list[dict[str, Any]]) -> None:
    """Peaks on top of what is held without memopt, in MiB; times as ratios and seconds."""
    table = Table(title=describe_machine(), title_justify="left")
    columns = ("model", "options", "off", "predicted", "with", "predicted", "budget", "time")
    for column in (*columns, "first step", "rewriting", "equal"):
        table.add_column(column, justify="right" if column in columns[2:] else "left")
    for row in rows:
        table.add_row(*_cells(row))
    Console(width=140).print(table)


def _cells(row: dict[str, Any]) -> Iterator[str]:
    off, found = row["off"], row["with"]
    main = max(found["records"], key=lambda record: record["nodes"], default=None)
    yield row["model"]
    yield ", ".join(f"{name}={value}" for name, value in row["options"].items()) or "enable()"
    yield _range_text(off, off["held_bytes"])
    yield _own_text(main, "peak_before_bytes")
    # Rewriting can free what is held, too: constants that it made smaller.
    yield _range_text(found, off["held_bytes"])
    yield _own_text(main, "peak_after_bytes")
    yield _own_text(main, "budget_bytes")
    yield f"x{row['time_ratio']:.2f}"
    yield f"{found['first_step_s'] - off['first_step_s']:+.1f} s"
    yield f"{sum(record['seconds'] for record in found['records']):.1f} s"
    yield "yes" if row["equal"] else "NO" if row["is_repeated"] else "varies"


def _range_text(measured: dict[str, Any], held_bytes: int) -> str:
    """The peaks of steps, on top of what a step without memopt finds held."""
    above_bytes = measured["held_bytes"] - held_bytes
    least, most = (
        f"{(above_bytes + measured[key]) / _MEBIBYTE:.1f}"
        for key in ("least_peak_bytes", "peak_bytes")
    )
    return least if least == most else f"{least} to {most}"


def _own_text(record: dict[str, Any] | None, key: str) -> str:
    """What was predicted, on top of what is held."""
    if record is None or not record[key]:
        return ""
    return f"{(record[key] - record['held_bytes']) / _MEBIBYTE:.1f}"


if __name__ == "__main__":
    main()
