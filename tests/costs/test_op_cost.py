"""Arithmetic per byte: what is cheap to recompute, and what is never said to be."""

from __future__ import annotations

import pytest
from support.bad_inputs import graph_def_of

from memopt.costs.op_cost import OPERATIONS_PER_ELEMENT, is_cheap, operations
from memopt.graph import op_types
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.passes.recomputation import CHEAP_OPS
from memopt.shapes.properties import Properties

GRAPH = """
x = Placeholder() {dtype=float, shape=[4,6]}
half = Placeholder() {dtype=half, shape=[4,6]}
none = Placeholder() {dtype=float, shape=[0,6]}
rows = Placeholder() {dtype=float, shape=[?,6]}
text = Placeholder() {dtype=string, shape=[4,6]}
flags = Placeholder() {dtype=bool, shape=[4,6]}
one = Placeholder() {dtype=float, shape=[]}
axis = Placeholder() {dtype=int32, shape=[]}
size = Placeholder() {dtype=int32, shape=[1]}
relu = Relu(x) {T=float}
sigmoid = Sigmoid(x) {T=float}
sigmoid_half = Sigmoid(half) {T=half}
sqrt = Sqrt(x) {T=float}
scalar = Tanh(one) {T=float}
relu_none = Relu(none) {T=float}
relu_rows = Relu(rows) {T=float}
split = Split(axis, x) {T=float, num_split=3}
matmul = MatMul(x, x) {T=float, transpose_a=false, transpose_b=true}
identity = Identity(x) {T=float}
text_choice = SelectV2(flags, text, text) {T=string}
random = RandomUniform(size) {T=int32, dtype=float, seed=1, seed2=1}
"""


@pytest.fixture(scope="module")
def properties() -> Properties:
    return Properties.of(GrapplerItem(graph_def_of(GRAPH)))


@pytest.mark.parametrize(
    ("name", "count", "cheap"),
    [
        ("relu", 24, True),
        ("sigmoid", 24 * 16, True),
        ("sigmoid_half", 24 * 16, True),
        ("sqrt", 24 * 4, True),
        ("scalar", 16, True),
        ("relu_none", 0, False),
        ("relu_rows", None, False),
        # One axis is cut, which one is not known, so each part may have any size.
        ("split", None, False),
        ("matmul", None, False),
        ("identity", None, False),
        ("text_choice", 24, False),
        ("random", None, False),
        ("x", None, False),
    ],
)
def test_arithmetic_and_whether_it_is_cheap(
    name: str, count: int | None, *, cheap: bool, properties: Properties
) -> None:
    graph = from_graph_def(graph_def_of(GRAPH))
    assert operations(graph[name], properties) == count
    assert is_cheap(graph[name], properties, graph.library) is cheap


def test_of_several_outputs_the_largest_counts_for_work_and_all_for_bytes() -> None:
    text = "x = Placeholder() {dtype=float, shape=[6]}\nu = Unpack(x) {T=float, num=6, axis=0}\n"
    shapes = "p = Placeholder() {dtype=float, shape=[2,6]}\nv = Unpack(p) {T=float, num=2, axis=0}"
    graph_def = graph_def_of(text + shapes)
    properties = Properties.of(GrapplerItem(graph_def))
    graph = from_graph_def(graph_def)
    assert operations(graph["u"], properties) == 1
    assert operations(graph["v"], properties) == 6


def test_where_nothing_is_known_nothing_is_cheap() -> None:
    graph = from_graph_def(graph_def_of(GRAPH))
    assert not any(is_cheap(node, Properties.unknown(), graph.library) for node in graph)


@pytest.mark.parametrize("op", sorted(OPERATIONS_PER_ELEMENT))
def test_every_op_with_a_known_cost_exists_and_has_no_state(op: str) -> None:
    """A misspelled name would be an op that is never found cheap, and nobody would see."""
    known = op_types.signature(op)
    assert known is not None
    assert not known.is_stateful


def test_what_grappler_calls_cheap_has_a_known_cost() -> None:
    # The work of an AddN grows with the number of its inputs.
    assert CHEAP_OPS - set(OPERATIONS_PER_ELEMENT) == {"AddN"}


def test_functions_with_the_name_of_nothing_known_are_not_cheap() -> None:
    graph_def = graph_def_of("x = Placeholder() {dtype=float, shape=[4]}")
    signature = graph_def.library.function.add().signature
    signature.name = "my_relu"
    signature.input_arg.add(name="a", type=1)
    signature.output_arg.add(name="b", type=1)
    graph_def.node.add(name="y", op="my_relu", input=["x"])
    graph = from_graph_def(graph_def)
    assert not is_cheap(graph["y"], Properties.unknown(), graph.library)
