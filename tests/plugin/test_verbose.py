"""One line for each rewritten step, if it is asked for."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import memopt
from memopt.plugin.records import GraphRecord, say_rewritten

if TYPE_CHECKING:
    import pytest

MEBIBYTE = 1 << 20


def record(**changes: object) -> GraphRecord:
    given = {
        "peak_before_bytes": 158 * MEBIBYTE,
        "peak_after_bytes": 61 * MEBIBYTE,
        "milliseconds": 700.0,
        **changes,
    }
    return GraphRecord("f", "function", "rewritten", "", nodes=1234, **given)  # type: ignore[arg-type]  # by name


def test_the_line_says_what_was_predicted(caplog: pytest.LogCaptureFixture) -> None:
    say_rewritten(record(), overhead=0.02)
    say_rewritten(record(budget_bytes=60 * MEBIBYTE))
    assert [each.getMessage() for each in caplog.records] == [
        "step of 1,234 nodes: 158.0 -> 61.0 MiB predicted, x1.02 of the time as estimated, 0.7 s",
        "step of 1,234 nodes: 158.0 -> 61.0 MiB predicted, OVER the budget of 60.00 MiB, 0.7 s",
    ]
    assert all(each.levelno == logging.INFO for each in caplog.records)


def test_a_step_is_told_of_only_if_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    import tensorflow as tf

    variables = [tf.Variable(tf.random.normal((64, 64), seed=1)) for _ in range(8)]

    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            y = x
            for variable in variables:
                y = tf.nn.relu(y @ variable)
            loss = tf.reduce_sum(y)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.01 * gradient)
        return loss

    said = []
    for verbose in (0, 1):
        caplog.clear()
        with memopt.enabled(budget="60%", only_lower=False, verbose=verbose):
            tf.function(step)(tf.ones((256, 64)))
        said.append([each.getMessage() for each in caplog.records if each.levelno == logging.INFO])
    quiet, (line,) = said
    assert quiet == []
    assert re.fullmatch(
        r"step of \d+ nodes: \d\.\d -> \d\.\d MiB predicted, x1\.\d\d of the time as estimated, "
        r"(within|OVER) the budget of \d\.\d\d MiB, \d+\.\d s",
        line,
    )
