"""Which results of a step are in memory if XLA compiles it."""

from __future__ import annotations

import pytest

from memopt.buffers.assignment import buffer_graph_of
from memopt.buffers.compiled_buffers import compiled_buffers
from memopt.graph.text import parse_graph
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import TensorProperties

FLOAT, SIZE = 1, 64
BYTES = SIZE * SIZE * 4

HEAD = """
x = Placeholder() {dtype=float}
w = Placeholder() {dtype=float}
product = MatMul(x, w) {T=float}
"""


def in_memory(rest: str, *fetched: str) -> dict[str, int]:
    """By node that makes something in memory: its bytes."""
    graph = parse_graph(HEAD + rest)
    square = (TensorProperties(FLOAT, (SIZE, SIZE), BYTES),)
    properties = Properties.given({node.name: square for node in graph})
    buffers = compiled_buffers(
        buffer_graph_of(graph, properties, fed=("x:0", "w:0"), fetched=fetched)
    )
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
