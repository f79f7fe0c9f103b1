"""The mark of a graph that Grappler has been at: it runs as it is, with Grappler off."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from tensorflow.core.framework.graph_pb2 import GraphDef

FINAL = "_memopt_final"
"""An attribute of nodes that are asked for. TensorFlow carries it along and ignores it."""


def is_final(graph_def: GraphDef) -> bool:
    """Whether a graph is to run without Grappler, which would change the last bits."""
    return any(FINAL in node.attr for node in graph_def.node)


def mark_final(graph_def: GraphDef, names: Collection[str]) -> None:
    """Say of a graph that it is to run without Grappler.

    Args:
        graph_def: The graph.
        names: Of nodes that it keeps, whatever is rewritten.
    """
    wanted = frozenset(names)
    for node in graph_def.node:
        if node.name in wanted:
            node.attr[FINAL].s = b"1"
