"""What must run before what: a graph's edges, and the order of operations on the same state."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from memopt.graph.traversal import Numbering
from memopt.sequencing.frames import find_loop_entries
from memopt.sequencing.meetings import find_meetings
from memopt.sequencing.state import find_state_order

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.graph.graph import Graph, Node


class Precedence:
    """Which nodes run, and what comes before each of them in any case; nodes are numbers.

    Args:
        producers: By node: those that come before it. There is no cycle.
        running: The nodes that run; all if not given. What comes before one of them runs too.

    Attributes:
        producers: By node: those that come before it, each once; empty for a node that does not
            run.
        users: By node: those that come after it, ascending, each once.
        program: The nodes that run, producers first, otherwise by number.
    """

    __slots__ = ("producers", "program", "users")

    def __init__(
        self, producers: Sequence[Sequence[int]], running: Collection[int] | None = None
    ) -> None:
        kept = range(len(producers)) if running is None else sorted(running)
        self.producers: list[list[int]] = [[] for _ in producers]
        self.users: list[list[int]] = [[] for _ in producers]
        for node in kept:
            self.producers[node] = list(dict.fromkeys(producers[node]))
            for producer in self.producers[node]:
                self.users[producer].append(node)
        self.program: list[int] = self._sort(kept, range(len(producers)))

    @classmethod
    def of(
        cls, graph: Graph, buffer_graph: BufferGraph, fetched: Collection[str] = ()
    ) -> Precedence:
        """The precedence of a graph's step.

        Beside data and control edges, operations on the same variable keep the order that they
        have in the program where one of them writes, and so do random and other stateful
        operations among each other, even where no edge says so. What enters a loop comes before
        all that leaves it, and collectives that meet before what any of them gives.

        Args:
            graph: The graph.
            buffer_graph: The same in numbers.
            fetched: Names of the nodes that are asked for; what does not lead to them does not run.
                Without any, everything runs.
        """
        runs = Numbering.of(graph).running_for(fetched)
        extended = [list(before) for before in buffer_graph.producers]
        for enter, condition in find_loop_entries(buffer_graph.nodes):
            if runs[enter]:
                extended[condition].append(enter)
        by_edges = cls(extended, [place for place, it_runs in enumerate(runs) if it_runs])
        met = by_edges.with_meetings(buffer_graph.nodes)
        if met is not by_edges:
            extended = [list(before) for before in met.producers]
        for before, after in find_state_order(graph, buffer_graph.nodes, met.program):
            extended[after].append(before)
        return cls(extended, met.program)

    def with_meetings(self, nodes: Sequence[Node]) -> Precedence:
        """The same where what waits for one collective waits for those that it meets.

        Itself where there are none, or where they do not meet as it seems.
        """
        meetings = list(find_meetings(nodes, self.program))
        if not meetings:
            return self
        met = self.with_pairs(meetings)
        return self if met is None else met

    def with_pairs(self, pairs: Iterable[tuple[int, int]]) -> Precedence | None:
        """The same where of further pairs one node comes before the other; `None` if it cannot."""
        extended = [list(before) for before in self.producers]
        for before, after in pairs:
            extended[after].append(before)
        met = Precedence(extended, self.program)
        return met if len(met.program) == len(self.program) else None

    def sorted_by(self, keys: Sequence[object]) -> list[int]:
        """The nodes that run, producers first, and of those that could run the least key next.

        Args:
            keys: By node: anything that compares; equal keys go by number.
        """
        return self._sort(self.program, keys)

    def bring_together(self, sequence: Sequence[int], groups: Iterable[Sequence[int]]) -> list[int]:
        """A sequence with each node of a group as late as the last one, as far as it may be.

        Of collectives that meet, none begins before what another device has to do first: whatever
        comes after one of them on its device waits for it, and so for all that it meets.

        Args:
            sequence: The nodes that run, producers first.
            groups: Nodes that begin together.
        """
        keys = [0] * len(self.producers)
        for number, node in enumerate(sequence):
            keys[node] = number
        for group in groups:
            last = max(keys[node] for node in group)
            for node in group:
                keys[node] = last
        return self.sorted_by(keys)

    def _sort(self, nodes: Collection[int], keys: Sequence[object]) -> list[int]:
        """Kahn's algorithm with a heap."""
        waiting = [len(producers) for producers in self.producers]
        ready = [(keys[node], node) for node in nodes if not waiting[node]]
        heapify(ready)
        sequence: list[int] = []
        while ready:
            node = heappop(ready)[1]
            sequence.append(node)
            for user in self.users[node]:
                waiting[user] -= 1
                if not waiting[user]:
                    heappush(ready, (keys[user], user))
        return sequence
