"""Gradients of pooling: TensorFlow's kernel, and oneDNN's, which reads what its pooling noted."""

from __future__ import annotations

import pytest
import tensorflow as tf

from memopt.buffers.kernel_call import KernelCall, KernelMemory, Runtime
from memopt.buffers.kernel_rules import memory_by_rule
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties

PICTURES, POOLED = (2, 8, 8, 4), (2, 4, 4, 4)
WINDOW = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}


def memory_of(*, onednn: bool, has_pooling: bool) -> KernelMemory:
    """What the gradient's kernel needs beside what it reads."""
    with tf.Graph().as_default() as graph:
        pictures = tf.compat.v1.placeholder(tf.float32, PICTURES)
        pooled = tf.compat.v1.placeholder(tf.float32, POOLED)
        if has_pooling:
            pooled = tf.raw_ops.MaxPool(input=pictures, **WINDOW)
        gradient = tf.raw_ops.MaxPoolGrad(
            orig_input=pictures, orig_output=pooled, grad=pooled, **WINDOW
        )
    graph_def = graph.as_graph_def()
    known = Properties.of(GrapplerItem(graph_def, fetch=(gradient.op.name,)))
    node = from_graph_def(graph_def)[gradient.op.name]
    inputs = [known.outputs(tensor.node.name)[tensor.port] for tensor in node.inputs]
    runtime = Runtime(2, onednn=onednn)
    return memory_by_rule(
        KernelCall(node, inputs, known.outputs(node.name), lambda _: None, runtime)
    )


@pytest.mark.parametrize(("onednn", "has_pooling"), [(False, True), (True, False)])
def test_tensorflows_kernel_pools_again_and_may_write_over_the_pictures(
    *, onednn: bool, has_pooling: bool
) -> None:
    """OneDNN's is not run where nothing was noted."""
    memory = memory_of(onednn=onednn, has_pooling=has_pooling)
    assert [list(each.reuses) for each in memory.placements] == [[0]]
    assert [size_bytes for size_bytes, _ in memory.scratch_buffers] == [512, 1024]


def test_onednns_kernel_makes_its_result_in_memory_of_its_own() -> None:
    memory = memory_of(onednn=True, has_pooling=True)
    assert [list(each.reuses) for each in memory.placements] == [[]]
    assert not memory.scratch_buffers
