"""Sums in temporary variables: their memory is there from the first value to the last reader."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.measured_order import measure_ordered

SIZE = 50_000


def _step(x: Any, *, first: str) -> Any:
    """As Grappler writes a sum: the variable begins with zeros, or with what is added first."""
    raw = tf.raw_ops
    before = raw.Sum(input=raw.Exp(x=raw.Neg(x=x)), axis=[0])
    terms = [raw.Sin(x=x), raw.Cos(x=x)]
    variable = raw.TemporaryVariable(shape=[SIZE], dtype=tf.float32, var_name="sum")
    value = {
        "zeros": lambda: tf.zeros([SIZE]),
        "computed": lambda: raw.Tan(x=x),
        "read by others": lambda: terms[0],
    }[first]()
    begun = raw.Assign(ref=variable, value=value, use_locking=False, validate_shape=False)
    for term in terms:
        with tf.control_dependencies([before]):
            added = raw.AssignAdd(ref=begun, value=term, use_locking=True)
        before = added
    with tf.control_dependencies([before]):
        total = raw.DestroyTemporaryVariable(ref=begun, var_name="sum")
    return raw.Sum(input=raw.Mul(x=total, y=total), axis=[0])


@pytest.mark.parametrize("first", ["zeros", "computed", "read by others"])
def test_the_sum_is_there_from_its_first_value_to_its_last_reader(first: str) -> None:
    step = tf.function(lambda x: _step(x, first=first), autograph=False)
    concrete = step.get_concrete_function(tf.TensorSpec([SIZE], tf.float32))
    runtime, measured = measure_ordered(concrete, [np.ones(SIZE, np.float32)])
    assert runtime.after.step_peak_bytes == measured.step_peak_bytes
    assert runtime.after.held_bytes == measured.held_bytes
