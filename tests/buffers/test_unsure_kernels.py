"""Convolutions of which no rule knows how much scratch memory they take."""

from __future__ import annotations

import pytest
import tensorflow as tf

from memopt.buffers.assignment import buffer_graph_of
from memopt.buffers.kernel_call import Runtime
from memopt.context import Context
from memopt.graph.graphdef import from_graph_def
from memopt.graph.traversal import Numbering
from memopt.item import GrapplerItem
from memopt.rematerialization.rewriting.eligibility import network_of
from memopt.shapes.properties import Properties

ONEDNN = Runtime(1, onednn=True)


@pytest.mark.parametrize(
    ("images", "filters", "runtime", "is_unsure"),
    [
        ((4, 32, 32, 1), (11, 3, 1, 8), ONEDNN, True),
        ((4, 32, 32, 1), (3, 11, 1, 8), ONEDNN, False),
        ((4, 32, 32, 2), (11, 3, 2, 8), ONEDNN, False),
        ((1, 32, 32, 1), (11, 3, 1, 8), ONEDNN, False),
        ((4, 32, 32, 1), (11, 3, 1, 8), Runtime(1), False),
        ((4, 32, 32, 4), (3, 3, 2, 8), Runtime(1), True),
    ],
    ids=["tall", "wide", "two channels", "one image", "without oneDNN", "groups"],
)
def test_what_may_take_a_multiple_of_its_result_is_not_computed_again(
    images: tuple[int, ...], filters: tuple[int, ...], runtime: Runtime, *, is_unsure: bool
) -> None:
    @tf.function  # type: ignore[untyped-decorator]
    def step(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return tf.sin(tf.nn.conv2d(x, weights, 1, "SAME"))

    specs = tf.TensorSpec(images), tf.TensorSpec(filters)
    item = GrapplerItem.from_concrete_function(step.get_concrete_function(*specs))
    graph, properties = from_graph_def(item.graph_def), Properties.of(item)
    buffers = buffer_graph_of(graph, properties, fed=item.feed, fetched=item.fetch, runtime=runtime)
    (place,) = (p for p, node in enumerate(buffers.nodes) if node.op == "Conv2D")
    assert buffers.unsure == ({place} if is_unsure else set())
    context = Context.of_item(item, properties)
    network = network_of(graph, buffers, Numbering.of(graph).order, context)
    assert network.recomputable[place] != is_unsure
