"""What an algorithm makes of a sequence: copies, what runs no more, what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.rematerialization.instructions import Instructions


class Rematerialized(NamedTuple):
    """A sequence with copies in it, and with what stores results in other forms.

    Attributes:
        instructions: Nodes, copies and conversions, and who reads from whom.
        sequence: The instructions that run, in order.
        removed: Nodes that do not run any more, since all their readers got copies.
        peak_bytes: The most that is in use at any time by the walk's own count, which is never less
            than what is simulated.
        block_count: How many times something was recomputed or stored.
    """

    instructions: Instructions
    sequence: list[int]
    removed: list[int]
    peak_bytes: int
    block_count: int

    @property
    def copies(self) -> list[int]:
        """The copies of nodes that run, as they are numbered: producers first."""
        table, gone = self.instructions, frozenset(self.removed)
        first = len(table.network.buffer_graph.nodes)
        return [
            copy
            for copy in range(first, len(table.origin))
            if copy not in gone and copy not in table.conversions
        ]

    @property
    def stored(self) -> list[int]:
        """The instructions that run and store a result, in the order in which they came about."""
        gone = frozenset(self.removed)
        found = self.instructions.conversions.items()
        return [i for i, conversion in found if i not in gone and not conversion.restores]

    @property
    def added_weight(self) -> int:
        """What the copies and conversions cost, less what does not run any more."""
        table = self.instructions
        first = len(table.network.buffer_graph.nodes)
        added = sum(
            table.weight(instruction) for instruction in self.sequence if instruction >= first
        )
        return added - sum(table.weight(node) for node in self.removed if node < first)

    @property
    def buffer_graph(self) -> BufferGraph:
        """The graph with the copies, as numbers: what `simulate` needs."""
        return self.instructions.buffer_graph(self.removed)
