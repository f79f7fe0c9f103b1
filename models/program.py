"""A model as a program: it trains some steps on generated data, and says how that went.

python models/resnet50.py --batch 16 --train-steps 10
python -m memopt run models/resnet50.py --batch 16 --train-steps 10
"""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING

import click

from memopt.models.training_step import SessionStep, TrainingStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Step = TrainingStep | SessionStep

_SECOND_MS = 1000


def run_as_program(build: Callable[..., TrainingStep] | Callable[..., SessionStep]) -> None:
    """Train as the command line says, and print each step's loss and time.

    The options are the builder's parameters, with their defaults, and the number of steps.

    Args:
        build: Builds the training step; its parameters are numbers and names.
    """

    def train(train_steps: int, **sizes: int | str) -> None:
        step = build(**sizes)
        click.echo(f"{step.name}: " + ", ".join(f"{key} {value}" for key, value in sizes.items()))
        losses = _losses_of(step)
        for number in range(1, train_steps + 1):
            started_s = time.perf_counter()
            loss = next(losses)
            took_ms = (time.perf_counter() - started_s) * _SECOND_MS
            click.echo(f"step {number}: loss {loss:.6f}, {took_ms:.0f} ms")

    sizes = [
        click.Option([f"--{name.replace('_', '-')}"], default=parameter.default, show_default=True)
        for name, parameter in inspect.signature(build).parameters.items()
    ]
    train_steps = click.Option(
        ["--train-steps"],
        type=click.IntRange(min=1),
        default=5,
        show_default=True,
        help="Steps to train.",
    )
    description = (inspect.getdoc(build) or "").partition("\n")[0]
    click.Command(build.__name__, callback=train, params=[*sizes, train_steps], help=description)()


def _losses_of(step: Step) -> Iterator[float]:
    """The loss of one training step after the other."""
    import tensorflow as tf

    if isinstance(step, TrainingStep):
        while True:
            yield float(step.function(*(tf.constant(array) for array in step.inputs)))
    yield from _losses_in_session(step)


def _losses_in_session(step: SessionStep) -> Iterator[float]:
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        tf.import_graph_def(step.graph_def, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            session.run(step.initializer)
            values = dict(zip(step.feed, step.inputs, strict=True))
            while True:
                yield float(session.run(step.fetch, values)[0])
