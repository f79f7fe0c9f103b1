"""Shapes that one call has: sizes follow from them, and nothing that a graph is rewritten to."""

from __future__ import annotations

from dataclasses import replace

import tensorflow as tf
from support.bad_inputs import graph_def_of

from memopt.graph.graphdef import from_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.item import GrapplerItem
from memopt.passes import Context, FoldShapes
from memopt.plugin.inferred_shapes import with_assumed
from memopt.shapes.assumed import assuming, declared_shapes, open_axes
from memopt.shapes.properties import Properties

OPEN = """
x = Placeholder() {dtype=float, shape=[?,8]}
shape = Shape(x) {T=float, out_type=int32}
zero = Const() {dtype=float, value=<tensor { dtype: DT_FLOAT tensor_shape { } float_val: 0 }>}
filled = Fill(shape, zero) {T=float, index_type=int32}
"""


def item(**assumed: tuple[int, ...]) -> GrapplerItem:
    shapes = {name: (shape,) for name, shape in assumed.items()}
    return GrapplerItem(
        graph_def_of(OPEN), feed=("x:0",), fetch=("filled:0",), assumed_shapes=shapes
    )


def test_sizes_follow_from_what_is_assumed() -> None:
    assert Properties.of(item()).size_bytes("filled:0") is None
    properties = Properties.of(item(x=(32, 8)))
    assert properties.size_bytes("x:0") == properties.size_bytes("filled:0") == 32 * 8 * 4


def test_what_holds_for_every_call_is_known_apart() -> None:
    properties = Properties.of(item(x=(32, 8)))
    assert properties.certain.size_bytes("filled:0") is None
    assert properties.certain.certain is properties.certain
    certain = Properties.of(item())
    assert certain.certain is certain


def test_no_shape_is_folded_that_another_call_has_not() -> None:
    for given in (item(), item(x=(32, 8))):
        graph = from_graph_def(given.graph_def)
        rewriter = Rewriter(graph)
        context = Context(Properties.of(given), fed=frozenset({"x"}), fetched=frozenset({"filled"}))
        FoldShapes().run(rewriter, context)
        assert not rewriter.edits


def test_the_graph_itself_stays_as_it_is() -> None:
    given = item(x=(32, 8))
    before = given.graph_def.SerializeToString(deterministic=True)
    assumed = assuming(given.graph_def, given.assumed_shapes)
    assert given.graph_def.SerializeToString(deterministic=True) == before
    assert declared_shapes(assumed.node[0]) == [(32, 8)]


def test_lists_in_loops_have_the_batch_where_one_dimension_is_open() -> None:
    def collect(x: tf.Tensor) -> tf.Tensor:
        return tf.scan(lambda before, each: before + each, x, tf.zeros_like(x[0]))

    function = tf.function(collect).get_concrete_function(tf.TensorSpec((5, None, 8)))
    given = GrapplerItem.from_concrete_function(function)
    name = given.feed[0].partition(":")[0]
    result = given.fetch[0]
    assert Properties.of(given).size_bytes(result) is None
    # The second dimension is open, so it is no batch that elements have.
    told = Properties.of(replace(given, assumed_shapes={name: ((5, 16, 8),)}))
    assert told.tensor(f"{name}:0").shape == (5, 16, 8)  # type: ignore[union-attr]


FUSED = """
x = Placeholder() {dtype=bfloat16, shape=[?,8,8,3]}
filter = Placeholder() {dtype=bfloat16, shape=[3,3,3,16]}
bias = Placeholder() {dtype=bfloat16, shape=[16]}
y = _FusedConv2D(x, filter, bias) {T=bfloat16, TArgs=<list { type: DT_BFLOAT16 }>, \
fused_ops=<list { s: "BiasAdd" }>, num_args=1, padding="SAME", \
strides=<list { i: 1 i: 1 i: 1 i: 1 }>}
"""


AXIS = "a = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 }>}"
PERMUTED = """
x = Placeholder() {dtype=float, shape=[16,8]}
a = _Arg() {T=int32, index=0}
p = Placeholder() {dtype=int32, shape=[8]}
once = GatherV2(x, p, a) {Taxis=int32, Tindices=int32, Tparams=float}
twice = GatherV2(once, p, a) {Taxis=int32, Tindices=int32, Tparams=float}
n = Neg(twice) {T=float}
first = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 }>}
begin = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 tensor_shape { dim { size: 1 } } int_val: 1 }>}
shape = Shape(twice) {T=float, out_type=int32}
end = ExpandDims(a, first) {T=int32, Tdim=int32}
outer = StridedSlice(shape, begin, end, begin) {Index=int32, T=int32, begin_mask=1, ellipsis_mask=0, end_mask=0, new_axis_mask=0, shrink_axis_mask=0}
zero = Const() {dtype=float, value=<tensor { dtype: DT_FLOAT tensor_shape { } float_val: 0 }>}
filled = Fill(outer, zero) {T=float, index_type=int32}
"""  # noqa: E501 - constants


def test_what_is_permuted_along_an_axis_that_is_captured_has_its_size() -> None:
    graph_def = graph_def_of(PERMUTED)
    item = GrapplerItem(graph_def, feed=("x:0", "p:0", "a:0"), fetch=("n:0", "filled:0"))
    assert Properties.of(item).size_bytes("n:0") is None
    axes = open_axes(graph_def)
    assert axes == {"a": ((),)}
    properties = Properties.of(replace(item, assumed_shapes=axes))
    assert properties.size_bytes("once:0") == properties.size_bytes("n:0") == 16 * 8 * 4
    # As its gradient takes the dimensions before the axis.
    assert properties.shape("filled:0") == (16,)
    assert properties.certain.size_bytes("n:0") is None
    inferred, assumed = with_assumed(Properties.of(item), item, {})
    assert inferred.size_bytes("n:0") == 16 * 8 * 4
    assert assumed.assumed_shapes == axes


def test_what_gathers_without_an_axis_has_none() -> None:
    graph_def = graph_def_of(PERMUTED)
    for node_def in graph_def.node:
        del node_def.input[2:]
    assert not open_axes(graph_def)
    assert len(assuming(graph_def, {"a": ((),)}).node) == len(graph_def.node)


def test_an_axis_that_is_known_is_not_open() -> None:
    known = PERMUTED.replace("a = _Arg() {T=int32, index=0}", AXIS)
    item = GrapplerItem(graph_def_of(known), feed=("x:0", "p:0"), fetch=("n:0",))
    assert not open_axes(item.graph_def)
    properties = Properties.of(item)
    assert properties.size_bytes("n:0") == 8 * 8 * 4
    assert with_assumed(properties, item, {}) == (properties, item)


def test_what_is_fused_of_bfloat16_has_the_shape_of_what_it_is_fused_of() -> None:
    """TensorFlow runs such a convolution, and refuses to import it."""
    feeds = ("x:0", "filter:0", "bias:0")
    given = GrapplerItem(
        graph_def_of(FUSED), feeds, ("y:0",), assumed_shapes={"x": ((32, 8, 8, 3),)}
    )
    assert Properties.of(given).size_bytes("y:0") == 32 * 8 * 8 * 16 * 2
