"""The table of what can be split: each entry run for real, at once and in parts that differ."""

from __future__ import annotations

import numpy as np
import pytest
from support.text_constants import number, numbers

from memopt.context import Context
from memopt.fission.dimensions import SPLITTABLE, is_exact
from memopt.fission.facts import Facts
from memopt.fission.kernel_trials import settings_of, trial_of
from memopt.fission.regions import Region
from memopt.fission.trial_records import Outcome
from memopt.fission.trial_worker import is_equal, results
from memopt.fission.trials import Trials
from memopt.graph import op_types
from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties

ROWS = 12
PARTS = 5
"""Of 12 rows: two parts of 3 and three of 2."""

IMAGES = "x = Placeholder() {dtype=float, shape=[12,9,9,6]}"
MATRICES = "x = Placeholder() {dtype=float, shape=[12,5,7]}"
WEIGHTS = "w = Placeholder() {dtype=float, shape=[3,3,6,4]}"
STRIDES = "strides=<list { i: 1 i: 1 i: 1 i: 1 }>"
WINDOW = "ksize=<list { i: 1 i: 2 i: 2 i: 1 }>, " + STRIDES
FUSED = 'TArgs=<list { type: DT_FLOAT }>, fused_ops=<list { s: "BiasAdd" s: "Relu" }>'
SAME = 'padding="SAME"'


