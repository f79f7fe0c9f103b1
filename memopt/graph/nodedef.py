"""NodeDef in and out, without loss; shared by GraphDef and FunctionDef."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memopt.errors import InvalidGraphError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.graph.graph import Graph, Node


def add_node_def(graph: Graph, node_def: NodeDef) -> Node:
    """Append the node that a NodeDef describes, without its edges."""
    name = node_def.name
    if not name:
        raise InvalidGraphError(f"node number {graph.index_limit} (op {node_def.op!r}) has no name")
    return graph.add_node(
        name, node_def.op, device=node_def.device, attributes=node_def.attr, origin=node_def
    )


def write_node_def(node_def: NodeDef, node: Node, spell: Callable[[Node], list[str]]) -> None:
    """Write a node into a NodeDef that is empty or a copy of the one that it was loaded from.

    Debug information, full types and fields of later versions stay with the node.
    """
    origin: Any = node.origin
    if origin is not None and not node_def.name:
        node_def.CopyFrom(origin)
    if not node.changed:
        return
    node_def.name = node.name
    node_def.op = node.op
    node_def.device = node.device
    del node_def.input[:]
    node_def.input.extend(spell(node))
    if origin is not None and node.attributes is origin.attr:
        return
    node_def.attr.clear()
    if isinstance(node.attributes, dict):
        for key, value in node.attributes.items():
            node_def.attr[key].CopyFrom(value)
    else:
        # Another message's attributes, shared by a copy: merged at once, without Python objects.
        node_def.attr.MergeFrom(node.attributes)


def spell_inputs(node: Node) -> list[str]:
    """The inputs of a node as a GraphDef spells them; port 0 has no suffix."""
    return [*map(str, node.inputs), *(f"^{control.name}" for control in node.control_inputs)]
