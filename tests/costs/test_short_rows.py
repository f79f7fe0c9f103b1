"""Short rows: how many stretches of elements kernels work through one by one."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import pytest

from memopt.cluster import ANY_CPU
from memopt.costs.estimator import GrapplerCosts
from memopt.costs.estimator.op_info import Formula, OpInfo
from memopt.costs.kernel_costs import KernelCosts
from memopt.costs.short_rows import (
    Rows,
    broadcast_rows,
    copied_rows,
    last_rows,
    on_rows,
    repeated_rows,
    summed_rows,
)
from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import TensorProperties

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.costs.cost_model import CostModel

FLOAT, INTEGER = 1, 3
Sizes = tuple[int, ...] | None


def info_of(result: Sizes, *inputs: Sizes) -> OpInfo:
    """An operation on floats of such shapes; what says where, by at most 4 numbers, is integers."""
    given = tuple(
        TensorProperties(INTEGER if prod(shape or ()) <= 4 else FLOAT, shape, None)
        for shape in inputs
    )
    return OpInfo(given, (TensorProperties(FLOAT, result, None),), {})


@pytest.mark.parametrize(
    ("count", "result", "inputs", "rows"),
    [
        (broadcast_rows, (64, 8), [(64, 8), (64, 8)], 0),
        (broadcast_rows, (64, 8), [(64, 8), ()], 0),
        (broadcast_rows, (64, 8), [(64, 8), (1, 1)], 0),
        (broadcast_rows, (64, 8), [(64, 8), (8,)], 64),
        (broadcast_rows, (64, 8), [(64, 1), (64, 8)], 64),
        (broadcast_rows, (64, 8), [(64, 1), (8,)], 64),
        (broadcast_rows, (4, 16, 8), [(4, 16, 8), (4, 1, 1)], 4),
        (broadcast_rows, (4, 16, 8), [(4, 16, 8), (16, 8)], 4),
        (broadcast_rows, (4, 16, 8), [(4, 16, 8), (4, 1, 8)], 64),
        (broadcast_rows, (4, 16, 1), [(4, 16, 1), (16, 1)], 4),
        (broadcast_rows, (64, 8), [(64, 1), (64, 8), (64, 8)], 64),
        (broadcast_rows, (-1, 8), [(-1, 8), (8,)], 0),
        (broadcast_rows, (64, 8), [(64, 8), None], 0),
        (broadcast_rows, None, [(64, 8), (8,)], 0),
        (repeated_rows, (64, 8), [(64, 1), (2,)], 64),
        (repeated_rows, (64, 8), [(8,), (2,)], 64),
        (repeated_rows, (64, 8), [(64, 8), (2,)], 0),
        (copied_rows, (64, 8), [(64, 4), (64, 4), ()], 128),
        (copied_rows, (64, 6), [(64, 8), (2,), (2,)], 64),
        (copied_rows, (32, 8), [(64, 8), (2,), (2,)], 1),
        (copied_rows, (64, 10), [(64, 8), (2, 2)], 64),
        (copied_rows, (64,), [(64, 8), (2,), (2,)], 0),
        (copied_rows, (-1, 10), [(-1, 8), (2, 2)], 0),
        (summed_rows, (64,), [(64, 8), (1,)], 64),
        (summed_rows, (64, 1), [(64, 8), (1,)], 64),
        (summed_rows, (8,), [(64, 8), (1,)], 0),
        (summed_rows, (4,), [(4, 16, 8), (2,)], 4),
        (summed_rows, (), [(64, 8), (2,)], 0),
        (summed_rows, (64, 8), [(64, 8), (0,)], 0),
        (summed_rows, (-1,), [(-1, 8), (1,)], 0),
        (summed_rows, (64,), [None, (1,)], 0),
        (summed_rows, None, [(64, 8), (1,)], 0),
        (last_rows, (4, 16, 8), [(4, 16, 8)], 64),
        (last_rows, None, [None], 1),
    ],
)
def test_rows_are_counted(
    count: Callable[[OpInfo], int], result: Sizes, inputs: list[Sizes], rows: int
) -> None:
    assert count(info_of(result, *inputs)) == rows


def test_what_cannot_be_costs_nothing_with_rows_either() -> None:
    impossible = on_rows(Formula(lambda _: None), Rows(last_rows, 1))
    assert impossible.work(info_of((4, 8), (4, 8))) is None


def time_ns(node: str, shape: list[int], costs: CostModel) -> int:
    """What a node takes that reads `whole`, of a shape, and `row`, of its last size."""
    graph = parse_graph(
        f"whole = Placeholder() {{dtype=float, shape={shape}}}\n"
        f"row = Placeholder() {{dtype=float, shape={shape[-1:]}}}\n"
        f"node = {node}\n".replace(" ]", "]").replace(", ", ",")
    )
    item = GrapplerItem(to_graph_def(graph), feed=("whole", "row"), fetch=("node",))
    asked = graph.find("node")
    assert asked is not None
    return costs.cost(asked, ANY_CPU, Properties.of(item)).execution_ns


LONG, SHORT = [512, 1024], [65536, 8]
BROADCAST = "Mul(whole, row) {T=float}"


def test_a_row_of_eight_numbers_takes_much_of_the_time_of_a_broadcast() -> None:
    """As measured: twice as long along rows of eight as along long ones, for as many numbers."""
    kernels = KernelCosts()
    assert time_ns(BROADCAST, SHORT, kernels) > 1.5 * time_ns(BROADCAST, LONG, kernels)
    plain = "Mul(whole, whole) {T=float}"
    assert time_ns(plain, SHORT, kernels) == time_ns(plain, LONG, kernels)


def test_grapplers_model_is_as_grappler_has_it() -> None:
    costs = GrapplerCosts()
    assert time_ns(BROADCAST, SHORT, costs) == pytest.approx(
        time_ns(BROADCAST, LONG, costs), rel=0.01
    )
