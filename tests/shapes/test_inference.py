"""All that TensorFlow knows of shapes: never wrong, no less than Grappler knows, asked for once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from support.bad_inputs import graph_def_of
from support.inferred_graphs import (
    FETCH,
    GRAPHS,
    computed_shapes,
    control_flow,
    functional,
    graph_of,
    growing_loops,
    loop_over_array,
    needed_by_readers,
)
from support.sessions import run_graph

import memopt.shapes.imported_graph
import memopt.shapes.inference
from memopt.errors import InvalidGraphError
from memopt.item import GrapplerItem
from memopt.models import MODELS, SESSION_MODELS
from memopt.shapes.c_graph import CGraph
from memopt.shapes.grappler_inference import infer_by_grappler
from memopt.shapes.imported_graph import PythonGraph, new_graph
from memopt.shapes.inference import FullInference
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.shapes.tensor_properties import Shape, TensorProperties

v1 = tf.compat.v1
DT_FLOAT, DT_INT32 = 1, 3


@pytest.fixture(params=GRAPHS, ids=lambda case: case[0].__name__)
def graph_def(request: pytest.FixtureRequest) -> GraphDef:
    return graph_of(*request.param)


Known = dict[tuple[str, str], "tuple[TensorProperties, ...]"]


def everything(item: GrapplerItem) -> Known:
    """What is known of every node of the main graph and of every body."""
    properties = Properties.of(item)
    library = item.graph_def.library.function
    graphs = {"": item.graph_def.node, **{f.signature.name: f.node_def for f in library}}
    return {
        (function, node.name): properties.function(function).outputs(node.name)
        for function, nodes in graphs.items()
        for node in nodes
    }


# --- the two ways to import ----------------------------------------------------------------------


def no_library() -> None:
    raise OSError("libtensorflow_cc.so.2: cannot open shared object file")


@pytest.mark.parametrize("model", [*MODELS, *SESSION_MODELS])
def test_without_the_c_library_the_same_is_known_of_models(
    model: str, tiny_item: Callable[[str], GrapplerItem], monkeypatch: pytest.MonkeyPatch
) -> None:
    item = tiny_item(model)
    fast = everything(item)
    monkeypatch.setattr(memopt.shapes.imported_graph, "CGraph", no_library)
    assert everything(item) == fast
    assert sum(map(len, fast.values())) > 100


def test_without_the_c_library_the_same_is_known(
    graph_def: GraphDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = everything(GrapplerItem(graph_def))
    monkeypatch.setattr(memopt.shapes.imported_graph, "CGraph", no_library)
    assert everything(GrapplerItem(graph_def)) == fast


def test_the_c_library_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(new_graph(), CGraph)
    monkeypatch.setattr(memopt.shapes.imported_graph, "CGraph", no_library)
    assert isinstance(new_graph(), PythonGraph)


@pytest.mark.parametrize("engine", [CGraph, PythonGraph])
def test_nodes_are_added_beside_those_that_are_there(engine: Any) -> None:
    graph = engine()
    graph.add(graph_def_of("x = Placeholder() {dtype=float, shape=[2,3]}"))
    parts = graph_def_of(
        "x = Placeholder() {dtype=float, shape=[9]}\n"
        "axis = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 tensor_shape { } "
        "int_val: 1 }>}\n"
        "s = Split(axis, x) {T=float, num_split=3}\n"
        "y = Relu(x) {T=float}"
    )
    parts.node[2].input[1] = "outside:4"
    graph.add(parts, "inner/most", {"outside:4": "x:0"})
    parts.ClearField("node")
    parts.node.add(name="y", op="Relu", input=["outside:7"]).attr["T"].type = DT_FLOAT
    graph.add(parts, "last", {"outside:7": "inner/most/s:2"})
    assert graph.outputs("x") == (tensor_properties(DT_FLOAT, (2, 3)),)
    assert graph.outputs("inner/most/x") == (tensor_properties(DT_FLOAT, (9,)),)
    assert graph.outputs("inner/most/s") == (tensor_properties(DT_FLOAT, (2, 1)),) * 3
    assert graph.outputs("last/y") == (tensor_properties(DT_FLOAT, (2, 1)),)
    assert graph.outputs("y") is None
    assert graph.outputs("inner") is None


@pytest.mark.parametrize("engine", [CGraph, PythonGraph])
def test_what_is_refused_is_said_in_one_line_and_changes_nothing(engine: Any) -> None:
    graph = engine()
    graph.add(graph_def_of("x = Placeholder() {dtype=float, shape=[2,3]}"))
    wrong = graph_def_of("y = Relu(^z)\nz = NoOp()")
    before = wrong.SerializeToString(deterministic=True)
    with pytest.raises(InvalidGraphError, match="TensorFlow cannot import the graph: ") as caught:
        graph.add(wrong)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidGraphError):
        graph.add(graph_def_of("z = NoOp()"), "", {"a:0": "nowhere:0"})
    assert wrong.SerializeToString(deterministic=True) == before
    assert graph.outputs("x") == (tensor_properties(DT_FLOAT, (2, 3)),)
    assert graph.outputs("z") is None


# --- what is known is right ----------------------------------------------------------------------


@pytest.mark.parametrize("model", [*MODELS, *SESSION_MODELS])
def test_of_models_no_less_is_known_than_grappler_knows(
    model: str, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    assert_no_less_than_grappler(tiny_item(model))


def test_no_less_is_known_than_grappler_knows(graph_def: GraphDef) -> None:
    assert_no_less_than_grappler(GrapplerItem(graph_def))


def assert_no_less_than_grappler(item: GrapplerItem) -> None:
    ours, grappler = Properties.of(item), Properties.as_in_grappler(item)
    for node in item.graph_def.node:
        pairs = zip(ours.outputs(node.name), grappler.outputs(node.name), strict=True)
        if node.op == "PlaceholderWithDefault":
            continue  # Grappler has it that the default is what is read.
        for mine, theirs in pairs:
            assert mine.dtype == theirs.dtype
            assert merged(mine.shape, theirs.shape) == mine.shape, node.name


def merged(one: Shape, other: Shape) -> Shape:
    if one is None or other is None:
        return other if one is None else one
    assert len(one) == len(other)
    return tuple(b if a == -1 else a for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("build", "version", "feed"),
    [
        (computed_shapes, 1, {"rows:0": (7, 4, 6), "fed:0": (8, 4, 6)}),
        (needed_by_readers, 1, {"any_shape:0": (3, 4), "rows:0": (3, 4), "left:0": (5, 3)}),
        (growing_loops, 1, {"rows:0": (6, 4)}),
        (loop_over_array, 1, {"fed:0": (6, 2, 3)}),
        (functional, 2, {"fed:0": (5, 4), "rows:0": (2, 4)}),
    ],
    ids=lambda case: getattr(case, "__name__", None),
)
def test_what_is_known_is_what_comes_out_when_it_runs(
    build: Callable[[], list[Any]], version: int, feed: Mapping[str, tuple[int, ...]]
) -> None:
    graph_def = graph_of(build, version)
    properties = Properties.of(GrapplerItem(graph_def))
    (end,) = [node for node in graph_def.node if node.name == FETCH]
    results = [name[1:] for name in end.input]
    tensors = [
        f"{node}:{port}"
        for node in results
        for port, known in enumerate(properties.outputs(node))
        if known.least_bytes
    ]
    values = {name: np.zeros(shape, np.float32) for name, shape in feed.items()}
    (found,) = run_graph(graph_def, tensors, values)
    assert len(found) >= len(results) > 2
    for name, value in zip(tensors, found, strict=True):
        known = properties.tensor(name)
        assert known is not None
        if known.shape is not None:
            assert merged(known.shape, value.shape) == value.shape, name
        assert known.size_bytes in (None, value.nbytes), name


def test_loops_of_v1_are_followed_until_nothing_changes() -> None:
    properties = Properties.of(GrapplerItem(graph_of(growing_loops)))
    shapes = [properties.outputs(f"while/Exit{end}")[0].shape for end in ("", "_1", "_2")]
    assert shapes == [(), (-1, 4), (-1, 3)]
    assert properties.outputs("while/concat")[0].shape == (-1, 3)
    assert properties.outputs("while/mul")[0].shape == (-1, 4)


def test_constants_are_computed_where_shapes_depend_on_them() -> None:
    """What Grappler does not follow."""
    item = GrapplerItem(graph_of(computed_shapes))
    ours, grappler = Properties.of(item), Properties.as_in_grappler(item)
    assert ours.outputs("transpose")[0].shape == (4, 6, 8)
    assert grappler.outputs("transpose")[0].shape == (-1, -1, -1)


def test_grappler_is_not_asked_where_it_knows_no_more(
    tiny_item: Callable[[str], GrapplerItem], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[GraphDef] = []

    def ask(graph_def: GraphDef) -> Any:
        asked.append(graph_def)
        return infer_by_grappler(graph_def)

    monkeypatch.setattr(memopt.shapes.inference, "infer_by_grappler", ask)
    for model in ("mlp", "bert", "lstm"):
        everything(tiny_item(model))
    assert asked == []
    everything(GrapplerItem(graph_of(growing_loops)))
    assert len(asked) == 1


def test_where_grappler_fails_the_import_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(graph_def: GraphDef) -> Any:
        raise InvalidGraphError(f"{len(graph_def.node)} nodes are too many")

    monkeypatch.setattr(memopt.shapes.inference, "infer_by_grappler", refuse)
    properties = Properties.of(GrapplerItem(graph_of(growing_loops)))
    assert properties.failure == ""
    assert properties.outputs("rows") == (tensor_properties(DT_FLOAT, (-1, 4)),)
    assert properties.outputs("while/Exit_1") == (tensor_properties(DT_FLOAT, None),)


# --- bodies --------------------------------------------------------------------------------------


class Watched:
    """An imported graph that tells what is asked of it."""

    def __init__(self) -> None:
        self.added: list[GraphDef] = []
        self.asked: list[str] = []
        self._graph = new_graph()

    def add(self, graph_def: GraphDef, *rest: Any) -> None:
        self.added.append(graph_def)
        self._graph.add(graph_def, *rest)

    def outputs(self, node: str) -> Any:
        self.asked.append(node)
        return self._graph.outputs(node)


def test_no_more_is_inferred_than_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Watched()
    monkeypatch.setattr(memopt.shapes.inference, "new_graph", lambda: graph)
    graph_def = graph_of(functional, 2)
    names = [function.signature.name for function in graph_def.library.function]
    properties = Properties.of(GrapplerItem(graph_def))
    assert graph.added == []
    properties.outputs("fed")
    properties.outputs("fed")
    assert len(graph.added) == 1
    assert graph.asked == ["fed"]
    for name in names:
        properties.function(name).outputs("x")
    # Each body once, and the functions that it calls are there already.
    assert len(graph.added) == 1 + len(names)
    assert [len(added.library.function) for added in graph.added] == [len(names)] + [0] * len(names)


def test_a_graph_that_needs_no_change_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Watched()
    monkeypatch.setattr(memopt.shapes.inference, "new_graph", lambda: graph)
    graph_def = graph_of(computed_shapes)
    assert Properties.of(GrapplerItem(graph_def)).failure == ""
    assert graph.added[0] is graph_def


def test_asking_changes_no_graph(tiny_item: Callable[[str], GrapplerItem]) -> None:
    for item in (tiny_item("lstm"), GrapplerItem(graph_of(functional, 2))):
        before = item.graph_def.SerializeToString(deterministic=True)
        everything(item)
        grappler = Properties.as_in_grappler(item)
        for function in item.graph_def.library.function:
            assert grappler.function(function.signature.name).failure == ""
        assert item.graph_def.SerializeToString(deterministic=True) == before


def counted_loop(body: Callable[[Any, Any], Any]) -> Properties:
    """The body of a loop that begins to count at a constant."""

    def build() -> list[Any]:
        fed = v1.placeholder(tf.float32, [2, 3], name="fed")
        invariants = [tf.TensorShape([]), tf.TensorShape([None, 3])]
        return list(
            tf.while_loop(lambda turn, _: turn < 3, body, [0, fed], shape_invariants=invariants)
        )

    graph_def = graph_of(build, 2)
    (name,) = [f.signature.name for f in graph_def.library.function if "body" in f.signature.name]
    return Properties.of(GrapplerItem(graph_def)).function(name)


def test_in_a_loop_only_that_is_known_which_holds_in_every_turn() -> None:
    body = counted_loop(
        lambda turn, value: (turn + 1, tf.concat([value, tf.zeros([turn, 3], name="new")], 0))
    )
    shapes = {
        node: [tensor.shape for tensor in body.outputs(node)]
        for node in ("placeholder", "placeholder_1", "new", "concat_0")
    }
    # The counter begins at 0, and the value has 2 rows; neither stays.
    assert shapes == {
        "placeholder": [()],
        "placeholder_1": [(-1, 3)],
        "new": [(-1, 3)],
        "concat_0": [(-1, 3)],
    }


def test_a_body_is_known_by_the_shapes_of_the_first_call_but_not_by_its_values() -> None:
    @tf.function(experimental_attributes={"_noinline": True})  # type: ignore[untyped-decorator]
    def body(x: Any, shape: Any) -> Any:
        return tf.reshape(x, shape, name="changed")

    def build() -> list[Any]:
        fed = v1.placeholder(tf.float32, [2, 6], name="fed")
        return [body(fed, tf.constant([3, 4])), body(fed, tf.constant([4, 3]))]

    graph_def = graph_of(build, 2)
    (function,) = graph_def.library.function
    properties = Properties.of(GrapplerItem(graph_def))
    inside = properties.function(function.signature.name)
    assert inside.outputs("x") == (tensor_properties(DT_FLOAT, (2, 6)),)
    assert inside.outputs("changed") == (tensor_properties(DT_FLOAT, (-1, -1)),)
    calls = [node.name for node in graph_def.node if "PartitionedCall" in node.op]
    assert [properties.outputs(call)[0].shape for call in calls] == [(3, 4), (4, 3)]


def test_names_of_the_own_making_may_be_taken() -> None:
    @tf.function(experimental_attributes={"_noinline": True})  # type: ignore[untyped-decorator]
    def body(given: Any, x: Any) -> Any:
        with tf.name_scope("given"):
            read = tf.raw_ops.ReadVariableOp(resource=given, dtype=tf.float32, name="read")
        return read + tf.exp(x, name="given_")

    def build() -> list[Any]:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2, 3], name="body0/x")
        with tf.name_scope("body_"):
            return [body(handle, tf.ones([3], name="x"))]

    graph_def = graph_of(build, 2)
    (function,) = graph_def.library.function
    inside = Properties.of(GrapplerItem(graph_def)).function(function.signature.name)
    assert inside.outputs("given_1/read") == (tensor_properties(DT_FLOAT, (2, 3)),)
    assert inside.outputs("given_") == inside.outputs("x")
    assert inside.outputs("x") == (tensor_properties(DT_FLOAT, (3,)),)


def test_a_body_that_is_refused_takes_no_other_with_it() -> None:
    graph_def = graph_of(functional, 2)
    graph_def.library.function.add().signature.name = "nothing"
    call = graph_def.node.add(name="wrong", op="PartitionedCall", input=["fed"])
    call.attr["f"].func.name = "nothing"
    call.attr["Tin"].list.type.append(DT_FLOAT)
    call.attr["Tout"].list.SetInParent()
    properties = Properties.of(GrapplerItem(graph_def))
    names = ["", *(function.signature.name for function in graph_def.library.function)]
    failures = {name: properties.function(name).failure for name in names}
    expected = "function 'nothing' takes 0 arguments, a call of it gives 1"
    assert failures == {**dict.fromkeys(names, ""), "nothing": expected}


def test_loops_in_a_row_hand_on_what_they_are_given() -> None:
    def build() -> list[Any]:
        listed = tf.TensorArray(tf.float32, 5, element_shape=[4])
        for _ in range(40):
            _, listed = tf.while_loop(
                lambda turn, _: turn < 5,
                lambda turn, array: (turn + 1, array.write(turn, tf.ones([4]))),
                [0, listed],
            )
        return [listed.stack(name="stacked")]

    graph_def = graph_of(build, 2)
    (stack,) = [node.name for node in graph_def.node if node.op == "TensorListStack"]
    properties = Properties.of(GrapplerItem(graph_def))
    assert properties.outputs(stack)[0].shape == (5, 4)


def test_loops_that_lead_into_each_other_are_refused_and_not_followed_for_ever() -> None:
    with control_flow(2):
        graph_def = graph_of(functional, 2)
    loops = [node for node in graph_def.node if "While" in node.op]
    lists = [node for node in loops if 21 in node.attr["T"].list.type]
    (loop,) = lists
    port = list(loop.attr["T"].list.type).index(21)
    loop.input[port] = f"{loop.name}:{port}"
    assert "cannot import" in Properties.of(GrapplerItem(graph_def)).failure


def test_grappler_is_not_given_the_values_of_large_constants() -> None:
    value = tf.make_tensor_proto(np.ones((300, 400), np.float32))
    graph_def = graph_def_of("small = NoOp()")
    for name, tensor in (("large", value), ("axes", tf.make_tensor_proto([1, 0]))):
        node = graph_def.node.add(name=name, op="Const")
        node.attr["dtype"].type = tensor.dtype
        node.attr["value"].tensor.CopyFrom(tensor)
    turned = graph_def.node.add(name="turned", op="Transpose", input=["large", "axes"])
    turned.attr["T"].type, turned.attr["Tperm"].type = DT_FLOAT, DT_INT32
    size = graph_def.ByteSize()
    known = infer_by_grappler(graph_def)
    assert known["large"] == (tensor_properties(DT_FLOAT, (300, 400)),)
    assert known["turned"] == (tensor_properties(DT_FLOAT, (400, 300)),)
    assert graph_def.ByteSize() == size
    memopt.shapes.grappler_inference._drop_large_values(graph_def)
    assert graph_def.ByteSize() < 1000
    assert infer_by_grappler(graph_def) == known


def test_of_an_empty_graph_nothing_is_known() -> None:
    empty = GrapplerItem(graph_def_of(""))
    for properties in (Properties.of(empty), Properties.as_in_grappler(empty)):
        assert properties.failure == ""
        assert list(properties.unknown_sizes()) == []
        assert properties.without_feeds().outputs("x") == ()


def test_the_nodes_are_a_mapping() -> None:
    graph_def = graph_of(computed_shapes)
    nodes = FullInference(GrapplerItem(graph_def)).nodes("")
    assert list(nodes) == [node.name for node in graph_def.node]
    assert len(nodes) == len(graph_def.node)
    assert "fed" in nodes
    assert "nowhere" not in nodes
