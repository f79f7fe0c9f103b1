"""Which nodes can be taken out of a graph when a pass has made them useless."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types

if TYPE_CHECKING:
    from memopt.graph.graph import Graph, Node
    from memopt.passes.base import Context

_COLOCATION = "_class"
_COLOCATED_WITH = b"loc:@"


class Removal:
    """Tells whether a node may go: nobody uses it, asks for it by name, or is placed with it."""

    def __init__(self, graph: Graph, context: Context) -> None:
        self._library = graph.library
        self._named = context.fed | context.fetched | context.kept
        self._is_complete = bool(context.fetched)
        self._companions: set[str] = set()
        for node in graph:
            groups = node.attributes.get(_COLOCATION)
            if groups is not None:
                self._companions.update(
                    group.removeprefix(_COLOCATED_WITH).decode(errors="replace")
                    for group in groups.list.s
                )

    def can_remove(self, node: Node) -> bool:
        """Whether the node can be taken out as the graph is now.

        Where nobody says what is fetched, everything may be.
        """
        if not self._is_complete or node.users or node.name in self._named:
            return False
        return node.name not in self._companions and not op_types.is_stateful(node, self._library)
