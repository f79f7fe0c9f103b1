"""The list sequence: of the nodes that can run, always the one that frees the most bytes.

XLA's `ListMemoryScheduler` (xla/service/hlo_memory_scheduler.cc).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.sequencing.precedence import Precedence

LARGEST_SCALAR_BYTES = 8
"""A result of at most so many bytes counts as one number; BufferGraphs do not know shapes."""

_CALLS = frozenset(
    "PartitionedCall StatefulPartitionedCall While StatelessWhile If StatelessIf Case "
    "StatelessCase SymbolicGradient For".split()
)


def list_sequence(buffer_graph: BufferGraph, precedence: Precedence) -> list[int]:
    """Greedily the node next after which the fewest bytes are live.

    1. The priority of a node that can run is what it frees (the buffers of which it is the last
       reader) minus what it makes, in bytes; then the number of nodes that wait for it. Scalars
       come before everything else, so that they stay together.
    2. Of equal priorities the one goes first that got its priority last.
    3. What lasts is never freed. What is there before the step counts for nothing, but for the
       old value of a variable, which goes when it is replaced.
    4. Memory that a called function needs while it runs counts as made, and not beside the
       result, which is part of it; scratch memory of other kernels is not looked at.

    A heap with a new entry for each change of priority: there are as many changes as buffers, so
    the time is near-linear. (In XLA a change is noticed only by nodes that read an operand of the
    one that ran; here by the last reader, whoever it is.)
    """
    return _ListSequencer(buffer_graph, precedence).run()


class _ListSequencer:
    def __init__(self, buffer_graph: BufferGraph, precedence: Precedence) -> None:
        self._graph = buffer_graph
        self._precedence = precedence
        self._waiting = [len(producers) for producers in precedence.producers]
        self._readers_left = [0] * len(buffer_graph.size_bytes)
        # The sum of their numbers: when one is left, it is that one's.
        self._reader_sum = [0] * len(buffer_graph.size_bytes)
        for node in precedence.program:
            for buffer in buffer_graph.read[node]:
                self._readers_left[buffer] += 1
                self._reader_sum[buffer] += node
        self._is_scalar = [False] * len(buffer_graph.nodes)
        self._freed_bytes = self._first_priorities()
        self._heap: list[tuple[int, int, int, int]] = []
        self._valid = [0] * len(buffer_graph.nodes)
        self._stamp = 0

    def run(self) -> list[int]:
        for node in self._precedence.program:
            if not self._waiting[node]:
                self._push(node)
        sequence: list[int] = []
        while self._heap:
            stamp, node = heappop(self._heap)[2:]
            if self._valid[node] == -stamp:
                self._valid[node] = 0
                sequence.append(node)
                self._finish(node)
        return sequence

    def _first_priorities(self) -> list[int]:
        graph = self._graph
        priorities = [0] * len(graph.nodes)
        for node in self._precedence.program:
            made_bytes = sum(graph.size_bytes[buffer] for buffer in graph.made[node])
            self._is_scalar[node] = 0 < made_bytes <= LARGEST_SCALAR_BYTES * len(graph.made[node])
            if graph.nodes[node].op in _CALLS:
                made_bytes = max(graph.scratch_bytes[node], made_bytes)
            priorities[node] = self._last_reads(node) - made_bytes
        return priorities

    def _last_reads(self, node: int) -> int:
        """The bytes that only this node still reads."""
        graph = self._graph
        return sum(
            graph.size_bytes[buffer]
            for buffer in graph.read[node]
            if self._readers_left[buffer] == 1 and not graph.lasting[buffer]
        )

    def _push(self, node: int) -> None:
        """Enter a node that can run, or one whose priority has changed."""
        self._stamp += 1
        self._valid[node] = self._stamp
        freed_bytes, users = -self._freed_bytes[node], -len(self._precedence.users[node])
        if self._is_scalar[node]:
            freed_bytes = users = -(1 << 62)
        heappush(self._heap, (freed_bytes, users, -self._stamp, node))

    def _finish(self, node: int) -> None:
        graph = self._graph
        changed: list[int] = []
        for buffer in graph.read[node]:
            self._readers_left[buffer] -= 1
            self._reader_sum[buffer] -= node
            if self._readers_left[buffer] == 1 and not graph.lasting[buffer]:
                last = self._reader_sum[buffer]
                self._freed_bytes[last] += graph.size_bytes[buffer]
                if self._valid[last]:
                    changed.append(last)
        for user in self._precedence.users[node]:
            self._waiting[user] -= 1
            if not self._waiting[user]:
                self._push(user)
        for last in dict.fromkeys(changed):
            if not self._is_scalar[last]:
                self._push(last)
