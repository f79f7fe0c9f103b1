"""Gradients of pooling: TensorFlow's kernel, and oneDNN's, which reads what its pooling noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from support.measured_order import measure_in_order

from memopt.buffers.kernel_call import KernelCall, KernelMemory, Runtime
from memopt.buffers.kernel_rules import memory_by_rule
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.runtime.program import Program
from memopt.runtime.settings import Settings
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

PICTURES, POOLED = (2, 8, 8, 4), (2, 4, 4, 4)
WINDOW = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}


def by_rule(graph_def: GraphDef, name: str, *, onednn: bool) -> KernelMemory:
    """What the rules say of the kernel of a node."""
    node, known = from_graph_def(graph_def)[name], Properties.of(GrapplerItem(graph_def))
    inputs = [known.outputs(tensor.node.name)[tensor.port] for tensor in node.inputs]
    runtime = Runtime(2, onednn=onednn)
    return memory_by_rule(KernelCall(node, inputs, known.outputs(name), lambda _: None, runtime))


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
    return by_rule(graph_def, gradient.op.name, onednn=onednn)


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


def test_what_onednns_pooling_notes_is_held_for_its_gradient_alone() -> None:
    with tf.Graph().as_default() as graph:
        pictures = tf.compat.v1.placeholder(tf.float32, PICTURES)
        pooled = tf.raw_ops.MaxPool(input=pictures, **WINDOW)
        tf.raw_ops.MaxPool(input=pooled, **WINDOW)
        tf.raw_ops.MaxPoolGrad(orig_input=pictures, orig_output=pooled, grad=pooled, **WINDOW)
    graph_def = graph.as_graph_def()
    names = ("MaxPool", "MaxPool_1", "MaxPoolGrad")
    memories = [by_rule(graph_def, name, onednn=True) for name in names]
    assert [memory.scratch_bytes for memory in memories] == [0, 32, 0]
    assert [memory.noted_bytes for memory in memories] == [128, 0, 0]
    assert [memory.notes_slot for memory in memories] == [-1, -1, 1]


def pooled_step(pictures: Any, rank: int) -> Any:
    """Pools, and needs most while the gradient is under way; what is noted is held meanwhile."""
    with tf.GradientTape() as tape:
        tape.watch(pictures)
        pool = tf.nn.max_pool2d if rank == 2 else tf.nn.max_pool3d
        pooled = pool(tf.sin(pictures), 2, 2, "SAME")
        loss = tf.reduce_sum(tf.exp(tf.cos(pooled)) * pooled)
    return tape.gradient(loss, pictures)


@pytest.mark.parametrize(
    ("rank", "shape", "dtype"),
    [
        (2, (8, 32, 32, 16), np.float32),
        (3, (4, 8, 16, 16, 8), np.float32),
        (2, (8, 32, 32, 16), np.float64),
    ],
)
def test_the_peak_of_a_real_step_has_what_pooling_notes(
    monkeypatch: pytest.MonkeyPatch, rank: int, shape: tuple[int, ...], dtype: Any
) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    values = np.random.default_rng(0).random(shape).astype(dtype)
    step = tf.function(lambda x: pooled_step(x, rank), autograph=False)
    concrete = step.get_concrete_function(tf.TensorSpec(shape, dtype))
    program = Program.from_concrete_function(concrete, [values])
    settings = Settings("as-is", inter_op_threads=1, grappler=False)
    timeline, measurement = measure_in_order(program, settings, Runtime(onednn=True))
    assert measurement.step_peak_bytes == pytest.approx(timeline.step_peak_bytes, abs=1024)
