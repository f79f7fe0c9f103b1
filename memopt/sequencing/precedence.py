"""What must run before what: a graph's edges, and the order of operations on the same state."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.sequencing.frames import find_loop_entries
from memopt.sequencing.state import find_state_order

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memopt.costs.buffer_graph import BufferGraph
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
        all that leaves it.

        Args:
            graph: The graph.
            buffer_graph: The same in numbers.
            fetched: Names of the nodes that are asked for; what does not lead to them does not run.
                Without any, everything runs.
        """
        running = find_running(buffer_graph, fetched)
        runs = None if running is None else frozenset(running)
        extended = [list(before) for before in buffer_graph.producers]
        for enter, condition in find_loop_entries(buffer_graph.nodes):
            if runs is None or enter in runs:
                extended[condition].append(enter)
        by_edges = cls(extended, running)
        for before, after in find_state_order(graph, buffer_graph.nodes, by_edges.program):
            extended[after].append(before)
        return cls(extended, by_edges.program)

    def sorted_by(self, keys: Sequence[object]) -> list[int]:
        """The nodes that run, producers first, and of those that could run the least key next.

        Args:
            keys: By node: anything that compares; equal keys go by number.
        """
        return self._sort(self.program, keys)

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


def _find_turns(nodes: Sequence[Node]) -> dict[int, list[int]]:
    """By the head of a loop what gives it the next turn's values: no producer, but it runs."""
    place_of = {
        node: place for place, node in enumerate(nodes) if node.op in op_types.NEXT_ITERATIONS
    }
    if not place_of:
        return {}
    return {
        place: [place_of[tensor.node] for tensor in node.inputs if tensor.node in place_of]
        for place, node in enumerate(nodes)
        if node.op in op_types.MERGES
    }


def find_running(buffer_graph: BufferGraph, fetched: Collection[str]) -> list[int] | None:
    """The nodes that lead to those that are asked for, ascending; `None` (all) if none is."""
    nodes = buffer_graph.nodes
    pending = [place for place, node in enumerate(nodes) if node.name in fetched]
    if not pending:
        return None
    turns = _find_turns(nodes)
    runs = [False] * len(nodes)
    while pending:
        node = pending.pop()
        if not runs[node]:
            runs[node] = True
            pending.extend(buffer_graph.producers[node])
            pending.extend(turns.get(node, ()))
    return [node for node, it_runs in enumerate(runs) if it_runs]
