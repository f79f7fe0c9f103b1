"""Pairs of operations that TensorFlow's oneDNN layout pass may merge into one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.graph.graph import Node


def find_fused_pairs(nodes: Sequence[Node]) -> dict[int, int]:
    """The pairs that the layout pass may merge into one node, first to second.

    Conv2D and the BiasAdd that reads it; Conv2DBackpropFilter and the BiasAddGrad of the same
    gradient. The pass (tensorflow/core/common_runtime/mkl_layout_pass.cc) does not look at what is
    ordered between the two: a path from one over another node to the other becomes a cycle, and
    the user's call fails. (A control edge from the one straight to the other does no harm: it goes
    with the node.) A node is in one pair at most.

    Args:
        nodes: All nodes, by number.
    """
    place_of = {node: place for place, node in enumerate(nodes)}
    pairs: dict[int, int] = {}
    taken: set[Node] = set()
    for place, node in enumerate(nodes):
        second = _second(node)
        if second is not None and second not in taken:
            taken.add(second)
            pairs[place] = place_of[second]
    return pairs


def _second(node: Node) -> Node | None:
    if node.op == "Conv2D":
        return _reader(node, 0, "BiasAdd", 0)
    if node.op == "Conv2DBackpropFilter":
        gradient = node.inputs[2]
        return _reader(gradient.node, gradient.port, "BiasAddGrad", 0)
    return None


def _reader(node: Node, port: int, op: str, slot: int) -> Node | None:
    """The first node of an op that reads a tensor at a slot."""
    uses = node.output(port).uses
    return next((user for user, where in uses if user.op == op and where == slot), None)
