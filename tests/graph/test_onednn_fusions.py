"""Which pairs oneDNN's layout pass may merge: by op, by the tensor read and at which input."""

from __future__ import annotations

import pytest

from memopt.graph.onednn_fusions import find_fused_pairs
from memopt.graph.text import parse_graph

CONVOLUTION = "x = X()\nw = W()\nb = B()\nconv = Conv2D(x, w)\n"
BACKWARD = "x = X()\nsizes = S()\ngrad = G()\nfilter = Conv2DBackpropFilter(x, sizes, grad)\n"


def pairs(text: str) -> set[tuple[str, str]]:
    nodes = list(parse_graph(text))
    found = find_fused_pairs(nodes)
    return {(nodes[first].name, nodes[second].name) for first, second in found.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CONVOLUTION + "sum = BiasAdd(conv, b)", {("conv", "sum")}),
        # Another op reads it before, at the same input.
        (CONVOLUTION + "relu = Relu(conv)\nsum = BiasAdd(conv, b)", {("conv", "sum")}),
        # The right op, but what it reads is its bias; or another output; or only the order.
        (CONVOLUTION + "sum = BiasAdd(x, conv)", set()),
        (CONVOLUTION + "sum = BiasAdd(conv:1, b)", set()),
        (CONVOLUTION + "sum = BiasAdd(x, b, ^conv)", set()),
        (CONVOLUTION + "sum = AddV2(conv, b)", set()),
        # Of two that could, the first; a BiasAdd has one convolution.
        (CONVOLUTION + "one = BiasAdd(conv, b)\nother = BiasAdd(conv, b)", {("conv", "one")}),
        (BACKWARD + "bias = BiasAddGrad(grad)", {("filter", "bias")}),
        (BACKWARD + "relu = ReluGrad(grad, x)\nbias = BiasAddGrad(grad)", {("filter", "bias")}),
        (BACKWARD + "bias = BiasAddGrad(grad:1)", set()),
        # Two filters of one gradient: the first has its BiasAddGrad.
        (
            BACKWARD + "again = Conv2DBackpropFilter(x, sizes, grad)\nbias = BiasAddGrad(grad)",
            {("filter", "bias")},
        ),
    ],
)
def test_pairs(text: str, expected: set[tuple[str, str]]) -> None:
    assert pairs(text) == expected
