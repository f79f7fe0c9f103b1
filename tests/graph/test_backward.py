"""The backward part is found by structure: it agrees with the names where there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memopt.graph.backward import find_backward_nodes
from memopt.graph.graphdef import from_graph_def
from memopt.graph.text import parse_graph
from memopt.models import MODELS, SESSION_MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.item import GrapplerItem


def without_names(graph_def: GraphDef) -> GraphDef:
    """The same graph with names that say nothing."""
    names = {node.name: f"n{number}" for number, node in enumerate(graph_def.node)}
    copy = type(graph_def).FromString(graph_def.SerializeToString())
    for node in copy.node:
        node.name = names[node.name]
        for slot, text in enumerate(node.input):
            name, colon, port = text.removeprefix("^").partition(":")
            node.input[slot] = f"{'^' * text.startswith('^')}{names[name]}{colon}{port}"
    return copy


def is_gradient(name: str) -> bool:
    return "gradient_tape/" in name or name.startswith(("gradients/", "AddN"))


@pytest.mark.parametrize("model", [*MODELS, *SESSION_MODELS])
def test_structure_agrees_with_names(model: str, tiny_item: Callable[[str], GrapplerItem]) -> None:
    """Without looking at a name: no forward operation, and most gradient ones."""
    graph_def = tiny_item(model).graph_def
    found = {node.index for node in find_backward_nodes(from_graph_def(without_names(graph_def)))}
    graph = from_graph_def(graph_def)
    optimizer_parts = ("sgd", "adam", "Momentum", "update")
    forward_found = [
        node.name
        for node in graph
        if node.index in found
        and not is_gradient(node.name)
        and not any(part in node.name for part in optimizer_parts)
        and not node.op.startswith(("Assign", "Resource", "Apply", "Identity", "ReadVar"))
    ]
    computing = [
        node
        for node in graph
        if is_gradient(node.name) and node.op.endswith(("Grad", "BackpropInput", "GradV3"))
    ]
    missed = [node.name for node in computing if node.index not in found]
    assert forward_found == []
    assert len(missed) <= max(2, len(computing) // 20), missed


@pytest.mark.parametrize("clip", [False, True])
def test_gradients_tied_by_a_global_norm(clip: bool) -> None:
    import tensorflow as tf

    weights = [tf.Variable(tf.ones([4, 4]) * 0.1 * number) for number in range(1, 5)]

    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            h = x
            for number, weight in enumerate(weights):
                h = tf.nn.tanh(tf.matmul(h, weight), name=f"layer{number}")
            loss = tf.reduce_sum(h, name="loss")
        gradients = tape.gradient(loss, weights)
        if clip:
            gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(gradient)
        return loss

    graph_def = tf.function(step).get_concrete_function(tf.TensorSpec([2, 4])).graph.as_graph_def()
    found = {node.name for node in find_backward_nodes(from_graph_def(graph_def))}
    assert sum(name.startswith("gradient_tape/TanhGrad") for name in found) >= 3
    assert not {"layer0", "layer1", "layer2", "layer3", "loss"} & found


def test_names_decide_where_there_are_no_weights() -> None:
    graph = parse_graph(
        "x = A()\ngradient_tape/a = A(x)\nmodel/gradients/b = A(x)\n"
        "gradients_1/c = A(x)\ngradients/Relu_grad/ReluGrad = A(x)\nmy_gradients = A(x)"
    )
    assert sorted(node.name for node in find_backward_nodes(graph)) == [
        "gradient_tape/a",
        "gradients/Relu_grad/ReluGrad",
        "gradients_1/c",
        "model/gradients/b",
    ]


def test_a_graph_without_gradients_has_no_backward_part() -> None:
    assert find_backward_nodes(parse_graph("x = A()\ny = B(x)")) == frozenset()
