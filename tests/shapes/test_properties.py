"""Shapes and sizes: all that TensorFlow knows is known, and what is not is never taken for zero."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from support.bad_inputs import SHAPES_THAT_DO_NOT_FIT, graph_def_of
from support.steps import tiny_step
from tensorflow.core.framework import types_pb2

from memopt.api import optimize
from memopt.errors import InvalidGraphError
from memopt.item import GrapplerItem, VariableSpec
from memopt.models import MODELS, SESSION_MODELS
from memopt.report import text
from memopt.shapes.inference import FullInference
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import (
    ELEMENT_BYTES,
    TensorProperties,
    known_by_either,
    tensor_properties,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.shapes.tensor_properties import NodeProperties, Shape

DT_FLOAT, DT_INT32, DT_STRING, DT_HALF, DT_RESOURCE, DT_VARIANT = 1, 3, 7, 19, 20, 21

UNKNOWN_TO_TENSORFLOW = {"BroadcastGradientArgs"}
"""How many axes were broadcast is known only when it runs."""


@pytest.fixture(scope="module", params=["vgg16", "unet", "bert", "gpt", "lstm", "mlp"])
def function(request: pytest.FixtureRequest) -> Any:
    return tiny_step(request.param).function


@pytest.fixture(scope="module")
def properties(function: Any) -> Properties:
    return Properties.of(GrapplerItem.from_concrete_function(function))


def test_every_shape_is_the_one_that_tensorflow_knows(
    function: Any, properties: Properties
) -> None:
    for node in function.graph.as_graph_def(add_shapes=True).node:
        assert shapes_found(properties, node) == shapes_known(node), node.name


def test_shapes_in_the_bodies_of_loops_are_those_that_tensorflow_knows(
    function: Any, properties: Properties
) -> None:
    graph_def = function.graph.as_graph_def(add_shapes=True)
    called = called_in(graph_def)
    compared = 0
    for body in graph_def.library.function:
        inferred = properties.function(body.signature.name)
        for node in body.node_def:
            if body.signature.name in called:
                assert shapes_found(inferred, node) == shapes_known(node), node.name
                compared += 1
            else:
                assert shapes_found(inferred, node) == []
    has_loops = any("While" in node.op for node in graph_def.node)
    assert compared > 200 if has_loops else not compared


def called_in(graph_def: GraphDef) -> set[str]:
    return {
        attribute.func.name
        for node in graph_def.node
        for attribute in node.attr.values()
        if attribute.func.name
    }


def shapes_known(node: NodeDef) -> list[tuple[int, ...] | None]:
    return [shape_of(shape) for shape in node.attr["_output_shapes"].list.shape]


def shapes_found(properties: Properties, node: NodeDef) -> list[tuple[int, ...] | None]:
    return [tensor.shape for tensor in properties.outputs(node.name)]


def shape_of(shape: Any) -> tuple[int, ...] | None:
    return None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)


@pytest.mark.parametrize("model", [*MODELS, *SESSION_MODELS])
def test_every_tensor_of_a_training_step_has_a_size(
    model: str, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    item = tiny_item(model)
    properties = Properties.of(item)
    unknown = set(properties.unknown_sizes())
    tensors = 0
    for node in item.graph_def.node:
        for port, tensor in enumerate(properties.outputs(node.name)):
            tensors += 1
            assert (tensor.size_bytes is None) == (f"{node.name}:{port}" in unknown)
            if tensor.dtype == DT_RESOURCE:
                assert tensor.size_bytes == 0
            elif tensor.dtype in (DT_STRING, DT_VARIANT):
                assert tensor.size_bytes is None
            elif node.op not in UNKNOWN_TO_TENSORFLOW:
                assert tensor.shape is not None
                assert tensor.size_bytes is not None
                elements = math.prod(tensor.shape)
                assert tensor.size_bytes == elements * tf.dtypes.as_dtype(tensor.dtype).size
    assert tensors > 150


def test_captured_resources_of_which_nothing_is_known_leave_sizes_unknown(
    tiny_item: Callable[[str], GrapplerItem],
) -> None:
    item = tiny_item("mlp")
    known, unknown = Properties.of(item), Properties.of(GrapplerItem(item.graph_def))
    assert list(known.unknown_sizes()) == []

    names = list(unknown.unknown_sizes())

    reads = {node.name for node in item.graph_def.node if node.op == "ReadVariableOp"}
    assert {f"{name}:0" for name in reads} <= set(names)
    for name in names:
        assert unknown.size_bytes(name) is None
    for node in item.graph_def.node:
        for port, tensor in enumerate(known.outputs(node.name)):
            # A size is the right one or is not known; never another one, zero least of all.
            assert unknown.size_bytes(f"{node.name}:{port}") in (None, tensor.size_bytes)


def test_the_report_names_what_is_not_known_and_claims_no_effect_from_it(
    tiny_item: Callable[[str], GrapplerItem],
) -> None:
    item = tiny_item("mlp")
    report = optimize(GrapplerItem(item.graph_def), target_scope="auto").report
    plain = report.to_json()
    assert report.modified
    assert plain["unknown_sizes"] == list(report.properties.unknown_sizes())
    (main,) = [done for done in plain["passes"] if done["name"].startswith("recomputation")]
    affected = [
        edit
        for edit in main["edits"]
        if set(plain["unknown_sizes"]) & {*edit["releases"], *edit["holds"]}
    ]
    assert affected
    assert {edit["effect_bytes"] for edit in affected} == {None}
    count, first = len(plain["unknown_sizes"]), plain["unknown_sizes"][0]
    assert f"the sizes of {count} tensors are not known, such as {first}" in text.remarks(report)


KINDS = """
half = Placeholder() {dtype=half, shape=[3,5]}
brain = Placeholder() {dtype=bfloat16, shape=[7]}
double = Placeholder() {dtype=double, shape=[]}
complex = Placeholder() {dtype=complex128, shape=[2]}
flag = Placeholder() {dtype=bool, shape=[9]}
none = Placeholder() {dtype=float, shape=[0,4]}
rows = Placeholder() {dtype=float, shape=[?,4]}
any = Placeholder() {dtype=float, shape=[*]}
text = Placeholder() {dtype=string, shape=[2]}
handle = Placeholder() {dtype=resource, shape=[]}
handles = Placeholder() {dtype=resource, shape=[*]}
variable = VariableV2() {dtype=float, shape=[2,3]}
list = EmptyTensorList(shape, count) {element_dtype=float, shape_type=int32}
shape = Placeholder() {dtype=int32, shape=[1]}
count = Placeholder() {dtype=int32, shape=[]}
"""


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("half", (19, (3, 5), 30)),
        ("brain", (14, (7,), 14)),
        ("double", (2, (), 8)),
        ("complex", (18, (2,), 32)),
        ("flag", (10, (9,), 9)),
        ("none", (DT_FLOAT, (0, 4), 0)),
        ("rows", (DT_FLOAT, (-1, 4), None)),
        ("any", (DT_FLOAT, None, None)),
        ("text", (DT_STRING, (2,), None)),
        ("handle", (DT_RESOURCE, (), 0)),
        ("handles", (DT_RESOURCE, None, 0)),
        ("variable", (DT_FLOAT, (2, 3), 24)),
        ("list", (DT_VARIANT, (), None)),
    ],
)
def test_the_size_of_every_kind_of_tensor(
    node: str, expected: tuple[int, tuple[int, ...] | None, int | None]
) -> None:
    properties = Properties.of(GrapplerItem(graph_def_of(KINDS)))
    assert properties.outputs(node) == (TensorProperties(*expected),)
    assert properties.size_bytes(f"{node}:0") == expected[2]


def test_what_is_behind_a_captured_variable_has_its_shape() -> None:
    item = GrapplerItem(
        graph_def_of(
            "v = Placeholder() {dtype=resource, shape=[]}\n"
            "read = ReadVariableOp(v) {dtype=float}\n"
            "sum = AddN(read, read) {T=float, N=2}"
        ),
        variables=MappingProxyType({"v": VariableSpec(DT_FLOAT, (3, -1))}),
    )
    assert Properties.of(item).outputs("sum") == (TensorProperties(DT_FLOAT, (3, -1), None),)


def test_an_op_with_several_outputs_has_a_size_for_each() -> None:
    properties = Properties.of(
        GrapplerItem(
            graph_def_of(
                "x = Placeholder() {dtype=float, shape=[4,6]}\n"
                "axis = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 tensor_shape { } "
                "int_val: 1 }>}\n"
                "s = Split(axis, x) {T=float, num_split=3}"
            )
        )
    )
    assert [properties.size_bytes(f"s:{port}") for port in range(4)] == [32, 32, 32, None]


def test_names_that_are_not_there_are_not_known() -> None:
    properties = Properties.of(GrapplerItem(graph_def_of("a = NoOp()")))
    assert properties.outputs("a") == ()
    assert properties.outputs("b") == ()
    assert properties.tensor("a:0") is None
    assert properties.size_bytes("b:0") is None
    assert list(properties.unknown_sizes()) == []


class Watched:
    """An inference that tells what it was asked for."""

    def __init__(self, item: GrapplerItem) -> None:
        self.asked: list[str] = []
        self._inference = FullInference(item)

    def nodes(self, function: str) -> NodeProperties:
        self.asked.append(function)
        return self._inference.nodes(function)


def test_nothing_is_inferred_before_it_is_asked_for_and_then_once() -> None:
    inference = Watched(GrapplerItem(graph_def_of(KINDS)))
    properties = Properties(inference)
    body = properties.function("body")
    body.add("added", ())
    body.copy("copied", "added")
    assert inference.asked == []
    assert [properties.size_bytes("double:0"), properties.size_bytes("flag:0")] == [8, 9]
    assert properties.function("").size_bytes("double:0") == 8
    assert inference.asked == [""]
    assert body.size_bytes("double:0") is None
    assert list(body.unknown_sizes()) == []
    assert inference.asked == ["", "body"]


def test_a_graph_that_is_refused_is_looked_at_once() -> None:
    inference = Watched(GrapplerItem(graph_def_of(SHAPES_THAT_DO_NOT_FIT)))
    properties = Properties(inference)
    for _ in range(2):
        with pytest.raises(InvalidGraphError, match="Dimensions must be equal"):
            properties.outputs("x")
    assert inference.asked == [""]


def test_of_a_refused_graph_the_sizes_are_not_known_and_it_is_said_why() -> None:
    properties = Properties.of(GrapplerItem(graph_def_of(SHAPES_THAT_DO_NOT_FIT)))
    added = (TensorProperties(DT_FLOAT, (), 4),)
    properties.add("new", added)
    assert properties.size_bytes("x:0") is None
    assert list(properties.unknown_sizes()) == []
    assert "Dimensions must be equal" in properties.failure
    assert "node y" in properties.failure
    assert "\n" not in properties.failure
    for ask in (properties.outputs, properties.tensor):
        with pytest.raises(InvalidGraphError, match="Dimensions must be equal"):
            ask("y:0")
    # What a pass says is known all the same.
    assert properties.outputs("new") == added
    assert properties.size_bytes("new:0") == 4


def test_a_graph_that_is_accepted_has_no_failure() -> None:
    assert Properties.of(GrapplerItem(graph_def_of(KINDS))).failure == ""
    assert Properties.as_in_grappler(GrapplerItem(graph_def_of(KINDS))).failure == ""
    assert Properties.unknown().failure == ""


def test_nodes_that_passes_add_are_known_by_what_they_say() -> None:
    properties = Properties.of(GrapplerItem(graph_def_of(KINDS)))
    assert properties.outputs("new") == properties.outputs("newer") == ()
    properties.add("new", (TensorProperties(DT_FLOAT, (2,), 8),))
    properties.copy("newer", "new")
    properties.copy("newest", "newer")
    for name in ("new", "newer", "newest"):
        assert properties.tensor(f"{name}:0") == TensorProperties(DT_FLOAT, (2,), 8)
        assert properties.size_bytes(f"{name}:0") == 8
        assert properties.size_bytes(f"{name}:1") is None
    assert properties.without_feeds().outputs("newest") == ()


def test_a_copy_is_as_much_known_as_its_original_with_feeds_and_without() -> None:
    item = GrapplerItem(graph_def_of(KINDS), feed=("half:0",))
    properties = Properties.of(item)
    properties.copy("copy", "half")
    properties.copy("itself", "itself")
    assert properties.outputs("copy") == properties.outputs("half")
    assert properties.outputs("itself") == ()
    unfed = properties.without_feeds()
    assert unfed.outputs("copy") == (TensorProperties(DT_HALF, None, None),)


def test_a_function_has_one_object_and_so_keeps_what_is_added() -> None:
    properties = Properties.of(GrapplerItem(graph_def_of(KINDS)))
    body = properties.function("body")
    body.add("new", (TensorProperties(DT_FLOAT, (), 4),))
    assert body.function("") is properties
    assert properties.function("body") is body
    assert body.function("body") is body
    assert body.without_feeds() is body.without_feeds()
    assert properties.function("body").size_bytes("new:0") == 4
    assert properties.size_bytes("new:0") is None


@pytest.mark.parametrize("dtype", [d for d in types_pb2.DataType.values() if 0 < d < 100])
def test_the_size_of_an_element_is_tensorflows(dtype: int) -> None:
    element_bytes = tf.dtypes.as_dtype(dtype).size
    assert ELEMENT_BYTES.get(dtype, 0) == element_bytes
    known = tensor_properties(dtype, (3, 5))
    assert known.least_bytes == 15 * element_bytes
    assert known.size_bytes == (15 * element_bytes or (0 if dtype == DT_RESOURCE else None))
    assert tensor_properties(dtype + 100, (3, 5)) == known


@pytest.mark.parametrize(
    ("shape", "least_bytes"), [(None, 4), ((), 4), ((-1, 7), 28), ((-1, 0), 0), ((2, 3), 24)]
)
def test_what_is_not_known_counts_as_little_as_grappler_counts(
    shape: Shape, least_bytes: int
) -> None:
    assert tensor_properties(DT_FLOAT, shape).least_bytes == least_bytes


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (None, None, None),
        (None, (2, -1), (2, -1)),
        ((2, -1), None, (2, -1)),
        ((2, -1), (-1, 3), (2, 3)),
        ((-1,), (4,), (4,)),
        ((-1, 5), (4,), (-1, 5)),
        ((7,), (4,), (7,)),
    ],
)
def test_two_inferences_know_more_than_one(one: Shape, other: Shape, expected: Shape) -> None:
    known = [tensor_properties(DT_FLOAT, shape) for shape in (one, other)]
    assert known_by_either(*known) == tensor_properties(DT_FLOAT, expected)


def test_of_an_unknown_graph_nothing_is_known() -> None:
    properties = Properties.unknown()
    assert properties.outputs("x") == ()
    assert properties.size_bytes("x:0") is None


def an_op_that_nobody_knows(graph_def: GraphDef) -> None:
    graph_def.node[1].op = "Frobnicate"


def an_input_that_does_not_exist(graph_def: GraphDef) -> None:
    graph_def.node[1].input[0] = "nowhere"


def an_attribute_of_another_kind(graph_def: GraphDef) -> None:
    graph_def.node[1].attr["T"].i = 3


def a_call_with_too_many_arguments(graph_def: GraphDef) -> None:
    graph_def.library.function.add().signature.name = "nothing"
    graph_def.node[1].op = "PartitionedCall"
    graph_def.node[1].attr["f"].func.name = "nothing"
    graph_def.node[1].attr["Tin"].list.type.append(DT_FLOAT)
    graph_def.node[1].attr["Tout"].list.SetInParent()


def a_product_that_does_not_fit(graph_def: GraphDef) -> None:
    graph_def.CopyFrom(graph_def_of(SHAPES_THAT_DO_NOT_FIT))


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (an_op_that_nobody_knows, "Frobnicate"),
        (an_input_that_does_not_exist, "nowhere"),
        (an_attribute_of_another_kind, "node y"),
        (a_call_with_too_many_arguments, "nothing"),
        (a_product_that_does_not_fit, "node y"),
    ],
)
def test_a_graph_whose_shapes_cannot_be_known_is_refused_in_one_line(
    spoil: Callable[[GraphDef], None], named: str
) -> None:
    graph_def = graph_def_of("x = Placeholder() {dtype=float}\ny = Relu(x) {T=float}")
    spoil(graph_def)
    properties = Properties.of(GrapplerItem(graph_def))
    bodies = [body.signature.name for body in graph_def.library.function]
    (failure,) = {properties.function(name).failure for name in ("", *bodies)} - {""}
    assert named in failure
    assert "\n" not in failure


def test_of_a_function_that_is_not_in_the_library_nothing_is_known() -> None:
    graph_def = graph_def_of("x = Placeholder() {dtype=float}\ny = Relu(x) {T=float}")
    graph_def.node[1].op = "PartitionedCall"
    graph_def.node[1].attr["f"].func.name = "elsewhere"
    graph_def.node[1].attr["Tin"].list.type.append(DT_FLOAT)
    graph_def.node[1].attr["Tout"].list.type.append(DT_FLOAT)
    properties = Properties.of(GrapplerItem(graph_def))
    assert properties.outputs("y") == (TensorProperties(DT_FLOAT, None, None),)
    assert list(properties.function("elsewhere").unknown_sizes()) == []


def test_the_graph_and_the_default_graph_stay_as_they_are(
    tiny_item: Callable[[str], GrapplerItem],
) -> None:
    item = tiny_item("mlp")
    before = item.graph_def.SerializeToString(deterministic=True)
    with tf.Graph().as_default() as graph:
        for properties in (Properties.of(item), Properties.as_in_grappler(item)):
            assert properties.failure == properties.without_feeds().failure == ""
        assert graph.get_operations() == []
    assert item.graph_def.SerializeToString(deterministic=True) == before
