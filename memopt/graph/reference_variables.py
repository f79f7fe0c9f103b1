"""Who reads and who updates v1 reference variables, which are handed on and changed in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.graph.graph import Graph, Node


def variables_read(graph: Graph, node: Node) -> list[Node]:
    """The reference variables whose buffers a node may read."""
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    pending = [tensor.node for tensor in node.inputs]
    while pending:
        producer = pending.pop()
        if producer in seen:
            continue
        seen.add(producer)
        if producer.op in op_types.REF_VARIABLES:
            found[producer] = None
        elif producer.op in op_types.FORWARDING or _gives_reference(graph, producer):
            pending.extend(tensor.node for tensor in producer.inputs)
    return list(found)


def find_writers(graph: Graph, variable: Node) -> Iterator[Node]:
    """The nodes that take a variable by reference, in the order in which they are found."""
    seen = {variable}
    pending = [variable]
    while pending:
        for tensor in pending.pop().outputs:
            for user, slot in tensor.uses:
                if user in seen or not _takes_reference(graph, user, slot):
                    continue
                seen.add(user)
                pending.append(user)
                if user.op not in op_types.FORWARDING:
                    yield user


def _gives_reference(graph: Graph, node: Node) -> bool:
    signature = op_types.require_signature(node, graph.library)
    return any(argument.is_ref for argument in signature.outputs)


def _takes_reference(graph: Graph, user: Node, slot: int) -> bool:
    return op_types.port_types(user, graph.library).inputs[slot] > op_types.REF_TYPE_OFFSET
