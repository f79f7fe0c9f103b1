"""A graph's edges as integers, in topological order; nothing here recurses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.op_types import MERGES, NEXT_ITERATIONS

if TYPE_CHECKING:
    from collections.abc import Collection

    from memopt.graph.graph import Graph, Node


class Numbering:
    """A frozen picture of a graph's edges, nodes named by their position in insertion order.

    It stays what it is when the graph is edited, so passes number a graph once, before their first
    edit. `of` gives the same picture again while the graph has not changed.

    Attributes:
        nodes: The nodes by position.
        producers: For each node its inputs' producers in input order, data first, then control;
            repeated where the node reads a producer twice.
        users: For each node the nodes that depend on it, ascending, each once.
        order: Positions so that producers come first: Kahn's algorithm with a first-in first-out
            queue, ties in insertion order, as Grappler's `TopologicalSort`. An edge from a
            NextIteration into a Merge closes a loop and is no cycle. Nodes on or behind a cycle are
            not in it.
        component: For each node Grappler's component number: the larger the earlier in `order`.
    """

    __slots__ = ("_position", "component", "nodes", "order", "producers", "users")

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = list(graph)
        self._position = [-1] * graph.index_limit
        for place, node in enumerate(self.nodes):
            self._position[node.index] = place
        self.producers: list[list[int]] = []
        self.users: list[list[int]] = [[] for _ in self.nodes]
        waiting = self._connect()
        self.order = self._sort(waiting)
        self.component = [0] * len(self.nodes)
        for rank, place in enumerate(reversed(self.order)):
            self.component[place] = rank

    @classmethod
    def of(cls, graph: Graph) -> Numbering:
        """The picture of a graph as it is now. Linear in nodes and edges."""
        return graph.derived(cls)

    @property
    def is_acyclic(self) -> bool:
        """Whether every node has a place in the topological order."""
        return len(self.order) == len(self.nodes)

    def place(self, node: Node) -> int:
        """The position of a node, or -1 for one that was added since."""
        return self._position[node.index] if node.index < len(self._position) else -1

    def running_for(self, roots: Collection[str]) -> list[bool]:
        """By position: whether it runs because nodes of these names do; all run if there is none.

        What gives a loop the values of its next turn runs for the head of the loop.
        """
        pending = [place for place, node in enumerate(self.nodes) if node.name in roots]
        runs = [not pending] * len(self.nodes)
        while pending:
            place = pending.pop()
            if not runs[place]:
                runs[place] = True
                pending += self.producers[place]
        return runs

    def find_cycle(self) -> list[Node]:
        """One cycle, for a graph that is not acyclic."""
        left = set(range(len(self.nodes))).difference(self.order)
        place = min(left)
        trail: dict[int, None] = {}
        while place not in trail:
            trail[place] = None
            back = self._back_edges(place) if self.nodes[place].op in MERGES else ()
            place = min(p for p in self.producers[place] if p in left and p not in back)
        path = list(trail)
        return [self.nodes[p] for p in reversed(path[path.index(place) :])]

    def _connect(self) -> list[int]:
        """Fill in the edges; returns for each node how many producers it waits for."""
        position, users = self._position, self.users
        waiting = [0] * len(self.nodes)
        for place, node in enumerate(self.nodes):
            sources = [position[tensor.node.index] for tensor in node.inputs]
            if node.control_inputs:
                sources += [position[control.index] for control in node.control_inputs]
            self.producers.append(sources)
            for source in sources:
                found = users[source]
                if not found or found[-1] != place:
                    found.append(place)
                    waiting[place] += 1
        return waiting

    def _sort(self, waiting: list[int]) -> list[int]:
        for place, node in enumerate(self.nodes):
            if node.op in MERGES:
                waiting[place] -= len(self._back_edges(place))
        order = [place for place, sources in enumerate(self.producers) if not sources]
        for place in order:
            for user in self.users[place]:
                waiting[user] -= 1
                if not waiting[user]:
                    order.append(user)
        return order

    def _back_edges(self, place: int) -> set[int]:
        return {p for p in self.producers[place] if self.nodes[p].op in NEXT_ITERATIONS}
