"""Which results of a step are in memory if XLA compiles it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memopt.buffers.assignment import buffer_graph_of
from memopt.buffers.compiled_buffers import compiled_buffers
from memopt.graph.text import parse_graph
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import TensorProperties

if TYPE_CHECKING:
    from memopt.buffers.buffer_graph import BufferGraph

FLOAT, INT, SIZE, FOUR_BYTES = 1, 3, 64, 16
BYTES = SIZE * SIZE * 4

HEAD = """
x = Placeholder() {dtype=float}
w = Placeholder() {dtype=float}
product = MatMul(x, w) {T=float}
"""


def buffers_of(rest: str, *fetched: str, copies_late: bool = False) -> BufferGraph:
    """What a step holds whose results are all as large, but for constants, if XLA compiles it."""
    graph = parse_graph(HEAD + rest)
    square = (TensorProperties(FLOAT, (SIZE, SIZE), BYTES),)
    four = (TensorProperties(INT, (4,), FOUR_BYTES),)
    properties = Properties.given(
        {node.name: four if node.op == "Const" else square for node in graph}
    )
    buffers = buffer_graph_of(graph, properties, fed=("x:0", "w:0"), fetched=fetched)
    return compiled_buffers(buffers, copies_late=copies_late)


def in_memory(rest: str, *fetched: str) -> dict[str, int]:
    """By node that makes something in memory: its bytes."""
    buffers = buffers_of(rest, *fetched)
    return {
        node.name: sum(buffers.size_bytes[buffer] for buffer in made)
        for node, made in zip(buffers.nodes, buffers.made, strict=True)
        if made
    }


@pytest.mark.parametrize(
    ("rest", "kept"),
    [
        # Cheap, and computed by those that read it.
        (
            """
            relu = Relu(product) {T=float}
            negative = Neg(relu) {T=float}
            sum = AddV2(relu, negative) {T=float}
            """,
            {"product", "sum"},
        ),
        # A kernel reads memory.
        (
            """
            relu = Relu(product) {T=float}
            sum = MatMul(relu, w) {T=float}
            """,
            {"product", "relu", "sum"},
        ),
        # Costly, and read by one kernel.
        (
            """
            power = Exp(product) {T=float}
            sum = Neg(power) {T=float}
            """,
            {"product", "sum"},
        ),
        # Costly, and read by several.
        (
            """
            power = Exp(product) {T=float}
            one = Neg(power) {T=float}
            sum = MatMul(one, power) {T=float}
            """,
            {"product", "power", "one", "sum"},
        ),
    ],
)
def test_results_are_in_memory_or_part_of_kernels(rest: str, kept: set[str]) -> None:
    found = in_memory(rest, "sum:0")
    assert set(found) == kept
    assert set(found.values()) == {BYTES}


COPIED = """
relu = Relu(product) {T=float}
sizes = Const() {dtype=int32}
next = Conv2D(relu, w) {T=float, padding="SAME"}
gradient = ReluGrad(next, relu) {T=float}
filter = Conv2DBackpropFilter(relu, sizes, gradient) {T=float, padding="SAME"}
"""


@pytest.mark.parametrize("copies_late", [False, True])
def test_filters_gradients_compute_what_they_copy_late(*, copies_late: bool) -> None:
    """Then they hold copies of both operands, and read what these are made of."""
    buffers = buffers_of(COPIED, "filter:0", copies_late=copies_late)
    number = {node.name: place for place, node in enumerate(buffers.nodes)}
    scratch = dict.fromkeys(number, 0) | ({"filter": 2 * BYTES + FOUR_BYTES} if copies_late else {})
    assert buffers.scratch_bytes == [scratch[node.name] for node in buffers.nodes]
    made = {node.name for node, found in zip(buffers.nodes, buffers.made, strict=True) if found}
    assert ("gradient" in made) == (not copies_late)
    assert "relu" in made
