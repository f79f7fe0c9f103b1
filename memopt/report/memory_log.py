"""The memory log: what is in use at each operation of a step, and what could be recomputed.

As `--xla_rematerialization_dump_memlog` of Microsoft's rematerialization for XLA.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from memopt.rematerialization.rewriting.eligibility import can_run_twice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.graph.graph import FunctionLibrary

HEADER = "position\tin use (bytes)\tpeak so far (bytes)\toperation\tlargest recomputable\tbytes"


def memory_log_lines(
    timeline: MemoryTimeline, library: FunctionLibrary | None = None
) -> Iterator[str]:
    """A header, and a line for each operation, with tabs between the columns.

    The last two columns name the operation that made the largest buffer in use that could be
    recomputed instead of being kept, "-" if there is none.

    Args:
        timeline: The step.
        library: The functions of its graph.
    """
    graph = timeline.buffer_graph
    largest = _Largest(timeline, library)
    yield HEADER
    peak_bytes = 0
    for position, node in enumerate(timeline.sequence):
        in_use_bytes = timeline.usage_bytes[position]
        peak_bytes = max(peak_bytes, in_use_bytes)
        name, size_bytes = largest.at(position)
        yield (
            f"{position}\t{in_use_bytes}\t{peak_bytes}\t{graph.nodes[node].name}"
            f"\t{name}\t{size_bytes}"
        )


class _Largest:
    """The largest buffer that is live and could be recomputed; asked for position by position."""

    def __init__(self, timeline: MemoryTimeline, library: FunctionLibrary | None) -> None:
        self._timeline = timeline
        self._library = library
        self._live: list[tuple[int, int, int]] = []

    def at(self, position: int) -> tuple[str, int]:
        """Its maker's name and its size in bytes."""
        timeline, graph = self._timeline, self._timeline.buffer_graph
        node = timeline.sequence[position]
        if can_run_twice(graph.nodes[node], self._library):
            for buffer in graph.made[node]:
                if not graph.lasting[buffer]:
                    heappush(self._live, (-graph.size_bytes[buffer], buffer, node))
        while self._live and timeline.last_position[self._live[0][1]] < position:
            heappop(self._live)
        if not self._live:
            return "-", 0
        size_bytes, _, maker = self._live[0]
        return graph.nodes[maker].name, -size_bytes
