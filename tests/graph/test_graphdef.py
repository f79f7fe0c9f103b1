"""GraphDef in and out: nothing is lost, and what was not changed comes out byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_graphs import random_training_graph

from memopt.errors import InvalidGraphError
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.models import MODELS, SESSION_MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.item import GrapplerItem

UNKNOWN_FIELD = b"\xf8\x3f\x01"
"""Field 1023, an integer: what a later version of TensorFlow might add."""


def serialized(graph_def: GraphDef) -> bytes:
    return bytes(graph_def.SerializeToString(deterministic=True))


def graph_def_of(*nodes: tuple[str, ...]) -> GraphDef:
    from tensorflow.core.framework import graph_pb2

    graph_def = graph_pb2.GraphDef()
    for name, *inputs in nodes:
        graph_def.node.add(name=name, op="NoOp").input.extend(inputs)
    return graph_def


@pytest.mark.parametrize("model", [*MODELS, *SESSION_MODELS])
def test_models_come_out_byte_for_byte(
    model: str, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    graph_def = tiny_item(model).graph_def
    assert serialized(to_graph_def(from_graph_def(graph_def))) == serialized(graph_def)


@given(st.integers(0, 10_000))
def test_random_graphs_come_out_byte_for_byte(seed: int) -> None:
    graph_def = random_training_graph(seed)
    assert serialized(to_graph_def(from_graph_def(graph_def))) == serialized(graph_def)


def test_a_change_leaves_all_else_as_it_was(tiny_item: Callable[[str], GrapplerItem]) -> None:
    graph_def = type(tiny_item("lstm").graph_def).FromString(
        tiny_item("lstm").graph_def.SerializeToString() + UNKNOWN_FIELD
    )
    graph_def.node[3].experimental_debug_info.original_node_names.append("before")
    graph = from_graph_def(graph_def)
    node = graph[graph_def.node[3].name]
    rewriter = Rewriter(graph)
    with rewriter.edit("a test"):
        rewriter.set_device(node, "/device:CPU:0")

    changed = to_graph_def(graph)

    assert changed.node[3].device == "/device:CPU:0"
    assert changed.node[3].experimental_debug_info.original_node_names == ["before"]
    changed.node[3].device = ""
    assert serialized(changed) == serialized(graph_def)


def test_removed_and_added_nodes() -> None:
    graph = from_graph_def(graph_def_of(("a",), ("b", "^a"), ("c", "^a")))
    rewriter = Rewriter(graph)
    with rewriter.edit("a test"):
        rewriter.remove_node(graph["b"])
        rewriter.add_node("d", "NoOp", control_inputs=[graph["c"], graph["c"]])
    nodes = to_graph_def(graph).node
    assert [node.name for node in nodes] == ["a", "c", "d"]
    assert nodes[2].input == ["^c"]


def test_repeated_control_inputs_are_accepted_and_kept() -> None:
    graph_def = graph_def_of(("a",), ("b", "^a", "^a"))
    graph = from_graph_def(graph_def)
    assert graph["b"].control_inputs == (graph["a"],)
    assert serialized(to_graph_def(graph)) == serialized(graph_def)


@pytest.mark.parametrize(
    ("nodes", "message", "node", "input_name"),
    [
        ([("a",), ("a",)], "two nodes are called 'a'", "a", None),
        ([("",)], "node number 0 .* has no name", None, None),
        ([("a", "b")], "node 'a': input 'b' does not exist", "a", "b"),
        ([("a", "^b")], "node 'a': input '\\^b' does not exist", "a", "^b"),
        ([("b",), ("a", "b:x")], "input 'b:x' has no valid port", "a", "b:x"),
        ([("b",), ("a", "b:-1")], "input 'b:-1' has no valid port", "a", "b:-1"),
        ([("b",), ("a", "b:1000000")], "no valid port", "a", "b:1000000"),
        ([("b",), ("a", "^b", "b")], "'b' comes after a control input", "a", "b"),
        ([("a", ":0")], "input ':0' does not exist", "a", ":0"),
    ],
)
def test_bad_graphs_name_node_and_input(
    nodes: list[tuple[str, ...]], message: str, node: str | None, input_name: str | None
) -> None:
    with pytest.raises(InvalidGraphError, match=message) as caught:
        from_graph_def(graph_def_of(*nodes))
    assert caught.value.node == node
    assert caught.value.input == input_name


def test_a_hundred_thousand_nodes_load() -> None:
    names = [f"n{number}" for number in range(100_000)]
    graph_def = graph_def_of(("n0",), *zip(names[1:], names, strict=False))
    graph = from_graph_def(graph_def)
    assert len(graph) == 100_000
    assert serialized(to_graph_def(graph)) == serialized(graph_def)
