"""The needed part of a graph, its variables, and its form as a function."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from memopt.errors import InvalidGraphError, OptionsError
from memopt.item import GrapplerItem
from memopt.runtime.step_graph import TensorSpec, as_function_graph, find_variables, needed_nodes

_FLOAT = tf.float32.as_datatype_enum


def _variable(name: str, shared_name: str = "") -> Any:
    return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name=shared_name, name=name)


def _read(handle: Any, name: str) -> Any:
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name=name)


def _item() -> GrapplerItem:
    with tf.Graph().as_default() as graph:
        x = tf.raw_ops.PlaceholderWithDefault(input=[0.0, 0.0], shape=[None], name="x")
        first, again = _variable("v", "shared"), _variable("again", "shared")
        other = _variable("other")
        y = tf.add_n([x, _read(first, "a"), _read(again, "b"), _read(other, "c")], name="y")
        _read(_variable("unused"), "d")
        tf.raw_ops.AssignVariableOp(resource=first, value=y, name="train")
    return GrapplerItem(graph.as_graph_def(), feed=("x:0",), fetch=("y:0", "train"))


def test_variables_are_those_that_the_fetches_need() -> None:
    variables = find_variables(_item())

    assert [(v.name, v.nodes, v.kind) for v in variables] == [
        ("v", ("v", "again"), "handle"),
        ("other", ("other",), "handle"),
    ]
    assert variables[0].spec == TensorSpec(_FLOAT, (2,))


def test_function_graph_holds_what_is_needed() -> None:
    item = _item()
    before = item.graph_def.SerializeToString(deterministic=True)

    nodes = {node.name: node for node in as_function_graph(item).node}

    assert before == item.graph_def.SerializeToString(deterministic=True)
    assert set(nodes) == {"x", "v", "again", "other", "a", "b", "c", "y", "train"}
    assert [nodes[name].op for name in ("x", "v", "other")] == ["Placeholder"] * 3
    assert (nodes["again"].op, list(nodes["again"].input)) == ("Identity", ["v:0"])
    assert nodes["x"].attr["dtype"].type == _FLOAT
    assert nodes["v"].attr["dtype"].type == tf.resource.as_datatype_enum


def test_only_first_outputs_can_be_fed_to_a_function() -> None:
    with tf.Graph().as_default() as graph:
        parts = tf.split(tf.zeros([4]), 2, name="split")
        tf.negative(parts[1], name="y")
    item = GrapplerItem(graph.as_graph_def(), feed=("split:1",), fetch=("y:0",))

    with pytest.raises(OptionsError, match="split:1 cannot be fed"):
        as_function_graph(item)


def test_needed_nodes_end_at_the_feeds() -> None:
    graph_def = _item().graph_def
    assert "x/input" in needed_nodes(graph_def, ["y:0"], [])
    assert "x/input" not in needed_nodes(graph_def, ["y:0"], ["x:0"])


def test_missing_node_is_named() -> None:
    with pytest.raises(InvalidGraphError, match="no node nothing") as caught:
        needed_nodes(_item().graph_def, ["nothing:0"], [])
    assert caught.value.node == "nothing"
