"""Measures on a GPU what the other benchmarks measure on the host, in one table for each question.

- trainings: Keras `train_on_batch` without memopt, with `memopt.enable()` and within budgets, with
  and without XLA: the peak of the GPU's allocator in a step beside what was predicted, the ratio of
  step times; and whether bits are the same where TensorFlow runs deterministic kernels.
- swaps: a chain of dense layers whose tensors cross the bus, by TensorFlow's own pass and by
  memopt's, held against the simulated timeline.
- kernels: every op alone: what the GPU's kernel does with memory beside the rules, which were
  found on the host, and the workspace that cuDNN takes.
- steps: a step's kernels measured alone, and the peak that is predicted with that and without.

Prints tables, and writes JSON if asked:

    python benchmarks/gpu.py [--parts NAME ...] [--models NAME ...] [--json FILE] [--small]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import keras_models
from keras_default import train
from machine import describe_machine
from rich.console import Console
from rich.table import Table
from trainings import started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from keras_models import KerasTraining

MODELS: dict[str, Callable[[], KerasTraining]] = {
    "resnet50": partial(keras_models.resnet50, 32, 224),
    "mobilenetv2": partial(keras_models.mobilenetv2, 32, 224),
    "densenet121": partial(keras_models.densenet121, 16, 224),
    "vit": partial(keras_models.vit, 32, 112, 384, 12),
    "bert": partial(keras_models.bert, 32, 256, 768, 6),
    "gpt": partial(keras_models.gpt, 32, 256, 768, 6),
    "unet": partial(keras_models.unet, 16, 256),
    "mlp": partial(keras_models.mlp, 8192, 2048),
}
"""Sizes that keep a GPU busy."""

OPTIONS: tuple[dict[str, Any] | None, ...] = (None, {}, {"budget": "50%"}, {"budget": "30%"})
"""`None`: without memopt."""

EQUAL: tuple[dict[str, Any] | None, ...] = (None, {"budget": "50%"})
"""Whose weights are compared, with deterministic kernels."""

_MOST_PROCESSES = 64
_ROUNDS = 5
_REPEATED_STEPS = 4
_MEBIBYTE = 1 << 20
_CHAIN = (20, 2048, 8192)
_SMALL_CHAIN = (12, 256, 1024)
_SWAP_PARTS = (0.8, 0.6)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--parts", nargs="*", default=list(PARTS))
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--xla", nargs="*", choices=("no", "yes"), default=["no", "yes"])
    parser.add_argument(
        "--at-once", type=int, default=2, help="models whose processes start together"
    )
    parser.add_argument("--small", action="store_true", help="in the sizes for the host")
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--train", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        _train(**arguments.train)
        return
    print(describe_machine(), flush=True)
    result: dict[str, Any] = {"machine": describe_machine()}
    for part in arguments.parts:
        began = time.monotonic()
        try:
            result[part] = PARTS[part](arguments)
        except Exception:  # noqa: BLE001 - one part must not take the others along
            traceback.print_exc()
            result[part] = {"failure": traceback.format_exc()}
        print(f"{part}: {time.monotonic() - began:.0f} s", flush=True)
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _train(
    model: str, options: dict[str, Any] | None, *, is_small: bool, jit: bool, deterministic: bool
) -> None:
    """One training, in a process of its own."""
    build = keras_models.MODELS[model] if is_small else MODELS[model]

    def compiled() -> KerasTraining:
        training = build()
        training.model.jit_compile = jit
        return training

    train(compiled, options, is_deterministic=deterministic)


def trainings(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Peaks and times of Keras models, operation by operation and compiled by XLA."""
    asked = [
        Training(model, arguments.small, xla == "yes")
        for xla in arguments.xla
        for model in arguments.models
    ]
    rows = []
    for first in range(0, len(asked), arguments.at_once):
        found = _compare(asked[first : first + arguments.at_once])
        _show_trainings(found)
        rows += found
    return rows


class Training(NamedTuple):
    """A model, in which size, and whether XLA compiles its step."""

    model: str
    is_small: bool
    jit: bool


