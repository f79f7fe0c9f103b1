"""Open dimensions that are the same in every call, on a graph that a person can follow."""

from __future__ import annotations

from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.graph.traversal import Numbering
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties
from memopt.shapes.symbolic import SymbolicShapes, together

GRAPH = """
x = Placeholder() {dtype=float, shape=[?,7,64]}
y = Placeholder() {dtype=float, shape=[?,7,64]}
w = Placeholder() {dtype=float, shape=[64]}
u = Placeholder() {dtype=float}
axes = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 tensor_shape { } int_val: -1 }>}
open = Placeholder() {dtype=int32, shape=[1]}
mean = Mean(x, axes) {T=float, Tidx=int32, keep_dims=true}
some = Mean(x, open) {T=float, Tidx=int32, keep_dims=true}
flat = Mean(x, axes) {T=float, Tidx=int32, keep_dims=false}
apart = Sub(x, mean) {T=float}
scaled = Mul(w, apart) {T=float}
both = AddV2(x, y) {T=float}
size = Shape(scaled) {T=float, out_type=int32}
spread = BroadcastTo(mean, size) {T=float, Tidx=int32}
again = Reshape(y, size) {T=float, Tshape=int32}
nothing = Neg(u) {T=float}
x_rows = Reshape(x, rows) {T=float, Tshape=int32}
y_rows = Reshape(y, rows) {T=float, Tshape=int32}
bare = Mean(x, axes) {T=float, Tidx=int32}
"""
ROWS = (
    "rows = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 "
    "tensor_shape { dim { size: 2 } } int_val: -1 int_val: 64 }>}"
)
BATCH = ("x:0", 0)


def test_dimensions_are_named_by_the_tensor_that_has_them_first() -> None:
    graph = parse_graph(ROWS + GRAPH)
    item = GrapplerItem(to_graph_def(graph), fetch=("again", "x_rows", "y_rows"))
    shapes = SymbolicShapes(Numbering.of(graph), Properties.of(item).certain)
    found = {node.name: shapes.find(node.output()) for node in graph}
    assert found["x"] == found["apart"] == found["scaled"] == (BATCH, 7, 64)
    assert found["spread"] == found["again"] == (BATCH, 7, 64)
    assert found["mean"] == (BATCH, 7, 1)
    assert found["y"] == (("y:0", 0), 7, 64)
    # Not known: which dimension was reduced, and whether one of two batches is repeated.
    assert found["some"] != (BATCH, 7, 1)
    assert found["flat"] == (("flat:0", 0), 7)
    assert found["both"] == (("both:0", 0), 7, 64)
    # What is left open is not the same for all who leave it open.
    assert found["x_rows"] == (("x_rows:0", 0), 64)
    assert found["y_rows"] == (("y_rows:0", 0), 64)
    assert found["bare"] == (("bare:0", 0), 7)
    assert found["w"] == (64,)
    assert found["nothing"] is None


def test_what_is_repeated_to_one_another_has_the_larger_dimensions() -> None:
    assert together((BATCH, 7, 1), (7, 64)) == (BATCH, 7, 64)
    assert together((), (BATCH,)) == (BATCH,)
    assert together((BATCH,), (5,)) is None
    assert together(None, (5,)) is None
    assert together((5,), None) is None
