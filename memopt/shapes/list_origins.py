"""Where lists in loops of Switch and Merge come from: who has filled what is handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensorflow.core.framework.node_def_pb2 import NodeDef

_HANDED_ON = op_types.SWITCHES | op_types.ENTERS | {"Identity"}


def output_of(tensor: str) -> tuple[str, int]:
    """A tensor's node and port."""
    node, _, port = tensor.removeprefix("^").partition(":")
    return node, int(port or 0)


def find_maker(tensor: str, by_name: Mapping[str, NodeDef], op: str) -> NodeDef | None:
    """The operation of a kind that made a list, if nothing but loops hands it on from there.

    Args:
        tensor: The list.
        by_name: The nodes of the graph.
        op: The kind.
    """
    name, has_left = output_of(tensor)[0], False
    seen = set()
    while (name, has_left) not in seen and name in by_name:
        seen.add((name, has_left))
        node = by_name[name]
        if node.op == op:
            return node
        source = before(node, by_name, has_left=has_left)
        if source is None:
            return None
        has_left = has_left or node.op in op_types.EXITS
        name = output_of(source)[0]
    return None


def before(node: NodeDef, by_name: Mapping[str, NodeDef], *, has_left: bool) -> str | None:
    """Where a value comes from: from outside of the loop, or behind its end, from the last turn."""
    if node.op in op_types.MERGES:
        for source in node.input:
            origin = by_name.get(output_of(source)[0])
            if origin is not None and (origin.op in op_types.NEXT_ITERATIONS) == has_left:
                return str(source)
        return None
    if node.op in _HANDED_ON | op_types.EXITS | op_types.NEXT_ITERATIONS:
        return str(node.input[0])
    return None
