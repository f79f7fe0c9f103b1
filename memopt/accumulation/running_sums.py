"""Which sums can be running sums, with the bits that they have now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.accumulation.accumulators import running_sum_names
from memopt.accumulation.shared_inputs import find_disturbed_sum
from memopt.graph import op_types

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memopt.accumulation.addition_order import AdditionOrders
    from memopt.context import Context
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.shapes.properties import Properties

_SUMS = frozenset({"AddN", "AccumulateNV2"})
_FEWEST_INPUTS = 3
"""Less are added in one step in any case."""


def is_divisible(node: Node) -> bool:
    """Whether a node is a sum whose inputs could be added one by one."""
    return node.op in _SUMS and len(node.inputs) >= _FEWEST_INPUTS


def find_fixed_use(node: Node, context: Context) -> str | None:
    """Why a sum has to stay because of what the caller does with it; `None` if it has not."""
    if node.name in context.fed:
        return "it is fed, so nothing is added"
    if node.name in context.kept:
        return "it has to stay as it is"
    return None


def find_taken_name(graph: Graph, names: Iterable[str]) -> str | None:
    """Why nodes of such names cannot be added; `None` if they can."""
    taken = next((name for name in names if name in graph), None)
    return None if taken is None else f"the name {taken!r} is taken"


def find_terms(
    graph: Graph, orders: AdditionOrders, node: Node, properties: Properties
) -> tuple[Tensor, ...] | str:
    """The inputs of a sum in an order in which running sums have its bits, or why there is none."""
    if node.attributes["T"].type == op_types.DT_VARIANT:
        return "it adds variants, which are no numbers"
    terms = orders.order(node)
    if terms is None:
        return "the order in which AddN adds depends on what has run already"
    disturbed = find_disturbed_sum(orders.numbering, node, properties)
    if disturbed is not None:
        return f"the order in which {disturbed.name!r} adds could change: it shares an input"
    return find_taken_name(graph, running_sum_names(node)) or terms
