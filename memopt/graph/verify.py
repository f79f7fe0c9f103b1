"""The invariants that every graph keeps; the optimizer checks them around every pass."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError
from memopt.graph import op_types
from memopt.graph.traversal import Numbering

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.graph.op_types import PortTypes, Signature

_NODE_NAME = re.compile(r"[A-Za-z0-9._][A-Za-z0-9_.\\/>-]*")
_SHOWN_OF_A_CYCLE = 6


def verify_graph(graph: Graph, nodes: Iterable[Node] | None = None) -> None:
    """Check a graph, or after a small change the nodes that differ and what they could break.

    1. Names are spelled as TensorFlow allows. (That they are unique, and that inputs exist, data
       inputs before control inputs, is so by construction of a Graph.)
    2. Every op is known, and every node has the inputs that its op declares.
    3. Every input comes from an existing output port of the right type.
    4. Every device string parses.
    5. There is no cycle, but for loops closed by a NextIteration.

    Args:
        graph: The graph.
        nodes: The nodes to check; all if not given. The search for a cycle is always over all.

    Raises:
        InvalidGraphError: Names the node and the input.
    """
    types = _Types(graph)
    for node in graph if nodes is None else nodes:
        _verify_node(node, types)
    verify_acyclic(graph)


def verify_acyclic(graph: Graph) -> None:
    """Check that there is no cycle, but for loops closed by a NextIteration.

    Raises:
        InvalidGraphError: Names the nodes of one cycle.
    """
    numbering = Numbering.of(graph)
    if numbering.is_acyclic:
        return
    cycle = [node.name for node in numbering.find_cycle()]
    shown = " -> ".join(cycle[:_SHOWN_OF_A_CYCLE])
    dots = " -> ..." if len(cycle) > _SHOWN_OF_A_CYCLE else ""
    raise InvalidGraphError(
        f"{len(cycle)} nodes form a cycle: {shown}{dots} -> {cycle[0]}", node=cycle[0]
    )


def verify_references(graph: Graph, names: Iterable[str], what: str) -> None:
    """Check that named tensors (`node:port`) and nodes (`node`) exist.

    Args:
        graph: The graph.
        names: The names.
        what: What they are to the caller, for the message: "fetch", "feed", "kept node".

    Raises:
        InvalidGraphError: Names the one that does not exist.
    """
    types = _Types(graph)
    for name in names:
        node_name, colon, port = name.removeprefix("^").rpartition(":")
        node = graph.find(node_name if colon else port)
        if node is None:
            raise InvalidGraphError(f"the {what} {name!r} does not exist in the graph", node=name)
        if not colon:
            continue
        outputs = len(types.of(node).outputs)
        if not port.isdecimal() or int(port) >= outputs:
            raise InvalidGraphError(
                f"the {what} {name!r} does not exist: {node.op} has {outputs} outputs",
                node=node.name,
            )


class _Types:
    """The element types of nodes' ports, worked out once each."""

    def __init__(self, graph: Graph) -> None:
        self._library = graph.library
        self._types: list[PortTypes | None] = [None] * graph.index_limit
        self._signatures: dict[str, Signature] = {}

    def of(self, node: Node) -> PortTypes:
        known = self._types[node.index]
        if known is None:
            signature = self._signatures.get(node.op)
            if signature is None:
                signature = op_types.require_signature(node, self._library)
                self._signatures[node.op] = signature
            known = self._types[node.index] = signature.port_types(node)
        return known


def _verify_node(node: Node, types: _Types) -> None:
    if not _NODE_NAME.fullmatch(node.name):
        raise InvalidGraphError(f"{node.name!r} is no valid node name", node=node.name)
    wanted = types.of(node).inputs
    inputs = node.inputs
    if len(inputs) != len(wanted):
        raise InvalidGraphError(
            f"node {node.name!r}: {node.op} takes {len(wanted)} inputs, this one has {len(inputs)}",
            node=node.name,
        )
    for tensor, dtype in zip(inputs, wanted, strict=True):
        given = types.of(tensor.node).outputs
        port = tensor.port
        # A reference can be read as a value, but a value is no reference.
        if port >= len(given) or given[port] not in (dtype, dtype + op_types.REF_TYPE_OFFSET):
            raise _bad_input(node, tensor, dtype, given)
    if node.device and not _parses_as_device(node.device):
        raise InvalidGraphError(f"node {node.name!r}: {node.device!r} is no device", node=node.name)


def _bad_input(node: Node, tensor: Tensor, dtype: int, given: tuple[int, ...]) -> InvalidGraphError:
    if tensor.port >= len(given):
        what = f"does not exist: {tensor.node.op} has {len(given)} outputs"
    else:
        what = f"is {_type_name(given[tensor.port])}, {node.op} takes {_type_name(dtype)}"
    return InvalidGraphError(
        f"node {node.name!r}: input {tensor.name!r} {what}", node=node.name, input=tensor.name
    )


@lru_cache(maxsize=1024)
def _parses_as_device(device: str) -> bool:
    from tensorflow.python.framework import device_spec

    try:
        device_spec.DeviceSpecV2.from_string(device)
    except ValueError:
        return False
    return True


def _type_name(dtype: int) -> str:
    from tensorflow.core.framework import types_pb2

    if dtype in types_pb2.DataType.values():
        return str(types_pb2.DataType.Name(dtype).removeprefix("DT_").lower())
    return f"type {dtype}"
