"""Running sums: what a large sum adds need not wait for the last of its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memopt.accumulation.accumulators import add_running_sums
from memopt.accumulation.addition_order import AdditionOrders
from memopt.accumulation.early_reads import find_missed_update
from memopt.accumulation.running_sums import find_fixed_use, find_terms, is_divisible
from memopt.errors import OptionsError
from memopt.graph.rewriter import Touches
from memopt.passes.base import Pass

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.graph.rewriter import Rewriter


@dataclass(frozen=True)
class RunningSums(Pass):
    """Add the inputs of sums one by one, with the bits of the AddN, so that a plan can free them.

    1. Considered is an AddN or AccumulateNV2 with more than 2 inputs which together take at least
       a part of the budget; without a budget, every one.
    2. It becomes AddNs of two inputs in a row, in the order in which its kernel adds, as in
       `AddnScheduling`; each puts its result where the one before was. In the same order of
       operations that never needs more memory, but for one buffer where there are more than 9
       inputs, and an order can be found in which inputs are freed before the last one is made.

    Unlike `AddnScheduling` it looks at no simulation of devices: what lives when is up to what
    comes after it, an order or a plan.

    Refused, with a reason in the report: a sum that is fed or has to stay as it is called; one
    whose order of addition depends on timing, or whose splitting could change that of another; one
    that reads v1 reference variables which may be updated before it is complete; variants; a name
    that is taken.
    """

    name: ClassVar[str] = "running-sums"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {Touches.NODES, Touches.DATA_EDGES, Touches.ATTRIBUTES, Touches.OPS}
    )

    smallest_part: int = 100
    """Into how many parts the budget is divided: what a sum's inputs take is at least one."""

    def __post_init__(self) -> None:
        if self.smallest_part < 1:
            raise OptionsError(f"{self.name}: smallest_part is {self.smallest_part}, less than 1")

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Look at every large sum, then split those that can be."""
        least_bytes = context.budget_bytes // self.smallest_part
        found = [node for node in rewriter.graph if _is_large(node, context, least_bytes)]
        if not found:
            return
        orders = AdditionOrders(rewriter.graph, context.fetched, context.kept)
        plans: list[tuple[Node, tuple[Tensor, ...]]] = []
        for node in found:
            terms = _find_terms(rewriter.graph, orders, node, context)
            if isinstance(terms, str):
                rewriter.decline(node, terms)
            else:
                plans.append((node, terms))
        for node, terms in plans:
            _split(rewriter, context, node, terms)


def _find_terms(
    graph: Graph, orders: AdditionOrders, node: Node, context: Context
) -> tuple[Tensor, ...] | str:
    """What to add in which order, or why not."""
    fixed = find_fixed_use(node, context)
    if fixed is not None:
        return fixed
    terms = find_terms(graph, orders, node, context.properties)
    if isinstance(terms, str):
        return terms
    # All writers may run: there is no simulation that says which do.
    return find_missed_update(graph, orders.numbering, lambda _: True, node) or terms


def _is_large(node: Node, context: Context, least_bytes: int) -> bool:
    if not is_divisible(node):
        return False
    sizes = (context.properties.size_bytes(tensor.name) for tensor in dict.fromkeys(node.inputs))
    return sum(size or 0 for size in sizes) >= least_bytes


def _split(rewriter: Rewriter, context: Context, node: Node, terms: tuple[Tensor, ...]) -> None:
    known = context.properties.outputs(node.name)
    reason = f"{len(terms)} inputs added one by one, so that they can be freed as they are added"
    with rewriter.edit(reason, holds=[node.output()]):
        added = add_running_sums(rewriter, node, terms)
    for new in added:
        context.properties.add(new.name, known)
