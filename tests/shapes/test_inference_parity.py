"""Shapes as Grappler infers them: every one that native's simulation or its passes go by."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from support.inferred_graphs import FETCH, GRAPHS, functional, graph_of
from support.native import CPU, optimize_native
from support.native_simulation import cpu, gpu, meta_graph, simulate_native
from support.random_graphs import random_training_graph
from support.simulated_graphs import random_simulated_graph

from memopt.item import GrapplerItem
from memopt.models import MODELS, SESSION_MODELS
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.shapes.tensor_properties import Shape

v1 = tf.compat.v1
DT_FLOAT = 1


@pytest.fixture(params=GRAPHS, ids=lambda case: case[0].__name__)
def graph_def(request: pytest.FixtureRequest) -> GraphDef:
    return graph_of(*request.param)


# --- the oracles ---------------------------------------------------------------------------------


def as_shape(shape: Any) -> Shape:
    """A shape without the numbers by which Grappler tells unknown dimensions apart."""
    if shape is None:
        return None
    return tuple(max(size, -1) for size in shape)


def assert_as_in_the_simulation(item: GrapplerItem, *fetch: str) -> int:
    """Compare every node that native runs; returns how many of the graph's."""
    properties = Properties.as_in_grappler(item)
    native = simulate_native(item.with_variable_handles(), (gpu(), cpu()), fetch)
    names = [node.name for node in item.graph_def.node if node.name in native.nodes]
    for name in names:
        node = native.nodes[name]
        ours = properties.outputs(name)
        assert [tensor.shape for tensor in ours] == [as_shape(s) for s in node.output_shapes], name
        assert [tensor.dtype for tensor in ours] == [t % 100 for t in node.output_dtypes], name
        assert [tensor.least_bytes for tensor in ours] == [*node.output_bytes], name
    return len(names)


def inferred_by_native(graph_def: GraphDef) -> dict[str, list[tuple[int, Shape]]]:
    """What Grappler knows when it assumes nothing of feeds, which all Placeholders are."""
    from tensorflow.python.grappler import item

    found = item.Item(meta_graph(graph_def, [graph_def.node[0].name])).GetOpProperties()
    return {
        name: [
            (
                tensor.dtype % 100,
                None
                if tensor.shape.unknown_rank
                else as_shape([dim.size for dim in tensor.shape.dim]),
            )
            for tensor in outputs
        ]
        for name, outputs in found.items()
    }


def assert_as_without_feeds(item: GrapplerItem) -> None:
    properties = Properties.as_in_grappler(item).without_feeds()
    native = inferred_by_native(item.with_variable_handles())
    for node in item.graph_def.node:
        ours = properties.outputs(node.name)
        assert [(tensor.dtype, tensor.shape) for tensor in ours] == native[node.name], node.name


# --- parity --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [*MODELS, *SESSION_MODELS])
def test_models_are_as_in_grappler(model: str, tiny_item: Callable[[str], GrapplerItem]) -> None:
    item = tiny_item(model)
    fetch = [name.partition(":")[0] for name in item.fetch]
    assert assert_as_in_the_simulation(item, *fetch) > 100
    assert_as_without_feeds(item)


def test_graphs_of_all_kinds_are_as_in_grappler(graph_def: GraphDef) -> None:
    item = GrapplerItem(graph_def)
    assert assert_as_in_the_simulation(item, FETCH) > 5
    assert_as_without_feeds(item)


@pytest.mark.parametrize("producer", [20, 21, 22, 1882])
def test_graphs_of_all_versions_are_as_in_grappler(producer: int) -> None:
    def scalars() -> list[Any]:
        shapes: tuple[Any, ...] = ([], None, [None], [3])
        return [tf.exp(v1.placeholder(tf.float32, shape)) for shape in shapes]

    graph_def = graph_of(scalars)
    graph_def.versions.producer = producer
    assert assert_as_in_the_simulation(GrapplerItem(graph_def), FETCH) == 9
    assert_as_without_feeds(GrapplerItem(graph_def))


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_are_as_in_grappler(seed: int) -> None:
    item = random_simulated_graph(seed).item
    assert_as_in_the_simulation(item, FETCH)
    assert_as_without_feeds(item)
    plain = GrapplerItem(random_training_graph(seed))
    assert_as_in_the_simulation(plain, "train")
    assert_as_without_feeds(plain)


# --- what is fed ---------------------------------------------------------------------------------


def test_without_feeds_nothing_is_lost_where_nothing_is_fed(
    tiny_item: Callable[[str], GrapplerItem],
) -> None:
    """A Placeholder is always taken to be fed, so this is a graph without."""
    graph_def = tiny_item("mlp").with_variable_handles()
    for node in graph_def.node:
        if node.op == "Placeholder":
            node.op = "PlaceholderWithDefault"
            default = graph_def.node.add(name=f"{node.name}/default", op="ImmutableConst")
            default.attr["dtype"].type = node.attr["dtype"].type
            default.attr["shape"].CopyFrom(node.attr["shape"])
            default.attr["memory_region_name"].s = b"none"
            node.input[:] = [default.name]
    properties = Properties.as_in_grappler(GrapplerItem(graph_def))
    unfed = properties.without_feeds()
    assert len(list(properties.unknown_sizes())) == 0
    for node in graph_def.node:
        assert unfed.outputs(node.name) == properties.outputs(node.name)


def fed_inside() -> list[Any]:
    first, second = tf.split(tf.exp(tf.ones([4, 6])), 2, name="parts")
    return [tf.exp(first, name="a"), tf.exp(second, name="b"), tf.exp(first + second, name="c")]