def _compare(asked: Sequence[Training]) -> list[dict[str, Any]]:
    """Models with each set of options, in processes that start together and are timed in turns."""
    rows = []
    with ThreadPoolExecutor(_MOST_PROCESSES) as pool, ExitStack() as stack:
        repeatable = [_Begun(one, EQUAL, pool, stack, deterministic=True) for one in asked]
        begun = [_Begun(one, OPTIONS, pool, stack) for one in asked]
        states = [list(pool.map(_state, each.processes)) for each in repeatable]
        for one, running, state in zip(asked, begun, states, strict=True):
            off, *others = [ask("measure") for ask in running.processes]
            times_s = [[ask("time") for ask in running.processes] for _ in range(_ROUNDS)]
            equal = {
                json.dumps(given): each == state[0]
                for given, each in zip(EQUAL, state, strict=True)
            }
            rows += [
                {
                    "model": one.model,
                    "jit": one.jit,
                    "options": options,
                    "off": off,
                    "with": found,
                    "off_s": statistics.median(row[0] for row in times_s),
                    "time_ratio": statistics.median(row[number] / row[0] for row in times_s),
                    "equal": equal.get(json.dumps(options)),
                }
                for number, (options, found) in enumerate(zip(OPTIONS[1:], others, strict=True), 1)
            ]
    return rows


class _Begun:
    """Trainings of one model that start at once, each as a function that asks it."""

    def __init__(
        self,
        training: Training,
        options: Sequence[dict[str, Any] | None],
        pool: ThreadPoolExecutor,
        stack: ExitStack,
        *,
        deterministic: bool = False,
    ) -> None:
        # What XLA compiles has a flag of its own for it, and TensorFlow's excludes XLA.
        by_flag = deterministic and training.jit
        flags = os.environ.get("XLA_FLAGS", "")
        if by_flag:
            flags += " --xla_gpu_exclude_nondeterministic_ops=true"

        def begin(given: dict[str, Any] | None) -> Callable[[str], Any]:
            asked = {"options": given, "deterministic": deterministic and not by_flag}
            arguments = [__file__, "--train", json.dumps(training._asdict() | asked)]
            ask = stack.enter_context(started(arguments, [{"XLA_FLAGS": flags}]))
            return lambda question: ask(question)[0]

        self._pending = [pool.submit(begin, given) for given in options]

    @property
    def processes(self) -> list[Callable[[str], Any]]:
        """Once they have all started."""
        return [each.result() for each in self._pending]


def _state(ask: Callable[[str], Any]) -> Any:
    for _ in range(_REPEATED_STEPS):
        ask("time")
    return ask("state")


def _show_trainings(rows: list[dict[str, Any]]) -> None:
    table = Table(title="Own peaks in MiB, as the GPU's allocator has them", title_justify="left")
    for column in ("model", "XLA", "options", "off", "predicted", "with", "predicted", "budget"):
        table.add_column(column, justify="left" if column in ("model", "options") else "right")
    for column in ("step", "time", "rewriting", "equal"):
        table.add_column(column, justify="right")
    for row in rows:
        off, found = row["off"], row["with"]
        main = max(found["records"], key=lambda record: record["nodes"], default=None)
        table.add_row(
            row["model"],
            "yes" if row["jit"] else "no",
            json.dumps(row["options"]),
            _mebibytes(off["peak_bytes"]),
            _own_text(main, "peak_before_bytes"),
            _mebibytes(found["peak_bytes"]),
            _own_text(main, "peak_after_bytes"),
            _own_text(main, "budget_bytes"),
            f"{1000 * row['off_s']:.1f} ms",
            f"x{row['time_ratio']:.2f}",
            f"{sum(record['seconds'] for record in found['records']):.1f} s",
            {True: "yes", False: "NO", None: ""}[row["equal"]],
        )
        if main is not None and main["outcome"] != "rewritten":
            print(f"{row['model']} {row['options']}: {main['outcome']}: {main['reason']}")
    Console(width=140).print(table)


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / _MEBIBYTE:.1f}"


def _own_text(record: dict[str, Any] | None, key: str) -> str:
    if record is None or not record[key]:
        return ""
    return _mebibytes(record[key] - record["held_bytes"])


