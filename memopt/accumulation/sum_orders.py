"""Keeps the orders in which sums are added while a graph is rewritten: the same bits after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.accumulation.accumulators import add_running_sums, running_sum_names
from memopt.accumulation.addition_order import AdditionOrders, has_order, take_slot
from memopt.accumulation.running_sums import find_taken_name
from memopt.accumulation.shared_inputs import find_shared_inputs
from memopt.errors import PassError
from memopt.graph.copy_names import COPY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memopt.context import Context
    from memopt.graph.graph import Graph, Node
    from memopt.graph.rewriter import Rewriter

_PINNED = "its inputs are added one by one: now others would be free, in whose order it would add"


class SumOrders:
    """The orders in which the sums of a graph are added before a rewrite, and after it.

    Ask what may be touched, rewrite, then `keep`.

    Args:
        graph: The graph before the rewrite.
        context: What the pass knows.
        is_kept: Whether they are to be kept; if not, nothing is refused and nothing split.
    """

    def __init__(self, graph: Graph, context: Context, *, is_kept: bool = True) -> None:
        self._graph = graph
        self._context = context
        self._slots = _taken_slots(graph, context) if is_kept else {}
        self._by_maker: dict[Node, list[Node]] = {}
        self._by_reader: dict[Node, list[Node]] = {}
        for shared in find_shared_inputs(self._slots, context.properties):
            for node in shared.makers:
                self._by_maker.setdefault(node, []).extend(shared.sums)
            for node in shared.readers:
                self._by_reader.setdefault(node, []).extend(shared.sums)

    def why_not_moved(self, node: Node) -> str | None:
        """Why readers of what a node makes must not get a copy, or `None`."""
        return self._why_not(self._by_maker.get(node, ()))

    def why_not_again(self, node: Node) -> str | None:
        """Why a node must not run a second time, or `None`."""
        own = (node,) if node in self._slots else ()
        near = (*self._by_maker.get(node, ()), *self._by_reader.get(node, ()))
        return self._why_not((*own, *near))

    def keep(self, rewriter: Rewriter) -> None:
        """Let every sum, and every copy of one, add in the order in which it did before.

        Where that no longer follows from what is free, it becomes AddNs of two inputs in a row.

        Raises:
            PassError: A name that is needed for that is taken.
        """
        while changed := list(self._changed()):
            for node, slot in changed:
                self._split(rewriter, node, slot)

    def _why_not(self, sums: Iterable[Node]) -> str | None:
        """The order of one that depends on timing is not known, so it cannot be kept."""
        for node in sums:
            if self._slots[node] is None:
                return f"the order in which {node.name!r} adds could change"
        return None

    def _changed(self) -> Iterator[tuple[Node, int]]:
        """The sums that now add in another order than before, and the slot that they took over."""
        if not self._slots:
            return
        orders = _orders(self._graph, self._context)
        for before, slot in self._slots.items():
            if slot is None:
                continue
            for name in (before.name, COPY_PREFIX + before.name):
                node = self._graph.find(name)
                if node is None or not has_order(node) or len(node.inputs) != len(before.inputs):
                    continue
                if orders.taken_slot(node) != slot:
                    yield node, slot

    def _split(self, rewriter: Rewriter, node: Node, slot: int) -> None:
        taken = find_taken_name(self._graph, running_sum_names(node))
        if taken is not None:
            raise PassError(f"{node.name!r} would add in another order, and {taken}")
        known = self._context.properties.outputs(node.name)
        with rewriter.edit(_PINNED, holds=[node.output()]):
            added = add_running_sums(rewriter, node, take_slot(node.inputs, slot))
        for new in added:
            self._context.properties.add(new.name, known)


def _taken_slots(graph: Graph, context: Context) -> dict[Node, int | None]:
    """By sum the slot of the input whose buffer it takes over; `None` where that is not certain."""
    sums = [node for node in graph if has_order(node) and node.name not in context.fed]
    if not sums:
        return {}
    orders = _orders(graph, context)
    return {node: orders.taken_slot(node) for node in sums}


def _orders(graph: Graph, context: Context) -> AdditionOrders:
    return AdditionOrders(graph, context.fetched, context.kept)