@pytest.mark.parametrize(
    ("feed", "unknown"),
    [
        ((), set()),
        (("parts:0",), {"parts:0", "a:0", "c:0"}),
        (("parts",), {"parts:0", "a:0", "c:0"}),
        (("parts:1",), {"parts:1", "b:0", "c:0"}),
        (("parts:0", "parts:1"), {"parts:0", "parts:1", "a:0", "b:0", "c:0"}),
        (("a:0",), {"a:0"}),
        (("parts:7", "nowhere:0"), set()),
    ],
)
def test_any_tensor_can_be_fed(feed: tuple[str, ...], unknown: set[str]) -> None:
    item = GrapplerItem(graph_of(fed_inside), feed=feed)
    properties = Properties.of(item)
    assert list(properties.unknown_sizes()) == []
    unfed = properties.without_feeds()
    assert set(unfed.unknown_sizes()) - {"add:0"} == unknown
    for name in unknown:
        assert unfed.tensor(name) == tensor_properties(DT_FLOAT, None)


def test_a_name_that_a_stand_in_would_have_may_be_taken() -> None:
    def taken() -> list[Any]:
        fed = v1.placeholder(tf.float32, [2], name="x")
        return [tf.exp(fed, name=name) for name in ("x/handle", "x/handle_", "x/handle/fed0")]

    item = GrapplerItem(graph_of(taken), feed=("x/handle:0",))
    assert_as_in_the_simulation(item, FETCH)
    unfed = Properties.as_in_grappler(item).without_feeds()
    for name in ("x", "x/handle", "x/handle_"):
        assert unfed.outputs(name) == (tensor_properties(DT_FLOAT, None),)


# --- bodies --------------------------------------------------------------------------------------


def step_with_body(body: Callable[[Any], Any], *, declared: bool = True) -> GraphDef:
    """A step that calls a function of one large argument."""
    called = tf.function(body, experimental_attributes={"_noinline": True})
    step = tf.function(lambda x: called(x))  # noqa: PLW0108 - a function of a function is no step
    graph_def = step.get_concrete_function(tf.TensorSpec([1024, 1024])).graph.as_graph_def()
    (function,) = graph_def.library.function
    if not declared:
        del function.arg_attr[0].attr["_output_shapes"]
    return graph_def


def sum_of(x: Any) -> Any:
    return tf.raw_ops.AddN(inputs=[tf.exp(x), tf.sin(x), tf.cos(x)], name="sum")


def sum_of_random_numbers(x: Any) -> Any:
    """The argument is in use when they are summed."""
    summed = sum_of(tf.random.uniform([128, 128]))
    with tf.control_dependencies([summed]):
        return summed, tf.reduce_sum(x)


def accumulated_by_native(graph_def: GraphDef, memory_bytes: int) -> bool:
    """Whether Grappler rewrites the body's sum, which it does if it knows its shape.

    And if more than four fifths of the memory are in use when its simulation comes to it.
    """
    fetch = [node.name for node in graph_def.node if node.op == "Identity"]
    device = replace(CPU, memory_bytes=memory_bytes)
    native = optimize_native(graph_def, "SCHEDULING_HEURISTICS", fetch, devices=[device])
    (function,) = native.library.function
    (op,) = [node.op for node in function.node_def if node.name == "sum"]
    return bool(op == "DestroyTemporaryVariable")


def body_of(graph_def: GraphDef) -> Properties:
    (function,) = graph_def.library.function
    return Properties.as_in_grappler(GrapplerItem(graph_def)).function(function.signature.name)


@pytest.mark.parametrize("declared", [True, False])
def test_arguments_of_bodies_are_as_large_as_declared(declared: bool) -> None:
    graph_def = step_with_body(sum_of_random_numbers, declared=declared)
    argument = tensor_properties(DT_FLOAT, (1024, 1024) if declared else None)
    assert body_of(graph_def).outputs("x") == (argument,)
    # The argument alone makes the memory too small.
    assert accumulated_by_native(graph_def, 1 << 21) == (argument.least_bytes > 1 << 21)
    assert accumulated_by_native(graph_def, 1 << 17)
    assert not accumulated_by_native(graph_def, 1 << 27)


@pytest.mark.parametrize("body", [sum_of, sum_of_random_numbers])
def test_without_feeds_the_arguments_of_bodies_are_fed(body: Callable[[Any], Any]) -> None:
    graph_def = step_with_body(body)
    properties = body_of(graph_def)
    assert properties.size_bytes("sum:0") is not None
    unfed = properties.without_feeds()
    assert (unfed.size_bytes("sum:0") is not None) == accumulated_by_native(graph_def, 1000)
    assert (unfed.size_bytes("sum:0") is None) == (body is sum_of)
    assert unfed.outputs("x") == (tensor_properties(DT_FLOAT, None),)


def test_bodies_that_call_are_inferred_through_the_calls() -> None:
    graph_def = graph_of(functional, 2)
    properties = Properties.as_in_grappler(GrapplerItem(graph_def))
    (outer,) = [
        function
        for function in graph_def.library.function
        if "squared_twice" in function.signature.name
    ]
    body = properties.function(outer.signature.name)
    assert body.outputs("x") == (tensor_properties(DT_FLOAT, (5, 4)),)
    calls = [node.name for node in outer.node_def if "PartitionedCall" in node.op]
    shapes = [[tensor.shape for tensor in body.outputs(name)] for name in calls]
    assert shapes == [[(5, 5), (4,)], [(5, 5), (5,)]]


def test_of_a_function_that_is_not_there_nothing_is_known() -> None:
    assert body_of(step_with_body(sum_of)).function("nowhere").outputs("x") == ()