def swaps(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A chain of dense layers whose tensors go to the host and back."""
    from support.native import optimize_native
    from support.native_simulation import GPU, cpu, gpu
    from support.swapping import chain

    from memopt.analysis import analyze
    from memopt.api import optimize
    from memopt.item import GrapplerItem
    from memopt.passes import Swapping
    from memopt.runtime.entry import verify

    item = GrapplerItem(
        chain(*(_SMALL_CHAIN if arguments.small else _CHAIN)), feed=("x:0",), fetch=("train",)
    )
    before_bytes = analyze(item, devices=[gpu(), cpu()]).peak_bytes[GPU]
    rows = []
    for part in _SWAP_PARTS:
        devices = [gpu(0, int(before_bytes * part)), cpu()]
        graphs = {
            "TensorFlow": optimize_native(
                item.graph_def, "SWAPPING_HEURISTICS", item.fetch, devices=devices
            )
        }
        for name, pass_ in (("as TensorFlow", Swapping()), ("improved", Swapping(improved=True))):
            graphs[name] = optimize(
                item, level="swapping_heuristics", devices=devices, pass_options=[str(pass_)]
            ).graph_def
        for name, graph_def in graphs.items():
            after = replace(item, graph_def=graph_def)
            verification = verify(item, after, timing_rounds=3, steps=2)
            rows.append(
                {
                    "part": part,
                    "by": name,
                    "copies": sum(node.op == "_CopyFromGpuToHost" for node in graph_def.node),
                    "limit_bytes": devices[0].memory_bytes,
                    "simulated_bytes": before_bytes,
                    "before_bytes": verification.original.peak_bytes,
                    "after_bytes": verification.rewritten.peak_bytes,
                    "simulated_after_bytes": analyze(after, devices=[gpu(), cpu()]).peak_bytes[GPU],
                    "time_ratio": verification.time_ratio,
                    "equal": verification.equal,
                }
            )
    _print_rows("Swaps across the bus, MiB", rows)
    return rows


def kernels(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every op alone."""
    del arguments
    from kernel_cases import cases
    from kernel_memory import compare, make_tables, measure_cases

    found, failures = measure_cases(cases(), "GPU")
    for line in compare(make_tables(found), {memory.op for memory in found}):
        print(line)
    for name, reason in failures.items():
        print(f"not run: {name}: {reason[:100]}")
    print(f"{len(found)} kernels ran, {len(failures)} did not")
    for memory in found:
        if memory.scratch_bytes:
            print(f"{memory.op} {memory.label}: {memory.scratch_bytes} bytes of scratch memory")
    return {"found": [asdict(memory) for memory in found], "failures": failures}


def steps(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A step's kernels alone; the step's peak with what they showed and without."""
    from truth import inputs_of, step_of

    import memopt
    from memopt.runtime.process import step_process
    from memopt.runtime.program import Program

    rows = []
    for model in arguments.models:
        training = (keras_models.MODELS if arguments.small else MODELS)[model]()
        function = step_of(training)
        program = Program.from_concrete_function(function, inputs_of(training))
        began = time.monotonic()
        profile = memopt.profile_kernels(function)
        row: dict[str, Any] = {
            "model": model,
            "kernels": profile.kernels,
            "failed": len(profile.failed),
            "differ": len(profile.differences),
            "seconds": time.monotonic() - began,
        }
        for line in profile.differences[:12]:
            print(f"{model}: {line}"[:300])
        for failed in profile.failed[:5]:
            print(f"{model}: {failed.kernel} {failed.reason}"[:300])
        for kernels_option in ("rules", "measured"):
            result = memopt.optimize(function, level="ordered", kernels=kernels_option)
            runtime = result.report.runtime
            assert runtime is not None
            row[f"predicted, {kernels_option}"] = runtime.after.step_peak_bytes
            with step_process(program.replace_graph(result.graph_def)) as process:
                process.run(2)
                measured = process.measure()
            row[f"measured, {kernels_option}"] = measured.step_peak_bytes
            row["held"] = measured.held_bytes - runtime.after.held_bytes
        rows.append(row)
        print(json.dumps(row), flush=True)
    _print_rows("A step's kernels alone, and its peak in order", rows)
    return rows


def _print_rows(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for key in rows[0]:
        table.add_column(key.removesuffix("_bytes"), justify="right")
    for row in rows:
        table.add_row(*_cells(row))
    Console(width=140).print(table)


def _cells(row: dict[str, Any]) -> Iterator[str]:
    for key, value in row.items():
        if key.endswith("_bytes") or key.startswith(("predicted", "measured")):
            yield _mebibytes(value)
        else:
            yield f"{value:.2f}" if isinstance(value, float) else str(value)


PARTS: dict[str, Callable[..., Any]] = {
    "trainings": trainings,
    "swaps": swaps,
    "kernels": kernels,
    "steps": steps,
}


if __name__ == "__main__":
    main()
