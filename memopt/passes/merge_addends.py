"""MergeAddends: equal addends of a sum made one, as TensorFlow makes them when it runs a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memopt.accumulation.shared_inputs import find_added
from memopt.graph.removal import Removal
from memopt.graph.rewriter import Touches
from memopt.graph.value_numbers import find_equal
from memopt.passes.base import Pass

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memopt.context import Context
    from memopt.graph.graph import Node
    from memopt.graph.rewriter import Rewriter


@dataclass(frozen=True)
class MergeAddends(Pass):
    """Make equal operations one where a sum reads them, so that its bits stay what they are.

    Before TensorFlow runs a graph it makes one of operations that compute the same (see
    `graph.value_numbers`), unless they wait for different ones; those that are put in order do.
    AddN adds into the buffer of the first input that nobody else reads, so to part what TensorFlow
    would have merged can change the last bits of a sum: one that reads `-x` twice as two operations
    takes over the first, and as one operation takes over another input.

    1. Considered are operations whose results' buffers an AddN of more than 2 inputs adds, no
       integers, and which are equal to others.
    2. All who read one of the others, or wait for it, read the first of them instead. The others
       go, but for those by whose names operations are placed.

    Refused, with a reason in the report: to take out what is fed, fetched or kept.
    """

    name: ClassVar[str] = "merge-addends"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {Touches.NODES, Touches.DATA_EDGES, Touches.CONTROL_EDGES}
    )

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Look for equal ones only where there is a sum whose order counts."""
        graph = rewriter.graph
        added = {tensor.node for tensor in find_added(graph, context.properties)}
        if not added:
            return
        removal = Removal(graph, fetched=context.fetched, named=context.named)
        for group in find_equal(graph, context.fed):
            if added.isdisjoint(group):
                continue
            _merge(rewriter, context.named, group, removal)


def _merge(
    rewriter: Rewriter, names: Collection[str], group: Sequence[Node], removal: Removal
) -> None:
    first = next((node for node in group if node.name in names), group[0])
    for node in group:
        if node is first:
            continue
        if node.name in names:
            rewriter.decline(node, f"it computes what {first.name!r} does, but has to stay")
            continue
        with rewriter.edit(f"it computes what {first.name!r} does, and a sum reads it"):
            for output in node.outputs:
                rewriter.replace_uses(output, first.output(output.port))
            rewriter.replace_waits(node, first)
            if removal.can_remove(node):
                rewriter.remove_node(node)
