"""What must run before what: a graph's edges, and the order of operations on the same state."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import chain, permutations
from typing import TYPE_CHECKING

from memopt.graph.traversal import Numbering
from memopt.sequencing.frames import find_loop_entries
from memopt.sequencing.meetings import find_groups, pairs_of
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
        groups: The collectives that meet, if what waits for one of them waits for all.

    Attributes:
        producers: By node: those that come before it, each once; empty for a node that does not
            run.
        users: By node: those that come after it, ascending, each once.
        program: The nodes that run, producers first, otherwise by number.
        groups: The collectives that meet.
    """

    __slots__ = ("groups", "producers", "program", "users")

    def __init__(
        self,
        producers: Sequence[Sequence[int]],
        running: Collection[int] | None = None,
        groups: Sequence[Sequence[int]] = (),
    ) -> None:
        self.groups = groups
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
        return cls(extended, met.program, met.groups)

    def with_meetings(self, nodes: Sequence[Node]) -> Precedence:
        """The same where what waits for one collective waits for those that it meets.

        Itself where there are none, or where they do not meet as it seems.
        """
        groups = list(find_groups(nodes, self.program))
        if not groups:
            return self
        met = self.with_pairs(pairs_of(groups, self.users.__getitem__), groups)
        return self if met is None else met

    def with_pairs(
        self, pairs: Iterable[tuple[int, int]], groups: Sequence[Sequence[int]] = ()
    ) -> Precedence | None:
        """The same where of further pairs one node comes before the other; `None` if it cannot."""
        extended = [list(before) for before in self.producers]
        for before, after in pairs:
            extended[after].append(before)
        met = Precedence(extended, self.program, groups)
        return met if len(met.program) == len(self.program) else None

    def sorted_by(self, keys: Sequence[object]) -> list[int]:
        """The nodes that run, producers first, and of those that could run the least key next.

        Args:
            keys: By node: anything that compares; equal keys go by number.
        """
        return self._sort(self.program, keys)

    def delayed(self, sequence: Sequence[int], pairs: Iterable[tuple[int, int]]) -> list[int]:
        """A sequence with the first of each pair as late as the second, as far as it may be.

        Args:
            sequence: The nodes that run, producers first.
            pairs: Two nodes each; a node may be in several.
        """
        position = [0] * len(self.producers)
        for number, node in enumerate(sequence):
            position[node] = number
        keys = list(position)
        for first, second in pairs:
            keys[first] = max(keys[first], position[second])
        return self.sorted_by(keys)

    def meet(self, sequence: Sequence[int]) -> list[int]:
        """A sequence with each collective as late as the last one that it meets.

        Whatever comes after one of them on its device waits for it, and so for all that it meets.
        None of that may come before what another device has to do first.

        Args:
            sequence: The nodes that run, producers first.
        """
        if not self.groups:
            return list(sequence)
        return self.delayed(sequence, chain(*(permutations(group, 2) for group in self.groups)))

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
