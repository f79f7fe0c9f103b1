"""Whether devices would wait for each other for ever: collectives of a graph that was rewritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError
from memopt.graph.traversal import Numbering
from memopt.sequencing.meetings import find_groups, pairs_of
from memopt.sequencing.precedence import Precedence

if TYPE_CHECKING:
    from memopt.graph.graph import Graph, Node


class Collectives:
    """The collectives of a graph that end together, by which it is checked after it was rewritten.

    Args:
        graph: The graph, which runs as it is. Where it would stand still if they met as it seems,
            they do not, and nothing is checked.
    """

    def __init__(self, graph: Graph) -> None:
        numbering = Numbering.of(graph)
        groups = find_groups(numbering.nodes, numbering.order)
        self._groups: list[tuple[Node, ...]] = [
            tuple(numbering.nodes[place] for place in group) for group in groups
        ]
        if self._stands_still(graph):
            self._groups = []

    def verify(self, graph: Graph) -> None:
        """Check that no device waits for what waits for itself. Linear in nodes and edges.

        Raises:
            InvalidGraphError: Two would.
        """
        if self._stands_still(graph):
            first = self._groups[0][0]
            raise InvalidGraphError(
                f"devices would wait for each other for ever: {first.name!r} and other collectives "
                "end together, and what waits for one is before another",
                node=first.name,
            )

    def _stands_still(self, graph: Graph) -> bool:
        if not self._groups:
            return False
        numbering = Numbering.of(graph)
        groups = [
            [numbering.place(node) for node in group if graph.find(node.name) is node]
            for group in self._groups
        ]
        pairs = pairs_of(groups, lambda place: numbering.users[place])
        return Precedence(numbering.producers).with_pairs(pairs) is None
