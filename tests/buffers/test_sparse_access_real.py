"""Variables of which parts are updated: every read copies them, as measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import memopt
from memopt.runtime.process import step_process
from memopt.runtime.program import Program

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
    tokens = np.arange(8, dtype=np.int32)
    program = Program.from_concrete_function(concrete, [tokens])
    result = memopt.optimize(concrete, level="ordered")
    with step_process(program.replace_graph(result.graph_def)) as process:
        process.run(2)
        measured = process.measure()
    assert result.report.runtime is not None
    assert result.report.runtime.after.step_peak_bytes == measured.step_peak_bytes
    graph = result.report.runtime.after.buffer_graph
    made = {
        node.inputs[0].node.name: graph.made[number]
        for number, node in enumerate(graph.nodes)
        if node.op == "ReadVariableOp"
    }
    copied = [name for name, buffers in made.items() if buffers]
    assert len(copied) == 1
    assert len(made) == 2
