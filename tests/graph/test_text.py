"""Graphs as text, printed and parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memopt.errors import InvalidGraphError
from memopt.graph.attributes import format_attribute, parse_attribute
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.text import format_graph, parse_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.item import GrapplerItem

EXAMPLE = """\
x = Placeholder() {dtype=float, shape=[2,?]}
w = Const() {value=<tensor { dtype: DT_FLOAT tensor_shape { dim { size: 1 } } float_val: 0.5 }>}
y = MatMul(x, w:1, ^x) {T=float, transpose_a=true} @/device:CPU:0
z = A(y, y) {N=-3, alpha=1e-05, empty=[], name="a\\"b, {c}", ref=float_ref, shape=[*]}
l = A(z) {list=<list { i: 1 i: 2 }>, one=1.0, zero=<placeholder: "x>y">}
"""


def test_a_text_comes_out_as_it_went_in() -> None:
    assert format_graph(parse_graph(EXAMPLE)) == EXAMPLE


def test_comments_and_empty_lines_are_skipped() -> None:
    assert format_graph(parse_graph("# a graph\n\n  x = A()\n")) == "x = A()\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = A(", "line 1: 'x = A\\(' is no node"),
        ("x = A()\ny = B() {T=}", "line 2: 'T=' is no attribute"),
        ("x = A() {T=flout}", "line 1: 'flout' is no attribute value"),
        ("x = A() {s=[2,a]}", "is no shape"),
        ("x = A(y)", "input 'y' does not exist"),
        ("x = A() {v=<tensor { nothing: 1 }>}", "is no attribute value"),
    ],
)
def test_a_bad_line_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidGraphError, match=message):
        parse_graph(text)


def without_full_types(graph_def: GraphDef) -> GraphDef:
    copy = type(graph_def).FromString(graph_def.SerializeToString())
    for node in copy.node:
        node.ClearField("experimental_type")
    return copy


def test_models_survive_as_text(tiny_item: Callable[[str], GrapplerItem]) -> None:
    for model in ("vgg16", "convnet_v1", "lstm"):
        graph_def = without_full_types(tiny_item(model).graph_def)
        copy = to_graph_def(parse_graph(format_graph(from_graph_def(graph_def))))
        assert [node.SerializeToString(deterministic=True) for node in copy.node] == [
            node.SerializeToString(deterministic=True) for node in graph_def.node
        ]


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_integers_survive(number: int) -> None:
    assert parse_attribute(format_attribute(parse_attribute(str(number)))).i == number


@given(st.floats(width=32))
def test_floats_survive(number: float) -> None:
    value = parse_attribute("0.0")
    value.f = number
    copy = parse_attribute(format_attribute(value))
    assert copy.SerializeToString() == value.SerializeToString() or number != number  # noqa: PLR0124 - NaN


@given(st.binary())
def test_strings_survive(content: bytes) -> None:
    value = parse_attribute('""')
    value.s = content
    assert parse_attribute(format_attribute(value)).s == content
