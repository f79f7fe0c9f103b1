"""Measures a training step on several devices, with memopt and without.

Two replicas of a deep network under MirroredStrategy on two logical devices, under
MultiWorkerMirroredStrategy in two real processes, and a network whose halves lie on two devices:
the peak of TensorFlow's allocator in a step on top of what is held before it (of the process that
needs most), what was predicted for all of its devices together, the ratio of step times, taken in
turns, and whether losses and weights are the same bit for bit. Prints a table:

    python benchmarks/replicas.py [--kinds NAME ...] [--options JSON ...] [--rounds N] [--gpu]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import socket
import statistics
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import describe_machine
from rich.console import Console
from rich.table import Table
from trainings import answer_questions, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIRRORED, WORKERS, HALVES = "mirrored", "workers", "halves"
KINDS = (MIRRORED, WORKERS, HALVES)
WORKER_COUNT = 2
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"budget": "50%"}, {"budget": "30%"})
LAYERS = 16
WIDTH = 256
BATCH = 4096
MEASURED_STEPS = 3
STEPS_A_ROUND = 3
LOGICAL_GPU_MEBIBYTES = 8192
"""What each of the two parts of a GPU may use."""
_MEBIBYTE = 1 << 20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--options", nargs="*", type=json.loads, default=list(OPTIONS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--gpu", action="store_true", help="two halves of the first GPU")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    device_type = "GPU" if arguments.gpu else "CPU"
    if arguments.train:
        train(arguments.train[0], json.loads(arguments.train[1]), device_type)
        return
    console = Console(width=110)
    console.print(describe_machine())
    for kind in arguments.kinds:
        console.print(compare(kind, arguments.options, arguments.rounds, device_type))


def compare(
    kind: str, options: list[dict[str, Any]], rounds: int, device_type: str = "CPU"
) -> Table:
    """One kind without memopt and with each set of options, in processes that take turns."""
    with ExitStack() as stack:
        asks = [
            stack.enter_context(training(kind, given, device_type)) for given in (None, *options)
        ]
        measured = [ask("measure") for ask in asks]
        times_s = [[ask("time") for ask in asks] for _ in range(rounds)]
        states = [ask("state") for ask in asks]
    table = Table("options", "own peak MiB", "predicted MiB", "time", "same bits", title=kind)
    for number, given in enumerate((None, *options)):
        worst = max(measured[number], key=lambda worker: int(worker["peak_bytes"]))
        records = worst["records"] or [[0, 0]]
        ratio = statistics.median(max(row[number]) / max(row[0]) for row in times_s)
        table.add_row(
            "off" if given is None else json.dumps(given),
            f"{worst['peak_bytes'] / _MEBIBYTE:.1f}",
            "" if given is None else " -> ".join(f"{b / _MEBIBYTE:.1f}" for b in records[-1]),
            f"x{ratio:.2f}",
            str(states[number] == states[0]),
        )
    return table


@contextmanager
def training(
    kind: str, options: dict[str, Any] | None, device_type: str = "CPU"
) -> Iterator[Callable[[str], list[Any]]]:
    """A training in processes of its own, as a function that asks all of them."""
    environments: list[dict[str, str]] = [{}]
    if kind == WORKERS:
        addresses = [f"localhost:{port}" for port in _free_ports(WORKER_COUNT)]
        environments = [
            {
                "TF_CONFIG": json.dumps(
                    {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": number}}
                )
            }
            for number in range(WORKER_COUNT)
        ]
    arguments = [__file__, "--train", kind, json.dumps(options)]
    if device_type == "GPU":
        arguments.append("--gpu")
    with started(arguments, environments) as ask:
        yield ask


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def train(kind: str, options: dict[str, Any] | None, device_type: str = "CPU") -> None:
    """Train, and answer what is asked on standard input."""
    import tensorflow as tf

    import memopt
    from memopt.runtime import replay as replaying
    from memopt.runtime.trace import TraceRecorder, step_marker

    # What a cluster allocates when it is set up comes before the recording.
    replaying._check_complete = lambda *_: None  # noqa: SLF001
    strategy = None
    if kind == WORKERS:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        limit = LOGICAL_GPU_MEBIBYTES if device_type == "GPU" else None
        logical = [tf.config.LogicalDeviceConfiguration(memory_limit=limit)] * 2
        first = tf.config.list_physical_devices(device_type)[0]
        tf.config.set_logical_device_configuration(first, logical)
    if options is not None:
        memopt.enable(**options)
    recorder = TraceRecorder(Path(tempfile.mkdtemp()))
    recorder.start()
    if kind == MIRRORED:
        # NCCL takes each GPU once.
        sums = tf.distribute.ReductionToOneDevice() if device_type == "GPU" else None
        devices = [f"{device_type}:{number}" for number in range(2)]
        strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=sums)
    run, weights = _halves(device_type) if strategy is None else _replicas(strategy)
    losses: list[float] = []

    def step() -> float:
        started = time.perf_counter()
        losses.append(float(run()))
        return time.perf_counter() - started

    step()
    for number in range(MEASURED_STEPS):
        with step_marker(number):
            step()
    trace = recorder.stop()
    steps = [replaying.replay(trace.events, marked) for marked in trace.steps]
    records = [
        [record.peak_before_bytes - record.held_bytes, record.peak_after_bytes - record.held_bytes]
        for record in memopt.last_reports()
        if record.outcome in ("rewritten", "unchanged")
    ]

    def state() -> list[Any]:
        content = b"".join(weight.numpy().tobytes() for weight in weights)
        return [losses, hashlib.sha256(content).hexdigest()]

    peak_bytes = max(each.step_peak_bytes for each in steps)
    answer_questions(
        {
            "measure": lambda: {"peak_bytes": peak_bytes, "records": records},
            "time": lambda: sum(step() for _ in range(STEPS_A_ROUND)),
            "state": state,
        }
    )


def _weights() -> list[Any]:
    import tensorflow as tf

    shape = (WIDTH, WIDTH)
    return [
        tf.Variable(tf.random.stateless_normal(shape, (layer, 1)) / WIDTH**0.5)
        for layer in range(LAYERS)
    ]


def _replicas(strategy: Any) -> tuple[Callable[[], Any], list[Any]]:
    """A step of replicas with inputs of their own."""
    import tensorflow as tf

    with strategy.scope():
        weights = _weights()
    rows = tf.random.stateless_normal((BATCH, WIDTH), (1, 2))

    def replica() -> Any:
        context = tf.distribute.get_replica_context()
        number = tf.cast(context.replica_id_in_sync_group, tf.float32)
        with tf.GradientTape() as tape:
            value = rows / (1.0 + number)
            for weight in weights:
                value = tf.tanh(value @ weight)
            loss = tf.reduce_mean(value * value)
        gradients = tape.gradient(loss, weights)
        gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    def step() -> Any:
        losses = strategy.run(replica)
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    return tf.function(step), weights


def _halves(device_type: str) -> tuple[Callable[[], Any], list[Any]]:
    """A step of which one half of the layers is on each device."""
    import tensorflow as tf

    weights = _weights()
    rows = tf.random.stateless_normal((BATCH, WIDTH), (1, 2))

    def step() -> Any:
        with tf.GradientTape() as tape:
            value = rows
            for layer, weight in enumerate(weights):
                with tf.device(f"{device_type}:{layer * 2 // LAYERS}"):
                    value = tf.tanh(value @ weight)
            loss = tf.reduce_mean(value * value)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    return tf.function(step), weights


if __name__ == "__main__":
    main()
