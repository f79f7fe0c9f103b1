"""KernelCosts: fused operations cost what their parts do, and plans go by it."""

from __future__ import annotations

from math import ceil

import pytest
from support.text_constants import number, numbers

from memopt.api import optimize
from memopt.cluster import ANY_CPU
from memopt.costs.estimator import GrapplerCosts
from memopt.costs.estimator.device_rates import DeviceRates
from memopt.costs.kernel_costs import KernelCosts
from memopt.costs.kernel_rates import LAUNCH_NS, SPEED_UPS
from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties

TYPES = {
    "image": "shape=[8,32,32,16], dtype=float",
    "filter": "shape=[3,3,16,32], dtype=float",
    "grouped": "shape=[3,3,4,32], dtype=float",
    "own": "shape=[3,3,16,2], dtype=float",
    "bias": "shape=[32], dtype=float",
    "cube": "shape=[2,8,8,8,16], dtype=float",
    "filter3": "shape=[3,3,3,16,32], dtype=float",
    "change": "shape=[8,32,32,32], dtype=float",
    "logits": "shape=[4096,4], dtype=float",
    "labels": "shape=[4096], dtype=int32",
    "left": "shape=[64,128], dtype=float",
    "right": "shape=[128,32], dtype=float",
}
STRIDES = 'padding="SAME", strides=<list { i: 1 i: 1 i: 1 i: 1 }>'
STRIDES_OF_CUBES = 'padding="SAME", strides=<list { i: 1 i: 1 i: 1 i: 1 i: 1 }>'
FUSED = 'T=float, num_args=1, fused_ops=<list { s: "BiasAdd" s: "Relu" }>'
ARGUMENTS = "TArgs=<list { type: DT_FLOAT }>"
IMAGE_SIZE = 8 * 32 * 32


def cost_of(node: str, costs: KernelCosts | GrapplerCosts) -> tuple[int, int]:
    """Arithmetic and all of a node's time, in nanoseconds."""
    lines = [f"{name} = Placeholder() {{{given}}}" for name, given in TYPES.items()]
    lines += [numbers("f_size", 3, 3, 16, 32), f"node = {node}"]
    graph = parse_graph("\n".join(lines))
    item = GrapplerItem(to_graph_def(graph), feed=tuple(TYPES), fetch=("node",))
    asked = graph.find("node")
    assert asked is not None
    cost = costs.cost(asked, ANY_CPU, Properties.of(item))
    return cost.compute_ns, cost.execution_ns


@pytest.mark.parametrize(
    ("node", "op", "macs"),
    [
        (f"Conv2D(image, filter) {{T=float, {STRIDES}}}", "Conv2D", IMAGE_SIZE * 32 * 9 * 16),
        (f"Conv2D(image, grouped) {{T=float, {STRIDES}}}", "Conv2D", IMAGE_SIZE * 32 * 9 * 4),
        (
            f"_FusedConv2D(image, filter, bias) {{{ARGUMENTS}, {FUSED}, {STRIDES}}}",
            "_FusedConv2D",
            IMAGE_SIZE * 32 * 9 * 16,
        ),
        (
            f"DepthwiseConv2dNative(image, own) {{T=float, {STRIDES}}}",
            "DepthwiseConv2dNative",
            IMAGE_SIZE * 32 * 9,
        ),
        (
            f"Conv3D(cube, filter3) {{T=float, {STRIDES_OF_CUBES}}}",
            "Conv3D",
            2 * 8**3 * 32 * 27 * 16,
        ),
        (
            f"Conv2DBackpropFilter(image, f_size, change) {{T=float, {STRIDES}}}",
            "Conv2DBackpropFilter",
            IMAGE_SIZE * 32 * 9 * 16,
        ),
        (f"_FusedMatMul(left, right, bias) {{{FUSED}}}", "_FusedMatMul", 64 * 128 * 32),
    ],
)
def test_arithmetic_of_ops_that_grappler_does_not_know_and_of_those_it_does(
    node: str, op: str, macs: int
) -> None:
    compute_ns, execution_ns = cost_of(node, KernelCosts())
    gigaops = DeviceRates.of(ANY_CPU).gigaops
    assert compute_ns == ceil(2 * macs / (gigaops * SPEED_UPS[op]))
    assert execution_ns > compute_ns + LAUNCH_NS


def test_grappler_takes_a_fused_convolution_for_a_copy() -> None:
    plain = f"Conv2D(image, filter) {{T=float, {STRIDES}}}"
    fused = f"_FusedConv2D(image, filter, bias) {{{ARGUMENTS}, {FUSED}, {STRIDES}}}"
    grappler, kernels = GrapplerCosts(), KernelCosts()
    assert cost_of(fused, grappler)[1] < 0.01 * cost_of(plain, grappler)[1]
    assert cost_of(fused, kernels)[1] == pytest.approx(cost_of(plain, kernels)[1], rel=0.01)


STEP = f"""
image = Placeholder() {{dtype=float, shape=[8,32,32,32]}}
filter = Placeholder() {{dtype=float, shape=[3,3,32,32]}}
bias = Placeholder() {{dtype=float, shape=[32]}}
{number("axis", 0)}
{numbers("all", 0, 1, 2, 3)}
conv = _FusedConv2D(image, filter, bias) {{{ARGUMENTS}, {FUSED}, {STRIDES}}}
square = Square(conv) {{T=float}}
early = Sum(square, all) {{T=float, Tidx=int32}}
large = ConcatV2(image, image, image, image, axis, ^early) {{N=4, T=float, Tidx=int32}}
sum = Sum(large, all) {{T=float, Tidx=int32}}
late = Mul(conv, square, ^sum) {{T=float}}
total = Sum(late, all) {{T=float, Tidx=int32}}
"""


@pytest.mark.parametrize(("costs", "again"), [("auto", "square"), ("grappler", "conv")])
def test_plans_recompute_what_is_cheap_to_the_kernels(costs: str, again: str) -> None:
    """Either the convolution or the square has to go while the large result is there."""
    graph_def = to_graph_def(parse_graph(STEP))
    result_bytes = 8 * 32 * 32 * 32 * 4
    result = optimize(
        graph_def,
        level="ordered",
        budget=int(6.5 * result_bytes),
        feed=["image", "filter", "bias"],
        fetch=["total", "sum", "early"],
        costs=costs,
    )
    names = {node.name for node in result.graph_def.node}
    assert {name for name in names if name.startswith("Recomputed/")} == {f"Recomputed/{again}"}


def test_labels_are_not_broadcast_with_logits() -> None:
    """A picture has more pixels than classes: each pixel with each other would cost seconds."""
    of = "CrossEntropyWithLogits"
    sparse = cost_of(f"SparseSoftmax{of}(logits, labels) {{T=float, Tlabels=int32}}", KernelCosts())
    dense = cost_of(f"Softmax{of}(logits, logits) {{T=float}}", KernelCosts())
    assert sparse[0] == dense[0] > 0
    assert sparse[1] == pytest.approx(dense[1], rel=0.2)