CASES = {
    "Select": (
        "c = Placeholder() {dtype=bool, shape=[12]}",
        MATRICES,
        "y = Neg(x) {T=float}",
        "n = Select(c, x, y) {T=float}",
    ),
    "SelectV2": (
        "c = Placeholder() {dtype=bool, shape=[12,1,7]}",
        MATRICES,
        "y = Placeholder() {dtype=float, shape=[5,7]}",
        "n = SelectV2(c, x, y) {T=float}",
    ),
    "BiasAdd": (
        IMAGES,
        "b = Placeholder() {dtype=float, shape=[6]}",
        "n = BiasAdd(x, b) {T=float}",
    ),
    "MatMul": (
        "x = Placeholder() {dtype=float, shape=[12,7]}",
        "w = Placeholder() {dtype=float, shape=[4,7]}",
        "n = MatMul(x, w) {T=float, transpose_b=true}",
    ),
    "_FusedMatMul": (
        "x = Placeholder() {dtype=float, shape=[12,7]}",
        "w = Placeholder() {dtype=float, shape=[7,4]}",
        "b = Placeholder() {dtype=float, shape=[4]}",
        'n = _FusedMatMul(x, w, b) {T=float, num_args=1, fused_ops=<list { s: "BiasAdd" }>}',
    ),
    "BatchMatMul": (
        MATRICES,
        "y = Placeholder() {dtype=float, shape=[12,7,4]}",
        "n = BatchMatMul(x, y) {T=float}",
    ),
    "BatchMatMulV2": (
        MATRICES,
        "y = Placeholder() {dtype=float, shape=[7,4]}",
        "n = BatchMatMulV2(x, y) {T=float}",
    ),
    "BatchMatMulV3": (
        MATRICES,
        "y = Placeholder() {dtype=float, shape=[1,4,7]}",
        "n = BatchMatMulV3(x, y) {Ta=float, Tb=float, Tout=float, adj_y=true}",
    ),
    "Einsum": (
        MATRICES,
        "y = Placeholder() {dtype=float, shape=[12,3,7]}",
        'n = Einsum(x, y) {N=2, T=float, equation="abc,adc->adb"}',
    ),
    "Conv2D": (IMAGES, WEIGHTS, f"n = Conv2D(x, w) {{T=float, {STRIDES}, {SAME}}}"),
    "_FusedConv2D": (
        IMAGES,
        WEIGHTS,
        "b = Placeholder() {dtype=float, shape=[4]}",
        f"n = _FusedConv2D(x, w, b) {{T=float, num_args=1, {STRIDES}, {SAME}, {FUSED}}}",
    ),
    "DepthwiseConv2dNative": (
        IMAGES,
        WEIGHTS,
        f"n = DepthwiseConv2dNative(x, w) {{T=float, {STRIDES}, {SAME}}}",
    ),
    "Conv2DBackpropInput": (
        numbers("s", 12, 9, 9, 6),
        WEIGHTS,
        "g = Placeholder() {dtype=float, shape=[12,9,9,4]}",
        f"n = Conv2DBackpropInput(s, w, g) {{T=float, {STRIDES}, {SAME}}}",
    ),
    "DepthwiseConv2dNativeBackpropInput": (
        numbers("s", 12, 9, 9, 6),
        WEIGHTS,
        "g = Placeholder() {dtype=float, shape=[12,9,9,24]}",
        f"n = DepthwiseConv2dNativeBackpropInput(s, w, g) {{T=float, {STRIDES}, {SAME}}}",
    ),
    "Softmax": (MATRICES, "n = Softmax(x) {T=float}"),
    "LogSoftmax": (MATRICES, "n = LogSoftmax(x) {T=float}"),
    "MaxPool": (IMAGES, f"n = MaxPool(x) {{T=float, {WINDOW}, {SAME}}}"),
    "AvgPool": (IMAGES, f"n = AvgPool(x) {{T=float, {WINDOW}, {SAME}}}"),
    "MaxPoolGrad": (
        IMAGES,
        f"y = MaxPool(x) {{T=float, {WINDOW}, {SAME}}}",
        "g = Placeholder() {dtype=float, shape=[12,9,9,6]}",
        f"n = MaxPoolGrad(x, y, g) {{T=float, {WINDOW}, {SAME}}}",
    ),
    "AvgPoolGrad": (
        numbers("s", 12, 9, 9, 6),
        "g = Placeholder() {dtype=float, shape=[12,9,9,6]}",
        f"n = AvgPoolGrad(s, g) {{T=float, {WINDOW}, {SAME}}}",
    ),
    "SoftmaxCrossEntropyWithLogits": (
        "x = Placeholder() {dtype=float, shape=[12,7]}",
        "y = Softmax(x) {T=float}",
        "n = SoftmaxCrossEntropyWithLogits(x, y) {T=float}",
    ),
    "SparseSoftmaxCrossEntropyWithLogits": (
        "x = Placeholder() {dtype=float, shape=[12,7]}",
        "y = Placeholder() {dtype=int64, shape=[12]}",
        "n = SparseSoftmaxCrossEntropyWithLogits(x, y) {T=float, Tlabels=int64}",
    ),
    **{
        op: (MATRICES, numbers("a", -1), f"n = {op}(x, a) {{T=float}}")
        for op in ("Max", "Mean", "Min", "Prod", "Sum")
    },
    **{
        op: (
            "x = Placeholder() {dtype=bool, shape=[12,5,7]}",
            numbers("a", 1),
            f"n = {op}(x, a) {{keep_dims=true}}",
        )
        for op in ("All", "Any")
    },
    "Transpose": (MATRICES, numbers("p", 0, 2, 1), "n = Transpose(x, p) {T=float, Tperm=int32}"),
    "Reshape": (MATRICES, numbers("s", 60, -1), "n = Reshape(x, s) {T=float}"),
    "ExpandDims": (MATRICES, number("a", -1), "n = ExpandDims(x, a) {T=float}"),
    "Squeeze": ("x = Placeholder() {dtype=float, shape=[12,1,7]}", "n = Squeeze(x) {T=float}"),
    "Pad": (
        MATRICES,
        pads := "p = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 "
        "tensor_shape { dim { size: 3 } dim { size: 2 } } int_val: 0 int_val: 0 int_val: 1 "
        "int_val: 0 int_val: 0 int_val: 2 }>}",
        "n = Pad(x, p) {T=float}",
    ),
    "PadV2": (
        MATRICES,
        pads,
        "o = Placeholder() {dtype=float, shape=[1]}",
        "v = Squeeze(o) {T=float}",
        "n = PadV2(x, p, v) {T=float}",
    ),
    "MirrorPad": (MATRICES, pads, 'n = MirrorPad(x, p) {T=float, mode="REFLECT"}'),
    "ConcatV2": (
        MATRICES,
        "y = Placeholder() {dtype=float, shape=[12,5,2]}",
        number("a", 2),
        "n = ConcatV2(x, y, a) {N=2, T=float}",
    ),
    "Slice": (
        MATRICES,
        numbers("b", 0, 1, 2),
        numbers("s", 12, 3, -1),
        "n = Slice(x, b, s) {T=float, Index=int32}",
    ),
    "StridedSlice": (
        MATRICES,
        numbers("b", 0, 1),
        numbers("e", 12, 5),
        numbers("s", 1, 2),
        "n = StridedSlice(x, b, e, s) {T=float, Index=int32}",
    ),
    "StridedSliceGrad": (
        numbers("i", 12, 5, 7),
        numbers("b", 0, 1),
        numbers("e", 12, 5),
        numbers("s", 1, 2),
        "g = Placeholder() {dtype=float, shape=[12,2,7]}",
        "n = StridedSliceGrad(i, b, e, s, g) {T=float, Index=int32}",
    ),
    "Split": (
        "x = Placeholder() {dtype=float, shape=[12,6]}",
        number("a", -1),
        "n = Split(a, x) {num_split=3, T=float}",
    ),
    "BroadcastTo": (
        "x = Placeholder() {dtype=float, shape=[12,1,7]}",
        numbers("s", 12, 5, 7),
        "n = BroadcastTo(x, s) {T=float}",
    ),
    "Tile": (MATRICES, numbers("m", 1, 2, 3), "n = Tile(x, m) {T=float}"),
    "GatherV2": (
        "t = Placeholder() {dtype=float, shape=[9,4]}",
        "x = Placeholder() {dtype=int32, shape=[12,3]}",
        number("a", 0),
        "n = GatherV2(t, x, a) {Tparams=float, Tindices=int32, Taxis=int32}",
    ),
    "Cast": (MATRICES, "n = Cast(x) {SrcT=float, DstT=int32}"),
    **{
        op: (
            "x = Placeholder() {dtype=bool, shape=[12,5]}",
            "y = Placeholder() {dtype=bool, shape=[5]}",
            f"n = {op}(x, y)",
        )
        for op in ("LogicalAnd", "LogicalOr")
    },
    "LogicalNot": ("x = Placeholder() {dtype=bool, shape=[12,5]}", "n = LogicalNot(x)"),
}


