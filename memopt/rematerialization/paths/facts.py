"""What is the same for all clones of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memopt.rematerialization.network import Network


class Facts:
    """What is the same for all clones of a node.

    Attributes:
        network: What is cloned.
        runs: By node: whether it runs at all.
        maker: By buffer: who makes it, -1 for nobody.
        handed_on: By node: the buffers of others that its readers get through it.
        pinned: By buffer: see `Views`.
        is_view: By node: whether it only hands on what others made.
        waits: By node: the nodes that it waits for if they run themselves, without reading them.
        after: By node: the nodes that it must come after, and after all of their clones.
        cloneable: By node: whether it may be cloned at all.
        size_bytes: By node: what it makes, and for a view what it hands on.
    """

    def __init__(self, network: Network) -> None:
        graph = network.buffer_graph
        views = network.views
        self.network = network
        self._routes: dict[int, list[tuple[int, list[int]]]] = {}
        self.runs = [False] * len(graph.nodes)
        for node in network.sequence:
            self.runs[node] = True
        self.maker = list(graph.makers)
        self.handed_on = [list(buffers) for buffers in views.handed_on]
        self.pinned = views.pinned
        self.is_view = [not made for made in graph.made]
        self.waits: list[list[int]] = [[] for _ in graph.nodes]
        self.after: list[list[int]] = [[] for _ in graph.nodes]
        for node in network.sequence:
            data = frozenset(network.inputs[node])
            self.waits[node] = [p for p in graph.producers[node] if p not in data]
            for follower in network.followers[node]:
                self.after[follower].append(node)
        self.size_bytes = [0] * len(graph.nodes)
        self.cloneable = [False] * len(graph.nodes)
        for node in network.sequence:
            buffers = self.handed_on[node] if self.is_view[node] else graph.made[node]
            self.size_bytes[node] = sum(graph.size_bytes[buffer] for buffer in buffers)
            free = not any(graph.lasting[b] or self.pinned[b] for b in buffers)
            self.cloneable[node] = network.recomputable[node] and bool(buffers) and free

    def routes(self, node: int) -> list[tuple[int, list[int]]]:
        """The buffers that a node reads, each with those it gets it from; none if no edge shows."""
        found = self._routes.get(node)
        if found is None:
            found = [
                (buffer, [s for s in self.network.inputs[node] if self._gives(s, buffer)])
                for buffer in self.network.buffer_graph.read[node]
            ]
            self._routes[node] = found
        return found

    def _gives(self, source: int, buffer: int) -> bool:
        if self.maker[buffer] == source:
            return True
        return self.is_view[source] and buffer in self.handed_on[source]
