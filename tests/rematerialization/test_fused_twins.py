"""Results that kernels compute for themselves, as operations of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memopt.context import Context
from memopt.graph.rewriter import Rewriter
from memopt.graph.text import parse_graph
from memopt.rematerialization.rewriting.fused_twins import TWIN_PREFIX, add_fused_twins
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import TensorProperties

if TYPE_CHECKING:
    from memopt.graph.graph import Graph

FLOAT, SIZE = 1, 64
SQUARE = (TensorProperties(FLOAT, (SIZE, SIZE), SIZE * SIZE * 4),)
HEAD = """
x = Placeholder() {dtype=float}
w = Placeholder() {dtype=float}
s = Placeholder() {dtype=int32}
product = MatMul(x, w) {T=float}
relu = Relu(product) {T=float}
"""


def with_twins(rest: str, *kept: str) -> tuple[Graph, int]:
    """A graph with a twin of each result of which one is needed, and how many there are."""
    graph = parse_graph(HEAD + rest)
    context = Context(Properties.given({node.name: SQUARE for node in graph}))
    rewriter = Rewriter(graph)
    tensors = [graph[name].output(0) for name in kept]
    with rewriter.edit("twins"):
        count = add_fused_twins(rewriter, context, tensors)
    return graph, count


def read_by(graph: Graph, name: str) -> set[str]:
    return {user.name for user, _ in graph[name].output(0).uses}


def test_who_computes_a_result_for_itself_reads_the_twin() -> None:
    graph, count = with_twins(
        """
        next = MatMul(relu, w) {T=float}
        gradient = ReluGrad(next, relu) {T=float}
        """
    )
    assert count == 1
    twin = graph[TWIN_PREFIX + "relu"]
    assert (twin.op, [tensor.name for tensor in twin.inputs]) == ("Relu", ["product:0"])
    assert read_by(graph, "relu") == {"next"}
    assert read_by(graph, twin.name) == {"gradient"}


def test_a_twin_reads_the_twin_of_what_it_is_made_of() -> None:
    graph, count = with_twins(
        """
        one = MatMul(relu, w) {T=float}
        scaled = Mul(relu, w) {T=float}
        two = MatMul(scaled, one) {T=float}
        gradient = ReluGrad(two, scaled) {T=float}
        """
    )
    assert count == 2
    twin = graph[TWIN_PREFIX + "scaled"]
    assert twin.inputs[0].node.name == TWIN_PREFIX + "relu"
    assert graph["scaled"].inputs[0].node.name == TWIN_PREFIX + "relu"


def test_a_view_is_part_of_who_reads_it() -> None:
    graph, count = with_twins(
        """
        seen = Identity(relu) {T=float}
        next = MatMul(seen, w) {T=float}
        other = Identity(relu) {T=float}
        gradient = ReluGrad(next, other) {T=float}
        """
    )
    assert count == 1
    assert read_by(graph, "relu") == {"seen"}
    assert read_by(graph, TWIN_PREFIX + "relu") == {"other"}


@pytest.mark.parametrize(
    "rest",
    [
        # Only kernels read it in memory, or only others.
        "next = MatMul(relu, relu) {T=float}",
        "gradient = ReluGrad(product, relu) {T=float}",
        # Costly, so XLA computes it once.
        """
        power = Exp(product) {T=float}
        next = MatMul(power, w) {T=float}
        gradient = Mul(next, power) {T=float}
        """,
        # Both read the same view.
        """
        seen = Identity(relu) {T=float}
        next = MatMul(seen, w) {T=float}
        gradient = ReluGrad(next, seen) {T=float}
        """,
    ],
)
def test_what_all_of_its_readers_read_alike_has_none(rest: str) -> None:
    assert with_twins(rest)[1] == 0


def test_what_is_kept_has_none() -> None:
    rest = """
    next = MatMul(relu, w) {T=float}
    gradient = ReluGrad(next, relu) {T=float}
    """
    assert with_twins(rest, "relu")[1] == 0


def test_what_convolutions_copy_they_compute() -> None:
    graph, count = with_twins(
        """
        next = Conv2D(relu, w) {T=float}
        filter = Conv2DBackpropFilter(relu, s, next) {T=float}
        """
    )
    assert count == 1
    assert read_by(graph, TWIN_PREFIX + "relu") == {"filter"}