def strided(begin: int, end: int, stride: int, masks: str = "") -> tuple[str, ...]:
    """A slice of rows, and of the second half of what they have."""
    return (
        MATRICES,
        numbers("b", begin, 2),
        numbers("e", end, 5),
        numbers("s", stride, 1),
        f"n = StridedSlice(x, b, e, s) {{T=float, Index=int32{masks}}}",
    )


TAKES_ALL_ROWS = {
    "by masks": strided(3, 4, 1, ", begin_mask=1, end_mask=1"),
    "beyond the end": strided(0, 2**31 - 1, 1),
    "by an ellipsis": strided(3, 4, 2, ", ellipsis_mask=1"),
    "one column": strided(0, 12, 1, ", shrink_axis_mask=2"),
}
DEPENDENT = {
    "some rows": strided(0, 11, 1),
    "rows from another on": strided(1, 12, 1),
    "every second row": strided(0, 12, 2),
    "one row": strided(0, 1, 1, ", shrink_axis_mask=1"),
    "a new axis in their place": strided(0, 12, 1, ", new_axis_mask=1"),
    "an ellipsis of no dimension": (
        "x = Placeholder() {dtype=float, shape=[12]}",
        *strided(0, 0, 1, ", ellipsis_mask=1")[1:],
    ),
    "a slice of some rows": (
        MATRICES,
        numbers("b", 0, 0, 0),
        numbers("s", 11, 5, 7),
        "n = Slice(x, b, s) {T=float, Index=int32}",
    ),
    "rows are summed": (MATRICES, numbers("a", 0), "n = Sum(x, a) {T=float}"),
    "rows are moved": (MATRICES, numbers("p", 1, 0, 2), "n = Transpose(x, p) {T=float}"),
    "rows are columns": (
        "x = Placeholder() {dtype=float, shape=[7,12]}",
        "w = Placeholder() {dtype=float, shape=[7,4]}",
        "n = MatMul(x, w) {T=float, transpose_a=true}",
    ),
    "rows are normalized": (
        "x = Placeholder() {dtype=float, shape=[12]}",
        "n = Softmax(x) {T=float}",
    ),
    "rows are contracted": (
        MATRICES,
        "y = Placeholder() {dtype=float, shape=[12,3,7]}",
        'n = Einsum(x, y) {N=2, T=float, equation="abc,adc->dab"}',
    ),
    "random": (numbers("s", 12, 5), "n = RandomUniform(s) {dtype=float, T=int32}"),
    "the filter's gradient": (
        IMAGES,
        numbers("s", 3, 3, 6, 4),
        "g = Placeholder() {dtype=float, shape=[12,9,9,4]}",
        f"n = Conv2DBackpropFilter(x, s, g) {{T=float, {STRIDES}, {SAME}}}",
    ),
    "padded with rows": (
        MATRICES,
        pads.replace("int_val: 0 int_val: 0", "int_val: 0 int_val: 1", 1),
        "n = Pad(x, p) {T=float}",
    ),
    "a shape that is not known": (
        MATRICES,
        "s = Placeholder() {dtype=int32, shape=[2]}",
        "n = Reshape(x, s) {T=float}",
    ),
}


