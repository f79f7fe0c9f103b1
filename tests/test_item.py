"""What an item says of a function: what is fed, fetched, and behind the captured variables."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from support.steps import tiny_step

from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.item import GrapplerItem, VariableSpec

DT_FLOAT, DT_INT64, DT_BFLOAT16 = 1, 9, 14


@pytest.fixture(scope="module")
def function() -> Any:
    """Two arguments, three variables, a constant, a table, two outputs and effects."""
    import tensorflow as tf

    weight = tf.Variable(tf.zeros([3, 2]), name="weight")
    half = tf.Variable(tf.zeros([4], tf.bfloat16), name="half")
    grown = tf.Variable(tf.zeros([1, 5], tf.int64), shape=[None, 5], name="grown")
    constant = tf.constant([1.0, 2.0])
    pairs = tf.lookup.KeyValueTensorInitializer(tf.constant([1], tf.int64), [2.0])
    table = tf.lookup.StaticHashTable(pairs, 0.0)

    def step(x: Any, *, key: Any) -> Any:
        # Not in the order of their names.
        weight.assign_add(tf.ones([3, 2]))
        half.assign(tf.ones([4], tf.bfloat16))
        grown.assign(tf.ones([2, 5], tf.int64))
        return {"y": tf.matmul(x, weight) + constant, "found": table.lookup(key)}

    concrete = tf.function(step).get_concrete_function(
        tf.TensorSpec([None, 3], name="x"), key=tf.TensorSpec([], tf.int64, name="key")
    )
    concrete.keep_alive = (weight, half, grown, table)
    return concrete


def test_arguments_and_captures_that_are_no_variables_are_fed(function: Any) -> None:
    item = GrapplerItem.from_concrete_function(function)
    inputs = [tensor.name for tensor in function.graph.inputs]
    variables = {f"{name}:0" for name in item.variables}
    assert set(item.feed) == set(inputs) - variables
    assert list(item.feed) == [name for name in inputs if name in item.feed]
    assert item.feed[:2] == ("x:0", "key:0")
    # The constant, the table, and what the table gives for a key that it lacks.
    assert len(item.feed) == 2 + 3


def test_outputs_then_effects_in_the_order_of_their_names_are_fetched(function: Any) -> None:
    item = GrapplerItem.from_concrete_function(function)
    outputs = tuple(tensor.name for tensor in function.graph.outputs)
    effects = {operation.name for operation in function.graph.control_outputs}
    assert item.fetched_tensors == outputs
    assert len(outputs) == 2
    assert item.fetched_operations == tuple(sorted(effects))
    assert len(effects) >= 3
    assert item.fetch == (*item.fetched_tensors, *item.fetched_operations)


def test_variables_are_known_by_type_and_shape(function: Any) -> None:
    item = GrapplerItem.from_concrete_function(function)
    assert sorted(item.variables.values(), key=str) == [
        VariableSpec(DT_FLOAT, (3, 2)),
        VariableSpec(DT_BFLOAT16, (4,)),
        VariableSpec(DT_INT64, (-1, 5)),
    ]
    placeholders = {node.name for node in item.graph_def.node if node.op == "Placeholder"}
    assert set(item.variables) < placeholders


def test_an_item_says_what_the_function_graph_holds(function: Any) -> None:
    item = GrapplerItem.from_concrete_function(function)
    assert item.graph_def == function.graph.as_graph_def()
    assert item.keep == ()
    assert item == GrapplerItem.from_concrete_function(function)


def test_a_training_step_has_all_its_variables() -> None:
    step = tiny_step("mlp")
    item = GrapplerItem.from_concrete_function(step.function)
    shapes = sorted(tuple(variable.shape) for variable in step.variables)
    assert sorted(spec.shape for spec in item.variables.values()) == shapes
    assert len(item.feed) == len(step.inputs)


def test_handles_stand_for_variables_and_all_else_stays(function: Any) -> None:
    item = GrapplerItem.from_concrete_function(function)
    before = item.graph_def.SerializeToString(deterministic=True)

    nodes = {node.name: node for node in item.with_variable_handles().node}

    assert item.graph_def.SerializeToString(deterministic=True) == before
    for node in item.graph_def.node:
        spec = item.variables.get(node.name)
        if spec is None:
            assert nodes[node.name] == node
            continue
        handle = nodes[node.name]
        assert handle.op == "VarHandleOp"
        assert handle.attr["dtype"].type == spec.dtype
        assert tuple(dim.size for dim in handle.attr["shape"].shape.dim) == spec.shape
        assert not handle.attr["shape"].shape.unknown_rank
        assert handle.attr["shared_name"].s == node.name.encode()
        assert set(handle.attr) == {"dtype", "shape", "shared_name"}


def test_a_scalar_variable_has_a_known_shape() -> None:
    """A shape without dimensions, which is not the same as no shape."""
    item = GrapplerItem(
        to_graph_def(parse_graph("v = Placeholder() {dtype=resource}")),
        variables=MappingProxyType({"v": VariableSpec(DT_FLOAT, ())}),
    )
    (node,) = item.with_variable_handles().node
    assert node.attr["shape"].HasField("shape")
    assert not node.attr["shape"].shape.unknown_rank
    assert len(node.attr["shape"].shape.dim) == 0


def test_tensorflow_takes_the_handles_and_sees_the_shapes(function: Any) -> None:
    import tensorflow as tf

    item = GrapplerItem.from_concrete_function(function)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(item.with_variable_handles(), name="")
    product = next(node.name for node in item.graph_def.node if node.op == "MatMul")
    assert graph.get_tensor_by_name(f"{product}:0").shape.as_list() == [None, 2]


@pytest.mark.parametrize("change", ["graph_def", "feed", "variables"])
def test_an_item_cannot_be_changed(change: str) -> None:
    item = GrapplerItem(to_graph_def(parse_graph("a = NoOp()")))
    with pytest.raises(AttributeError):
        setattr(item, change, ())
    with pytest.raises(TypeError):
        item.variables["a"] = VariableSpec(DT_FLOAT, ())  # type: ignore[index] # read-only
