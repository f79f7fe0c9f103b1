"""Which nodes can be taken out of a graph when a pass has made them useless."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memopt.graph.graph import Graph, Node

_COLOCATED_WITH = b"loc:@"


def companions_of(nodes: Iterable[Node]) -> frozenset[str]:
    """The names of the nodes with which some are placed."""
    companions: set[str] = set()
    for node in nodes:
        groups = node.attributes.get(op_types.COLOCATED)
        if groups is not None:
            companions.update(
                group.removeprefix(_COLOCATED_WITH).decode(errors="replace")
                for group in groups.list.s
            )
    return frozenset(companions)


class Removal:
    """Tells whether a node may go: nobody uses it, asks for it by name, or is placed with it.

    Args:
        graph: The graph, as it is edited.
        fetched: Names of the nodes that the caller asks for.
        named: Names of all nodes that must stay.
    """

    def __init__(self, graph: Graph, *, fetched: Collection[str], named: Collection[str]) -> None:
        self._library = graph.library
        self._named = frozenset(named)
        self._is_complete = bool(fetched)
        self.companions = companions_of(graph)
        """Names of the nodes with which others are placed."""

    def can_remove(self, node: Node) -> bool:
        """Whether the node can be taken out as the graph is now.

        Where nobody says what is fetched, everything may be.
        """
        if not self._is_complete or node.users or node.name in self._named:
            return False
        return node.name not in self.companions and not op_types.is_stateful(node, self._library)