def case_of(op: str) -> tuple[str, ...]:
    """What runs an op; one of numbers of one shape needs no case of its own."""
    if op in CASES:
        return CASES[op]
    signature = op_types.signature(op)
    assert signature is not None
    names = ["x", "y"][: len(signature.inputs)]
    given = [f"{name} = Placeholder() {{dtype=float, shape=[12,5,7]}}" for name in names]
    return (*given, f"n = {op}({', '.join(names)}) {{T=float}}")


def facts_of(lines: tuple[str, ...]) -> Facts:
    graph = parse_graph("\n".join(lines))
    fed = tuple(f"{node.name}:0" for node in graph if node.op == "Placeholder")
    item = GrapplerItem(to_graph_def(graph), feed=fed, fetch=("n",))
    return Facts(graph, Context.of_item(item, Properties.of(item)))


def region_of(op: str) -> Region:
    facts = facts_of(case_of(op))
    node = facts.graph["n"]
    assert facts.is_split(node), facts.roles(node)
    return Region(facts, frozenset({node}))


@pytest.mark.parametrize("op", sorted(SPLITTABLE))
def test_parts_put_together_are_the_whole(op: str) -> None:
    """Of any size: the same numbers, but for the last bits of kernels that go by size."""
    region = region_of(op)
    assert region.unit % ROWS == 0 or op == "Reshape"
    trial = trial_of(region, region.nodes, PARTS)
    assert len(set(trial.shares)) > 1
    compared = list(results(trial, 2))
    assert compared
    for whole, together in compared:
        np.testing.assert_allclose(together, whole, rtol=1e-4, atol=1e-5)
        assert not is_exact(op) or together.tobytes() == whole.tobytes()


@pytest.mark.parametrize("how", TAKES_ALL_ROWS)
def test_a_slice_of_columns_is_the_same_in_parts(how: str) -> None:
    facts = facts_of(TAKES_ALL_ROWS[how])
    node = facts.graph["n"]
    assert facts.is_split(node), facts.roles(node)
    trial = trial_of(Region(facts, frozenset({node})), (node,), PARTS)
    for whole, together in results(trial, 2):
        assert together.shape[0] == ROWS
        assert together.tobytes() == whole.tobytes()


@pytest.mark.slow
def test_exact_kernels_have_the_same_bits_with_onednn_and_without() -> None:
    regions = [region_of(op) for op in sorted(SPLITTABLE) if is_exact(op)]
    trials = [trial_of(region, region.nodes, parts) for region in regions for parts in (2, 5)]
    with Trials(settings_of(None, 2)) as tried:
        assert {tried.outcome(trial) for trial in trials} == {Outcome.EQUAL}


def test_bits_of_a_matrix_product_can_depend_on_how_many_rows_it_has() -> None:
    """Some rows are another kernel's work, by how wide vectors are: so what is split is tried."""
    equal = []
    for rows, columns in ((100, 512), (50, 1), (7, 512)):
        lines = (
            f"x = Placeholder() {{dtype=float, shape=[{rows},31]}}",
            f"w = Placeholder() {{dtype=float, shape=[{columns},31]}}",
            "n = MatMul(x, w) {T=float, transpose_b=true}",
        )
        facts = facts_of(lines)
        region = Region(facts, frozenset({facts.graph["n"]}))
        equal += [is_equal(trial_of(region, region.nodes, parts), 1) for parts in (2, 8)]
    assert not all(equal)


@pytest.mark.parametrize("name", DEPENDENT)
def test_what_depends_on_other_rows_is_not_split(name: str) -> None:
    facts = facts_of(DEPENDENT[name])
    assert not facts.is_split(facts.graph["n"])
    assert facts.roles(facts.graph["n"])
