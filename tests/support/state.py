"""Functions run from the same state, and everything that they compute as bits."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@contextmanager
def without_grappler() -> Iterator[None]:
    """Graphs run as they are: Grappler's rewrites may change the last bits."""
    import tensorflow as tf

    option = "disable_meta_optimizer"
    previous = tf.config.optimizer.get_experimental_options().get(option, False)
    tf.config.optimizer.set_experimental_options({option: True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({option: previous})


def run_from_start(
    called: Callable[..., Any], variables: Sequence[Any], arguments: Sequence[Any], steps: int = 2
) -> list[bytes]:
    """The outputs of each step and the variables afterwards, which are then put back.

    Args:
        called: The function.
        variables: All that it reads or updates.
        arguments: Arrays for its positional arguments, `None` for those that stand for nothing.
        steps: How often it is called.
    """
    import tensorflow as tf

    start = [variable.numpy() for variable in variables]
    given = [None if argument is None else tf.constant(argument) for argument in arguments]
    try:
        bits = [
            output.numpy().tobytes()
            for _ in range(steps)
            for output in tf.nest.flatten(called(*given))
        ]
        return bits + [variable.numpy().tobytes() for variable in variables]
    finally:
        for variable, value in zip(variables, start, strict=True):
            variable.assign(value)
