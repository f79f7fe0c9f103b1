"""Gradients of max pooling as comparisons: the bits of XLA's own, in less memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from memopt.context import Context
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.item import COMPILED, GrapplerItem
from memopt.optimization.pipeline import Pipeline
from memopt.passes import PoolingGradients
from memopt.runtime.function import build_function
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from memopt.result import PassReport

LARGE = (4, 32, 32, 16)


def gradient_of(
    shape: tuple[int | None, ...],
    window: tuple[int, int],
    strides: tuple[int, int] | None = None,
    padding: str = "VALID",
    dtype: tf.DType = tf.float32,
) -> ConcreteFunction:
    """The gradient of max pooling, compiled, of an image and the gradients of its windows."""
    options = {
        "ksize": [1, *window, 1],
        "strides": [1, *(strides or window), 1],
        "padding": padding,
    }

    def gradient(image: Any, of_windows: Any) -> Any:
        largest = tf.raw_ops.MaxPool(input=image, **options)
        return tf.raw_ops.MaxPoolGrad(
            orig_input=image, orig_output=largest, grad=of_windows, **options
        )

    height, width = (
        None if size is None else (size - extent) // stride + 1
        for size, extent, stride in zip(shape[1:3], window, strides or window, strict=True)
    )
    if padding == "SAME":
        height, width = (
            None if size is None else math.ceil(size / step)
            for size, step in zip(shape[1:3], window, strict=True)
        )
    specs = [
        tf.TensorSpec(shape, dtype),
        tf.TensorSpec((shape[0], height, width, shape[3]), dtype),
    ]
    function: ConcreteFunction = tf.function(gradient, jit_compile=True).get_concrete_function(
        *specs
    )
    return function


def run_pass(function: ConcreteFunction) -> tuple[PassReport, GraphDef]:
    item = GrapplerItem.from_concrete_function(function)
    graph = from_graph_def(item.graph_def)
    context = Context.of_item(item, Properties.of(item))
    (report,) = Pipeline((PoolingGradients(),), ()).run("", graph, context, math.inf).passes
    assert not report.failure
    return report, to_graph_def(graph)


def values_for(function: ConcreteFunction, seed: int, samples: int = 2) -> list[Any]:
    """With equal elements in a window, zeros of both signs, infinities, and what is no number."""
    random = np.random.default_rng(seed)
    values = []
    for spec in function.inputs:
        shape = tuple(samples if size is None else size for size in spec.shape)
        value = np.round(random.standard_normal(shape), 1)
        for special in (0.0, -0.0, np.nan, np.inf, -np.inf):
            value = np.where(random.random(shape) < 0.1, special, value)
        values.append(value.astype(spec.dtype.as_numpy_dtype))
    return values


@pytest.mark.parametrize(
    ("shape", "window", "dtype"),
    [
        (LARGE, (2, 2), tf.float32),
        ((2, 9, 12, 3), (3, 4), tf.float32),
        ((2, 7, 9, 3), (2, 2), tf.float32),
        ((2, 5, 8, 1), (1, 3), tf.float64),
        ((None, 8, 8, 3), (2, 2), tf.float32),
        ((None, 7, 9, 3), (2, 2), tf.float32),
    ],
)
def test_every_bit_is_that_of_xla(
    shape: tuple[int | None, ...], window: tuple[int, int], dtype: tf.DType
) -> None:
    function = gradient_of(shape, window, dtype=dtype)
    report, graph_def = run_pass(function)
    assert len(report.edits) == 1
    assert not any(node.op == "MaxPoolGrad" for node in graph_def.node)
    rewritten = build_function(graph_def, function, None, {COMPILED: True})
    for seed in range(3):
        inputs = [tf.constant(value) for value in values_for(function, seed, samples=seed + 1)]
        expected, found = (one(*inputs)[0].numpy() for one in (function, rewritten))
        assert found.tobytes() == expected.tobytes()


def test_windows_that_end_at_the_edge_need_no_padding() -> None:
    report, _ = run_pass(gradient_of((2, 8, 8, 3), (2, 2), padding="SAME"))
    assert report.edits


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (gradient_of((2, 8, 8, 3), (3, 3), (2, 2)), "overlap"),
        (gradient_of((2, 7, 7, 3), (2, 2), padding="SAME"), "reach over the edge"),
        (gradient_of((2, 8, 8, 3), (2, 2), dtype=tf.float16), "neither float nor double"),
        (gradient_of((2, None, None, 3), (2, 2)), "shape of the image is not known"),
    ],
    ids=str,
)
def test_others_stay_with_a_reason(function: ConcreteFunction, reason: str) -> None:
    report, _ = run_pass(function)
    assert not report.edits
    assert reason in report.declined[0].reason
