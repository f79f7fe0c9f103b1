"""Gradients of depthwise filters by groups of channels: the bits of XLA's own, in less memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from support.convolutions import depthwise_gradient

import memopt
from memopt.context import Context
from memopt.errors import OptionsError
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.item import COMPILED, GrapplerItem
from memopt.optimization.pipeline import Pipeline
from memopt.passes import DepthwiseGradients
from memopt.runtime.function import build_function
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from memopt.result import PassReport

SIZE = 6


def grouped(channels: int, depth: int = 1, data_format: str = "NHWC") -> ConcreteFunction:
    """The gradient of filters of a convolution of groups of `depth` channels, compiled."""
    shape = (4, SIZE, SIZE, channels) if data_format == "NHWC" else (4, channels, SIZE, SIZE)

    def gradient(image: Any, behind: Any) -> Any:
        return tf.raw_ops.Conv2DBackpropFilter(
            input=image,
            filter_sizes=[3, 3, depth, channels],
            out_backprop=behind,
            strides=[1, 1, 1, 1],
            padding="SAME",
            data_format=data_format,
        )

    specs = [tf.TensorSpec(shape), tf.TensorSpec(shape)]
    traced: ConcreteFunction = tf.function(gradient, jit_compile=True).get_concrete_function(*specs)
    return traced


def run_pass(
    function: ConcreteFunction, options: DepthwiseGradients | None = None
) -> tuple[PassReport, GraphDef]:
    item = GrapplerItem.from_concrete_function(function)
    graph = from_graph_def(item.graph_def)
    context = Context.of_item(item, Properties.of(item))
    passes = (options or DepthwiseGradients(),)
    (report,) = Pipeline(passes, ()).run("", graph, context, math.inf).passes
    assert not report.failure
    return report, to_graph_def(graph)


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (depthwise_gradient(128), 2),
        # Each part ends where 64 channels do: two parts of 72 differ, or of 68.
        (depthwise_gradient(144), 2),
        (depthwise_gradient(136), 2),
        (depthwise_gradient(192, extent=5, stride=2), 3),
        (depthwise_gradient(128, samples=None), 2),
        (grouped(256), 4),
    ],
    ids=str,
)
def test_every_bit_is_that_of_xla(function: ConcreteFunction, parts: int) -> None:
    report, graph_def = run_pass(function)
    assert len(report.edits) == 1
    assert sum("BackpropFilter" in node.op for node in graph_def.node) == parts
    rewritten = build_function(graph_def, function, None, {COMPILED: True})
    random = np.random.default_rng(0)
    for samples in (1, 3) if function.inputs[0].shape[0] is None else (4,):
        inputs = [
            tf.constant(random.standard_normal((samples, *spec.shape[1:]), dtype=np.float32))
            for spec in function.inputs
        ]
        expected, found = (one(*inputs)[0].numpy() for one in (function, rewritten))
        assert found.tobytes() == expected.tobytes()


def test_it_takes_less_memory() -> None:
    function = depthwise_gradient(384)
    _, graph_def = run_pass(function)
    rewritten = build_function(graph_def, function, None, {COMPILED: True})
    before, after = (memopt.compiled_memory(one).step_peak_bytes for one in (function, rewritten))
    full_bytes = 3 * 3 * 384 * 384 * 4
    assert before > full_bytes
    assert after < before - full_bytes * 0.8


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (depthwise_gradient(127), "not split into parts"),
        (depthwise_gradient(64), "not split into parts"),
        (depthwise_gradient(128, multiplier=2), "several filters"),
        (grouped(128, data_format="NCHW"), "do not come last"),
    ],
    ids=str,
)
def test_others_stay_with_a_reason(function: ConcreteFunction, reason: str) -> None:
    report, _ = run_pass(function)
    assert not report.edits
    assert reason in report.declined[0].reason


def test_filters_that_read_several_channels_are_none_of_its_business() -> None:
    report, _ = run_pass(grouped(128, depth=4))
    assert not report.edits
    assert not report.declined


def test_the_last_part_has_what_is_left_over() -> None:
    _, graph_def = run_pass(depthwise_gradient(200))
    by_name = {node.name: node for node in graph_def.node}
    parts = [node for node in graph_def.node if "BackpropFilter" in node.op]
    shapes = [
        tf.make_ndarray(by_name[part.input[1]].attr["value"].tensor).tolist() for part in parts
    ]
    assert sorted(shapes) == [[3, 3, 64, 1], [3, 3, 64, 1], [3, 3, 72, 1]]


def test_parts_are_as_small_as_asked_for() -> None:
    _, graph_def = run_pass(depthwise_gradient(128), DepthwiseGradients(channels=16))
    assert sum("BackpropFilter" in node.op for node in graph_def.node) == 8
    with pytest.raises(OptionsError, match="channels is less than 1"):
        DepthwiseGradients(channels=0)
