"""Which tensors of a graph may be swapped, who may read a copy, and who may wait: the improved way.

Stricter than Grappler where a swap could not save memory in a real step, or could change what the
step computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.accumulation.sum_orders import SumOrders
from memopt.graph import op_types
from memopt.swapping.candidates import (
    SHARES_REFERENCE,
    reads_value,
    shares_reference,
    why_not_swappable,
)
from memopt.swapping.ops import is_swap
from memopt.swapping.triggers import BORDERS

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.swapping.ops import Swapper


class Eligibility:
    """Answers once per tensor and node, however often a graph is swapped in.

    1. A tensor may be swapped if the step makes it in any case, it does not last beyond the step,
       the caller neither gives nor keeps it, its bytes can be copied, and no sum is added in an
       order that follows from who reads it.
    2. A node may be told to wait, or be waited for, if it runs in every step. So nothing that lies
       behind a Switch, a Merge or the border of a loop's frame takes part, and nothing that is fed.
    """

    def __init__(self, graph: Graph, context: Context, swapper: Swapper) -> None:
        self._context = context
        self._swapper = swapper
        self._conditional = conditional_nodes(graph)
        self.sum_orders = SumOrders(graph, context)
        self._tensors: dict[Tensor, str | None] = {}
        self._nodes: dict[Node, bool] = {}
        self._readers: dict[tuple[Node, int], bool] = {}

    def why_not(self, tensor: Tensor) -> str | None:
        """Why a tensor cannot be swapped, or cannot again, or `None`."""
        if any(is_swap(reader) for reader, _ in tensor.uses):
            return "is swapped already"
        if tensor not in self._tensors:
            self._tensors[tensor] = self._find_why_not(tensor)
        return self._tensors[tensor]

    def may_trigger(self, node: Node) -> bool:
        """Whether a node runs in every step, and may wait or be waited for."""
        known = self._nodes.get(node)
        if known is None:
            known = (
                node not in self._conditional
                and node.name not in self._context.fed
                and not is_swap(node)
            )
            self._nodes[node] = known
        return known

    def can_read_copy(self, reader: Node, slot: int) -> bool:
        """Whether a reader may read a copy at an input."""
        known = self._readers.get((reader, slot))
        if known is None:
            known = self.may_trigger(reader) and reads_value(reader, slot)
            self._readers[reader, slot] = known
        return known

    def _find_why_not(self, tensor: Tensor) -> str | None:
        node, context = tensor.node, self._context
        reason = None
        if is_swap(node):
            reason = "is a copy"
        elif node.name in context.fed:
            reason = "is given by the caller, who keeps it"
        elif node.name in context.fetched:
            reason = "is asked for by the caller, who keeps it"
        elif node in self._conditional:
            reason = "may not be computed: it comes from a Switch or a loop"
        reason = reason or why_not_swappable(tensor)
        if reason is None and shares_reference(tensor):
            reason = SHARES_REFERENCE
        reason = reason or self.sum_orders.why_not_moved(node)
        if reason is not None:
            return reason
        return self._swapper.why_not(op_types.port_types(node).outputs[tensor.port])


def conditional_nodes(graph: Graph) -> frozenset[Node]:
    """What lies behind a Switch, a Merge or the border of a loop's frame: it may not run."""
    found = {node: None for node in graph if node.op in BORDERS}
    pending = list(found)
    while pending:
        for user in pending.pop().users:
            if user not in found:
                found[user] = None
                pending.append(user)
    return frozenset(found)
