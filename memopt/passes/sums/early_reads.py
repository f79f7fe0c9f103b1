"""Reads of v1 reference variables that a rewrite makes earlier, and the updates they could miss.

A reference variable is updated in place. An operation that reads one sees the updates that ran
before it; one that reads a part of what it read earlier may not. Resource variables are safe: their
value is read by an operation of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.graph.paths import leads_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.costs.simulated_memory import SimulatedMemory
    from memopt.graph.graph import Graph, Node
    from memopt.graph.traversal import Numbering


def find_missed_update(
    graph: Graph, numbering: Numbering, simulated: SimulatedMemory, node: Node
) -> str | None:
    """Why reading the inputs of a node before all of them are there could change what it reads.

    `None` if every node of the step that may update what is read comes after the node in any case.
    """
    for variable in _variables_read(graph, node):
        for writer in _writers(graph, variable):
            runs = simulated.simulation().ran(writer)
            if runs and not leads_to(numbering, node, writer):
                return (
                    f"reads the reference variable {variable.name!r}, "
                    f"which {writer.name!r} may update before the sum is complete"
                )
    return None


def _variables_read(graph: Graph, node: Node) -> list[Node]:
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


def _writers(graph: Graph, variable: Node) -> Iterator[Node]:
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
