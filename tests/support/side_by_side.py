"""Executions of small graphs in which several operations run at once, as chance has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from memopt.buffers.buffer_graph import BufferGraph

_STARTS = 0.7
"""How often something starts before anything ends, where both can be."""


class Execution:
    """One execution, in which each operation starts and ends whenever it may.

    Those that are dead never run, and a Merge does not wait for them.

    Attributes:
        peak_bytes: The most that was in use.
        most_bytes: By operation: likewise while it ran.
        most_running: How many operations ran at once at most.
        before: By operation those that had ended when it started.
    """

    def __init__(
        self,
        graph: BufferGraph,
        producers: Sequence[Sequence[int]],
        threads: int,
        draw: Random,
        dead: frozenset[int] = frozenset(),
    ) -> None:
        self._graph = graph
        self._producers = [frozenset(before) - dead for before in producers]
        alive = [node for node in range(len(graph.nodes)) if node not in dead]
        self._readers = [
            {node for node in alive if buffer in graph.read[node]}
            for buffer in range(len(graph.size_bytes))
        ]
        self._ended: set[int] = set()
        self._running: set[int] = set()
        self._freed: set[int] = set()
        self._in_use_bytes = self.peak_bytes = graph.held_bytes
        self.most_bytes: dict[int, int] = {}
        self.most_running = 0
        self.before: dict[int, frozenset[int]] = {}
        while len(self._ended) < len(alive):
            ready = [node for node in alive if self._may_start(node)]
            is_full = len(self._running) == threads
            if ready and not is_full and (not self._running or draw.random() < _STARTS):
                self._start(draw.choice(ready))
            else:
                self._end(draw.choice(sorted(self._running)))

    def _may_start(self, node: int) -> bool:
        is_new = node not in self._ended and node not in self._running
        return is_new and self._ended.issuperset(self._producers[node])

    def _start(self, node: int) -> None:
        graph = self._graph
        self._running.add(node)
        self.before[node] = frozenset(self._ended)
        self.most_running = max(self.most_running, len(self._running))
        for buffer in graph.made[node]:
            source = next((s for s in graph.reusable[buffer] if self._is_only_for(s, node)), None)
            if source is None:
                self._in_use_bytes += graph.size_bytes[buffer]
            else:
                self._freed.add(source)
        self._in_use_bytes += graph.scratch_bytes[node]
        self.peak_bytes = max(self.peak_bytes, self._in_use_bytes)
        for each in self._running:
            self.most_bytes[each] = max(self.most_bytes.get(each, 0), self._in_use_bytes)

    def _is_only_for(self, buffer: int, node: int) -> bool:
        others = self._readers[buffer] - {node}
        is_there = buffer not in self._freed and not self._graph.lasting[buffer]
        return is_there and self._ended.issuperset(others)

    def _end(self, node: int) -> None:
        graph = self._graph
        self._running.remove(node)
        self._ended.add(node)
        self._in_use_bytes -= graph.scratch_bytes[node]
        for buffer in {*graph.read[node], *graph.made[node]}:
            is_last = self._ended.issuperset(self._readers[buffer])
            if is_last and not graph.lasting[buffer] and buffer not in self._freed:
                self._freed.add(buffer)
                self._in_use_bytes -= graph.size_bytes[buffer]
