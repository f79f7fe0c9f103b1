"""Private attributes by which memopt recognises graphs, and by which copies stay apart.

TensorFlow carries attributes whose name begins with an underscore along and otherwise ignores them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from tensorflow.core.framework.graph_pb2 import GraphDef

SEEN = "_memopt_seen"
"""On nodes that TensorFlow keeps: for which types of device memopt was called before."""
DONE = "_memopt_done"
"""On those nodes: the graph is memopt's work."""
ADDED = "_memopt_added"
"""On a node that memopt added: its name, so that no node is equal and TensorFlow merges none."""
SCOPE = "_memopt"
"""On nodes of a function that `optimize_function` decorates: what it asks for."""

_SEPARATOR = b","


def is_done(graph_def: GraphDef) -> bool:
    """Whether memopt has rewritten the graph."""
    return any(DONE in node.attr for node in graph_def.node)


def was_seen(graph_def: GraphDef, device: str) -> bool:
    """Whether memopt was called for the graph and this type of device before."""
    seen = device.encode()
    return any(
        SEEN in node.attr and seen in node.attr[SEEN].s.split(_SEPARATOR) for node in graph_def.node
    )


def mark_seen(graph_def: GraphDef, names: Collection[str], device: str) -> bool:
    """Remember that memopt was called; whether there was a node to remember it on.

    The nodes have effects or are asked for, so that no optimizer merges or drops them, and the mark
    changes nothing of what TensorFlow does to the graph.
    """
    return _mark(graph_def, names, SEEN, device.encode())


def mark_done(graph_def: GraphDef, names: Collection[str]) -> None:
    """Remember that the graph is memopt's work."""
    _mark(graph_def, names, DONE, b"1")


def mark_added(graph_def: GraphDef, before: Collection[str]) -> int:
    """Give every node that was not there before an attribute that no other has.

    Returns:
        How many there are.
    """
    added = [node for node in graph_def.node if node.name not in before]
    for node in added:
        node.attr[ADDED].s = node.name.encode()
    return len(added)


def _mark(graph_def: GraphDef, names: Collection[str], key: str, value: bytes) -> bool:
    wanted = frozenset(names)
    found = [node for node in graph_def.node if node.name in wanted]
    for node in found:
        # Asking for an attribute would add it.
        old = node.attr[key].s.split(_SEPARATOR) if key in node.attr else []
        node.attr[key].s = _SEPARATOR.join(dict.fromkeys((*old, value)))
    return bool(found)
