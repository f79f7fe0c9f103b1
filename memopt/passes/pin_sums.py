"""PinSums: sums whose last bits depend on timing, held to what a single thread does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memopt.accumulation.addition_order import AdditionOrders
from memopt.accumulation.shared_inputs import find_open_readers
from memopt.graph.op_types import CONTROL_FLOW
from memopt.graph.rewriter import Touches
from memopt.passes.base import Pass
from memopt.sequencing.step import Step

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.graph.graph import Node
    from memopt.graph.rewriter import Rewriter


@dataclass(frozen=True)
class PinSums(Pass):
    """Hold sums to the order of addition that they have when one operation runs at a time.

    AddN adds into the buffer of the first input that nobody else holds, which then comes first in
    the sum (see `accumulation.addition_order`). Where another operation reads that input too, and
    nothing says which of the two runs first, the last bits of the sum depend on timing; and an
    order of execution that is found later would decide it in one way or the other.

    1. Considered is an AddN of more than 2 inputs, no integers, whose order of addition is open.
    2. For each other reader of its inputs' buffers, if no path tells which of them runs first: a
       control edge holds both to the order in which TensorFlow's executor runs the graph as it is,
       with one thread for operations. That is what the step computes in exact mode, as far as the
       executor is modelled: in what order it gets to loops and calls is not told exactly.

    Refused, with a reason in the report: a sum in a graph with control flow of TensorFlow 1, where
    an edge from what does not run would keep the sum from running.
    """

    name: ClassVar[str] = "pin-sums"
    touches: ClassVar[frozenset[Touches]] = frozenset({Touches.CONTROL_EDGES})

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Look at every sum; only where one is open is it found out what runs first."""
        graph = rewriter.graph
        orders = AdditionOrders(graph, context.fetched, context.kept)
        found: list[tuple[Node, list[Node]]] = []
        for node in graph:
            readers = find_open_readers(orders, node, context.properties)
            if readers and node.name not in context.fed:
                found.append((node, readers))
        if not found:
            return
        if any(node.op in CONTROL_FLOW for node in graph):
            for node, _ in found:
                rewriter.decline(node, "its bits depend on timing, beside what may not run")
            return
        step = Step.in_context(graph, context)
        numbers = step.run_freely().sequence
        rank = {step.buffer_graph.nodes[number]: at for at, number in enumerate(numbers)}
        for node, readers in found:
            _pin(rewriter, node, [reader for reader in readers if reader in rank], rank)


def _pin(rewriter: Rewriter, node: Node, readers: list[Node], rank: dict[Node, int]) -> None:
    if node not in rank or not readers:
        return
    reason = (
        f"its last bits depend on whether it runs before or after {readers[0].name!r}: held to the "
        "order of one thread"
    )
    with rewriter.edit(reason):
        for reader in readers:
            first, then = sorted((node, reader), key=rank.__getitem__)
            rewriter.set_control_inputs(then, (*then.control_inputs, first))
