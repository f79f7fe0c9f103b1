"""Variables: the buffers of their values, which reads share and updates replace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.functiondef import ARGUMENT
from memopt.graph.op_types import DT_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.buffers.placed_tensors import PlacedTensors
    from memopt.graph.graph import Graph, Node, Tensor

_SPARSE = (
    *("ResourceGather", "ResourceScatter", "ResourceSparseApply"),
    "ResourceStridedSliceAssign",
)
"""What ops begin with that read or update parts of variables; from then on whatever reads or
updates all of one copies it (`copy_on_read_mode` in tensorflow/core/framework/resource_var.h)."""

_UPDATES = ("AssignAddVariableOp", "AssignSubVariableOp", "ResourceApply")
"""What ops begin with that change the values of variables where they lie."""


class Variables:
    """The variables behind the resources of one run of a graph or function.

    Args:
        tensors: The buffers of the run.
        given: By number of a function's argument: the variable that it stands for, if it does.
    """

    def __init__(self, tensors: PlacedTensors, given: Sequence[int | None]) -> None:
        self._tensors = tensors
        self._given = given
        self._handles: dict[Tensor, int] = {}
        self._shared_names: dict[bytes, int] = {}
        self._sparse = tensors.graph.derived(_sparse)

    def handle(self, tensor: Tensor) -> int | None:
        """The variable that a resource stands for: the place of the first node that did."""
        return self._handles.get(tensor)

    def follow(self, place: int, node: Node) -> None:
        """Find out which variables the resources among a node's outputs stand for."""
        for port, output in enumerate(self._tensors.outputs(place)):
            if output.dtype != DT_RESOURCE:
                continue
            handle = self._source(node, port)
            self._handles[node.output(port)] = place if handle is None else handle
            if node.output(port) in self._sparse:
                self._tensors.pool.sparse.add(self._handles[node.output(port)])
        if node.op == "VarHandleOp":
            name = node.attributes.get("shared_name")
            shared = name.s if name is not None else b""
            unique = shared or b"\0" + node.name.encode()
            self._handles[node.output()] = self._shared_names.setdefault(unique, place)
            if node.output() in self._sparse:
                self._tensors.pool.sparse.add(self._handles[node.output()])

    def _source(self, node: Node, port: int) -> int | None:
        if node.op == ARGUMENT and self._given:
            number: int = node.attributes["index"].i
            return self._given[number]
        return self._handles.get(node.inputs[port]) if port < len(node.inputs) else None

    def add_op(self, place: int, node: Node) -> bool:
        """Place the outputs of an op that reads or updates variables; whether it is done."""
        tensors = self._tensors
        handles = [self._handles[tensor] for tensor in node.inputs if tensor in self._handles]
        if not handles:
            return False
        if node.op == "ReadVariableOp":
            value = self._value(handles[0], self._tensors.outputs(place)[0].least_bytes)
            tensors.hold(place, [value])
            tensors.pool.handed_out.add(value)
            if handles[0] in tensors.pool.sparse:
                value = tensors.make(place, tensors.pool.size_bytes[value])
            tensors.give(place, value)
            return True
        if node.op == "AssignVariableOp":
            value = tensors.buffer(node.inputs[1])
            size_bytes = tensors.pool.size_bytes[value]
            tensors.hold(place, [self._value(handles[0], size_bytes)])
            if handles[0] in tensors.pool.sparse:
                value = tensors.make(place, size_bytes)
            tensors.pool.values[handles[0]] = value
            return True
        if node.op.startswith(_UPDATES):
            for handle in handles:
                self._update(place, handle)
            return True
        tensors.hold(place, [tensors.pool.values[h] for h in handles if h in tensors.pool.values])
        return False

    def _update(self, place: int, handle: int) -> None:
        """A variable's value is changed where it lies unless somebody else holds it, or might."""
        tensors = self._tensors
        node = tensors.numbering.nodes[place]
        given = [tensor for tensor in node.inputs if tensor not in self._handles]
        size_bytes = max((tensors.known(tensor).least_bytes for tensor in given), default=0)
        old = self._value(handle, size_bytes)
        tensors.hold(place, [old])
        reusable = [] if handle in tensors.pool.sparse else [old]
        tensors.pool.values[handle] = tensors.make(place, tensors.pool.size_bytes[old], reusable)

    def _value(self, handle: int, size_bytes: int) -> int:
        """The buffer of a variable's value by now; what it has before the step is made by none."""
        pool = self._tensors.pool
        if handle not in pool.values:
            pool.values[handle] = pool.first_values[handle] = pool.add(size_bytes)
        return pool.values[handle]


def _sparse(nodes: Graph) -> set[Tensor]:
    """The resources of which parts are read or updated, also as they come from others."""
    found: set[Tensor] = set()
    for node in nodes:
        if node.op.startswith(_SPARSE):
            tensor = node.inputs[0]
            while tensor not in found:
                found.add(tensor)
                if tensor.node.op == "Identity":
                    tensor = tensor.node.inputs[0]
    return found
