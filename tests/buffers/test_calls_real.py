"""Branches, calls and long loops in real steps: the peak is the simulated one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.measured_order import measure_in_order, measure_ordered

from memopt.runtime.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 20_000


def branch(sign: float) -> Callable[[Any], Any]:
    """A loop in which the larger branch, the first one, is taken where the sign is positive."""
    import tensorflow as tf

    called = tf.function(lambda v: (tf.cumsum(v) * v, tf.reduce_sum(v)), autograph=False)

    def large(row: Any) -> Any:
        product, total = called(tf.sin(row))
        return tf.cumsum(product) * tf.cumsum(row, reverse=True) + total

    def turn(number: Any, row: Any) -> tuple[Any, Any]:
        taken = sign * tf.reduce_sum(tf.abs(row)) >= 0.0
        return number + 1, tf.cond(taken, lambda: large(row), lambda: tf.cumsum(row))

    def step(x: Any) -> Any:
        return tf.reduce_sum(tf.while_loop(lambda n, _: n < 4, turn, (0, x))[1])

    return step


def long_loop(turns: int) -> Callable[[Any], Any]:
    """More turns than are followed, and those of the gradient."""
    import tensorflow as tf

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(
                lambda n, _: n < turns, lambda n, v: (n + 1, tf.sin(tf.cumsum(v)) * v), (0, x)
            )[1]
        return tape.gradient(y, x)

    return step


def peaks(function: Callable[[Any], Any]) -> tuple[int, int]:
    """The simulated peak of a step in program order, and the real one."""
    import tensorflow as tf

    signature = tf.TensorSpec((COUNT,), tf.float32)
    concrete = tf.function(function, autograph=False).get_concrete_function(signature)
    x = np.linspace(0.1, 1.0, COUNT, dtype=np.float32)
    program = Program.from_concrete_function(concrete, [x])
    timeline, measurement = measure_in_order(program)
    return timeline.step_peak_bytes, measurement.step_peak_bytes


@pytest.mark.parametrize("make_step", [lambda: branch(1.0), lambda: long_loop(90)])
def test_the_peak_is_the_simulated_one(make_step: Callable[[], Callable[[Any], Any]]) -> None:
    simulated_bytes, real_bytes = peaks(make_step())
    assert real_bytes == pytest.approx(simulated_bytes, rel=0.001)


def test_the_peak_is_no_higher_where_a_smaller_branch_is_taken() -> None:
    simulated_bytes, real_bytes = peaks(branch(-1.0))
    assert real_bytes <= simulated_bytes
    assert simulated_bytes < 2.5 * real_bytes


def kept_for_gradients() -> Callable[[Any], Any]:
    """A branch that keeps something for its gradient, in an optional."""
    import tensorflow as tf

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cond(
                tf.reduce_sum(x) > 0.0, lambda: tf.cumsum(tf.sin(x)) * x, lambda: tf.cumsum(x)
            )
            loss = tf.reduce_sum(tf.concat([y, y, x], 0)[:COUNT] ** 2)
        return tape.gradient(loss, x)

    return step


def updated_in_a_call() -> tuple[Callable[[Any], Any], Any]:
    """A function that is not inlined, and one that is, which updates a variable."""
    import tensorflow as tf

    total = tf.Variable(tf.zeros(COUNT))
    kept = tf.function(
        lambda v: tf.cumsum(tf.sin(v)),
        autograph=False,
        experimental_attributes={"_noinline": True},
    )

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def update(value: Any) -> Any:
        total.assign_add(tf.cumsum(value))
        return tf.reduce_sum(total)

    return lambda x: update(kept(tf.sin(x))), total


def updated_in_branches() -> tuple[Callable[[Any], Any], Any]:
    """Variables that both branches update: what they held goes as it is replaced."""
    import tensorflow as tf

    totals = [tf.Variable(tf.zeros(COUNT)) for _ in range(4)]

    def update(value: Any, sign: float) -> Any:
        for total in totals:
            total.assign(tf.cumsum(sign * value))
        return tf.reduce_sum(tf.concat([value, value, tf.sin(value)], 0))

    def step(x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 0.0, lambda: update(x, 1.0), lambda: update(x, -1.0))

    return step, totals


def called_twice() -> tuple[Callable[[Any], Any], Any]:
    """A function that adds what it is given to something of its own, called with what it gave."""
    import tensorflow as tf

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def activate(x: Any) -> Any:
        return tf.nn.gelu(tf.tanh(x)) + x

    return lambda x: tf.reduce_sum(tf.cumsum(activate(activate(tf.sin(x))))), None


MADE = {
    "a branch": lambda: (kept_for_gradients(), None),
    "branches": updated_in_branches,
    "calls": updated_in_a_call,
    "called twice": called_twice,
}


@pytest.mark.parametrize("name", MADE)
def test_an_order_has_the_peak_that_is_predicted(name: str) -> None:
    import tensorflow as tf

    made, variable = MADE[name]()
    signature = tf.TensorSpec((COUNT,), tf.float32)
    concrete = tf.function(made, autograph=False).get_concrete_function(signature)
    concrete.keep_alive = variable
    x = np.linspace(0.1, 1.0, COUNT, dtype=np.float32)
    runtime, measured = measure_ordered(concrete, [x])
    real_bytes = measured.step_peak_bytes
    assert runtime.after.step_peak_bytes == pytest.approx(real_bytes, rel=0.001)
