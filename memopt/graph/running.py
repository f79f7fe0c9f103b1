"""Which nodes of a graph run in a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.graph.functiondef import ARGUMENT, RESULT
from memopt.graph.traversal import Numbering

if TYPE_CHECKING:
    from collections.abc import Collection

    from memopt.graph.graph import Graph, Node


def roots_of(graph: Graph, fetched: Collection[str], kept: Collection[str]) -> frozenset[str]:
    """Names of the nodes because of which others run; in a function's body those kept as well."""
    is_body = any(node.op in (ARGUMENT, RESULT) for node in graph)
    return frozenset(fetched) | (frozenset(kept) if is_body else frozenset())


class Running:
    """Tells which nodes run, and which may.

    Nobody needs what some nodes give. A session leaves them out; in a function those with an effect
    and v1 control flow run all the same, with what they read (`PruneFunctionGraph` in
    tensorflow/core/common_runtime/function_utils.cc).
    """

    def __init__(self, numbering: Numbering, does: list[bool], may: list[bool]) -> None:
        self._numbering = numbering
        self._does = does
        self._may = may

    @classmethod
    def of(cls, graph: Graph, roots: Collection[str]) -> Running:
        """Find out what runs because of nodes of these names; all run if there are none."""
        numbering = Numbering.of(graph)
        does = numbering.running_for(roots)
        if all(does):
            return cls(numbering, does, does)
        effects = {
            node.name
            for node, runs in zip(numbering.nodes, does, strict=True)
            if not runs and (node.op in op_types.CONTROL_FLOW or _has_effect(node, graph))
        }
        may = numbering.running_for({*roots, *effects}) if effects else does
        return cls(numbering, does, may)

    def does(self, node: Node) -> bool:
        """Whether a node runs in any case. So does what was added since."""
        place = self._numbering.place(node)
        return place < 0 or self._does[place]

    def may(self, node: Node) -> bool:
        """Whether a node may run."""
        place = self._numbering.place(node)
        return place < 0 or self._may[place]


def _has_effect(node: Node, graph: Graph) -> bool:
    return node.op not in (ARGUMENT, "Placeholder") and op_types.is_stateful(node, graph.library)
