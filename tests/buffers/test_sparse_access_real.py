"""Variables of which parts are read or updated: what reads or updates all of them copies them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from support.measured_order import measure_ordered

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, WIDTH = 400, 64


def test_reads_of_a_variable_that_is_scattered_into_are_copies() -> None:
    random = np.random.default_rng(0)
    table = tf.Variable(random.standard_normal((ROWS, WIDTH)).astype(np.float32))
    whole = tf.Variable(random.standard_normal((ROWS, WIDTH)).astype(np.float32))

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(tokens: Any) -> Any:
        rows = tf.gather(table, tokens)
        loss = tf.reduce_sum(rows) + tf.reduce_sum(table * 2.0) + tf.reduce_sum(whole * 2.0)
        table.scatter_sub(tf.IndexedSlices(0.1 * rows, tokens))
        whole.assign_sub(0.1 * tf.ones_like(whole))
        return loss

    concrete = step.get_concrete_function(tf.TensorSpec([8], tf.int32))
    runtime, measured = measure_ordered(concrete, [np.arange(8, dtype=np.int32)])
    assert runtime.after.step_peak_bytes == measured.step_peak_bytes
    graph = runtime.after.buffer_graph
    made = {
        node.inputs[0].node.name: graph.made[number]
        for number, node in enumerate(graph.nodes)
        if node.op == "ReadVariableOp"
    }
    copied = [name for name, buffers in made.items() if buffers]
    assert len(copied) == 1
    assert len(made) == 2


def _descent(table: Any, rows: Any) -> None:
    tf.raw_ops.ResourceApplyGradientDescent(var=table.handle, alpha=0.1, delta=rows)


UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "assign": lambda table, rows: table.assign(rows),
    "assign_sub": lambda table, rows: table.assign_sub(rows),
    "descent": _descent,
}
READS: dict[str, Callable[[Any, Any], Any]] = {
    "gather": tf.gather,
    "gather_nd": lambda table, tokens: tf.gather_nd(table, tokens[:, None]),
    "all": lambda table, tokens: tf.gather(table * 2.0, tokens),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("update", UPDATES)
def test_updates_of_a_variable_that_is_gathered_from_copy_it(read: str, update: str) -> None:
    random = np.random.default_rng(0)
    table = tf.Variable(random.standard_normal((ROWS, WIDTH)).astype(np.float32))
    table.assign(tf.raw_ops.DeepCopy(x=table.numpy()))

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(tokens: Any) -> Any:
        rows = READS[read](table, tokens)
        gradients = tf.math.unsorted_segment_sum(rows, tokens, ROWS)
        UPDATES[update](table, tf.exp(gradients))
        return tf.reduce_sum(rows)

    concrete = step.get_concrete_function(tf.TensorSpec([8], tf.int32))
    runtime, measured = measure_ordered(concrete, [np.arange(8, dtype=np.int32)])
    assert runtime.after.step_peak_bytes == measured.step_peak_bytes
    if read != "all":
        assert measured.step_peak_bytes >= 2 * ROWS * WIDTH * 4
