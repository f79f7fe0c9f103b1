"""Which sums can be running sums, with the bits that they have now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.passes.sums.accumulators import running_sum_names
from memopt.passes.sums.addition_order import find_addition_order, find_disturbed_sum

if TYPE_CHECKING:
    from collections.abc import Collection

    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.graph.traversal import Numbering

SUMS = frozenset({"AddN", "AccumulateNV2"})
FEWEST_INPUTS = 3
"""Less are added in one step in any case."""


def find_terms(
    graph: Graph, numbering: Numbering, node: Node, fetched: Collection[str]
) -> tuple[Tensor, ...] | str:
    """The inputs of a sum in an order in which running sums have its bits, or why there is none."""
    if node.attributes["T"].type == op_types.DT_VARIANT:
        return "it adds variants, which are no numbers"
    terms = find_addition_order(numbering, node, fetched)
    if terms is None:
        return "the order in which AddN adds depends on what has run already"
    disturbed = find_disturbed_sum(numbering, node)
    if disturbed is not None:
        return f"the order in which {disturbed.name!r} adds could change: it shares an input"
    taken = next((name for name in running_sum_names(node) if name in graph), None)
    return terms if taken is None else f"the name {taken!r} is taken"
