"""PinSums: sums whose last bits depend on timing, held to what TensorFlow would most likely do."""

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
    from collections.abc import Iterable, Mapping, Sequence

    from memopt.context import Context
    from memopt.graph.graph import Node
    from memopt.graph.rewriter import Rewriter

_Moment = tuple[int, int]
"""A time in ns, and the place among what began before and after."""


@dataclass(frozen=True)
class PinSums(Pass):
    """Hold sums to the order of addition that they have when nobody orders the step.

    AddN adds into the buffer of the first input that nobody else holds, which then comes first in
    the sum (see `accumulation.addition_order`). Where another operation reads that input too, and
    nothing says which of the two runs first, the last bits of the sum depend on timing; and an
    order of execution that is found later would decide it in one way or the other.

    1. Considered is an AddN of more than 2 inputs, no integers, whose order of addition is open.
    2. For each other reader of its inputs' buffers, if no path tells which of them runs first: a
       control edge holds both to the order in which TensorFlow's executor runs the graph as it is,
       on as many threads for operations as it will have. With one thread that is what the step
       computes in exact mode, as far as the executor is modelled: in what order it gets to loops
       and calls is not told exactly. With several it is what it computes where operations take
       about as long as estimated: whoever reads a buffer while the sum runs holds it, as one does
       that comes later.

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
        threads = context.inter_op_threads if step.devices is None else 1
        moments = _moments(step, [node for node, _ in found], threads)
        for node, readers in found:
            ran = [reader for reader in readers if reader in moments]
            if node in moments and ran:
                _pin(rewriter, node, ran, moments, threads)


def _moments(step: Step, sums: Iterable[Node], threads: int) -> dict[Node, _Moment]:
    """When sums begin and when others have ended, of the nodes that run.

    Whoever waits for another in the graph has a later moment, so edges by them close no circle.
    """
    nodes = step.buffer_graph.nodes
    if threads == 1:
        numbers = step.run_freely().sequence
        return {nodes[number]: (place, place) for place, number in enumerate(numbers)}
    run = step.run_on_threads(threads)
    begins = set(sums)
    return {
        nodes[number]: ((run.start_ns if nodes[number] in begins else run.end_ns)[number], place)
        for place, number in enumerate(run.sequence)
    }


def _pin(
    rewriter: Rewriter,
    node: Node,
    readers: Sequence[Node],
    moments: Mapping[Node, _Moment],
    threads: int,
) -> None:
    order = "order of one thread" if threads == 1 else f"likely order of {threads} threads"
    reason = (
        f"its last bits depend on whether it runs before or after {readers[0].name!r}: held to the "
        f"{order}"
    )
    with rewriter.edit(reason):
        for reader in readers:
            first, then = sorted((node, reader), key=moments.__getitem__)
            rewriter.set_control_inputs(then, (*then.control_inputs, first))
