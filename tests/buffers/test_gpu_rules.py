"""Memory of kernels on a GPU, beside what an H100 took for ResNet50 on 32 pictures."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING
from unittest import mock

import pytest
import tensorflow as tf
from support.bad_inputs import graph_def_of

from memopt.buffers import device_types
from memopt.buffers.device_types import device_type_of
from memopt.buffers.kernel_call import KernelCall, KernelMemory, Runtime
from memopt.buffers.kernel_rules import is_known, memory_by_rule
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.graph.graph import Node

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
HOST = "/job:localhost/replica:0/task:0/device:CPU:0"


def call_of(text: str, device: str = GPU) -> KernelCall:
    """The last of some operations, on a device."""
    graph_def = graph_def_of(text)
    for node in graph_def.node:
        node.device = device
    return last_call(graph_def)


def last_call(graph_def: GraphDef) -> KernelCall:
    properties = Properties.of(GrapplerItem(graph_def, fetch=(graph_def.node[-1].name,)))
    node = list(from_graph_def(graph_def))[-1]
    inputs = [properties.outputs(tensor.node.name)[tensor.port] for tensor in node.inputs]
    return KernelCall(node, inputs, properties.outputs(node.name), lambda _: None, Runtime())


def convolution(
    op: str, pictures: tuple[int, ...], filters: tuple[int, ...], stride: int, size: int
) -> KernelCall:
    """A convolution with the channels first, padded so that its results are of a size."""
    with tf.Graph().as_default() as graph, tf.device(GPU):
        x = tf.compat.v1.placeholder(tf.float32, pictures)
        w = tf.compat.v1.placeholder(tf.float32, filters)
        y = tf.compat.v1.placeholder(tf.float32, (pictures[0], filters[-1], size, size))
        given = {
            "Conv2D": {"input": x, "filter": w},
            "Conv2DBackpropFilter": {"input": x, "filter_sizes": filters, "out_backprop": y},
            "Conv2DBackpropInput": {"input_sizes": pictures, "filter": w, "out_backprop": y},
        }
        getattr(tf.raw_ops, op)(
            **given[op],
            strides=[1, 1, stride, stride],
            padding="SAME" if -(-pictures[2] // stride) == size else "VALID",
            data_format="NCHW",
        )
    return last_call(graph.as_graph_def())


@pytest.mark.parametrize(
    ("op", "pictures", "filters", "stride", "size", "seen"),
    [
        ("Conv2D", (32, 64, 56, 56), (3, 3, 64, 64), 1, 56, 51_527_827),
        ("Conv2D", (32, 3, 230, 230), (7, 7, 3, 64), 2, 112, 129_895_440),
        ("Conv2D", (32, 1024, 14, 14), (1, 1, 1024, 512), 2, 7, 28_901_392),
        ("Conv2D", (32, 256, 56, 56), (1, 1, 256, 64), 1, 56, 0),
        ("Conv2DBackpropInput", (32, 256, 56, 56), (1, 1, 256, 512), 2, 28, 154_140_819),
        ("Conv2DBackpropInput", (32, 64, 56, 56), (3, 3, 64, 64), 1, 56, 51_527_696),
        ("Conv2DBackpropInput", (32, 128, 28, 28), (1, 1, 128, 512), 1, 28, 400),
        ("Conv2DBackpropFilter", (32, 3, 230, 230), (7, 7, 3, 64), 2, 112, 135_916_688),
        ("Conv2DBackpropFilter", (32, 512, 7, 7), (3, 3, 512, 512), 1, 7, 21_365_247),
    ],
)
def test_workspaces_are_as_they_were_seen(
    op: str,
    pictures: tuple[int, ...],
    filters: tuple[int, ...],
    stride: int,
    size: int,
    seen: int,
) -> None:
    call = convolution(op, pictures, filters, stride, size)
    turned_bytes = 4 * prod(filters)
    # The gradient of pictures is computed in memory of its own.
    again_bytes = 4 * prod(pictures) if op == "Conv2DBackpropInput" else 0
    memory = memory_by_rule(call)
    assert memory.scratch_bytes == pytest.approx(seen + turned_bytes + again_bytes, rel=0.08)
    assert is_known(call)


def test_the_host_has_rules_of_its_own() -> None:
    text = "x = Placeholder() {dtype=float, shape=[32,64]}\ns = Softmax(x) {T=float}"
    assert memory_by_rule(call_of(text, GPU)).scratch_bytes == 2 * 32 * 64 * 4
    assert memory_by_rule(call_of(text, HOST)) == KernelMemory([mock.ANY], 0, [])


def test_what_names_no_device_runs_on_a_gpu_that_has_a_kernel_for_it() -> None:
    text = "x = Placeholder() {dtype=float, shape=[4]}\nr = Relu(x) {T=float}"
    relu = call_of(text, "").node
    assert device_type_of(relu) == "CPU"
    with mock.patch.object(device_types, "has_accelerator", return_value=True):
        assert device_type_of(relu) == "GPU"
        assert device_type_of(call_of(text, HOST).node) == "CPU"
        assert device_type_of(_texts()) == "CPU"


def _texts() -> Node:
    return call_of("a = Placeholder() {dtype=string, shape=[]}\nl = StringLower(a)", "").node


@pytest.mark.parametrize(
    ("device", "expected"),
    [("/gpu:1", "GPU"), ("/job:worker/task:1/device:TPU:0", "TPU"), ("/cpu:0", "CPU")],
)
def test_a_device_says_of_which_type_it_is(device: str, expected: str) -> None:
    text = "x = Placeholder() {dtype=float, shape=[4]}\nr = Relu(x) {T=float}"
    assert device_type_of(call_of(text, device).node) == expected
