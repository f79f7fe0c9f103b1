"""Integers that a graph computes of shapes alone: how long sequences are, how often loops turn."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memopt.graph import op_types

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memopt.graph.graph import Node, Tensor
    from memopt.shapes.integer_evaluation import Array
    from memopt.shapes.properties import Properties
    from memopt.shapes.tensor_properties import Shape, TensorProperties

    Known = Callable[[Tensor], TensorProperties | None]

_LENGTH, _RESERVE, _SPLIT = "TensorListLength", "TensorListReserve", "TensorListFromTensor"
_SAME_LENGTH = (
    op_types.SWITCHES
    | op_types.ENTERS
    | op_types.EXITS
    | op_types.MERGES
    | {"Identity", "TensorListSetItem", "ZerosLike"}
)
"""Ops whose first output is a list as long as their first input; of a loop, what it begins with."""


class KnownIntegers:
    """What small integer tensors hold in a call in which the shapes of others are known.

    TensorFlow's shape functions follow such values into shapes and tell nobody what they are.

    Args:
        known: What is known of a tensor.
    """

    def __init__(self, known: Known) -> None:
        # Here, since numpy is not light.
        from memopt.shapes import integer_evaluation

        self._known = known
        self._arithmetic = integer_evaluation
        self._values: dict[Node, Sequence[Array] | None] = {}
        """By node: what its outputs hold; `None` where that is not known."""

    @classmethod
    def of(cls, properties: Properties) -> KnownIntegers:
        """What follows from the shapes that are known of a graph."""
        return cls(lambda tensor: properties.tensor(tensor.name))

    def number(self, tensor: Tensor) -> int | None:
        """The integer that a scalar holds; `None` if it is not known, or not one."""
        value = self.value(tensor)
        return int(value.item()) if value is not None and value.ndim == 0 else None

    def value(self, tensor: Tensor) -> Array | None:
        """What a tensor holds; `None` if it is not known."""
        pending: list[Node] = [tensor.node]
        begun: set[Node] = set()
        while pending:
            node = pending[-1]
            sources = [] if node in self._values else self._sources(node)
            missing = [each for each in sources if each not in self._values and each not in begun]
            begun.add(node)
            if missing:
                pending += missing
                continue
            pending.pop()
            if node not in self._values:
                self._values[node] = self._evaluate(node)
        return self._found(tensor)

    def list_length(self, handle: Tensor) -> int | None:
        """How many elements a list was made for, which its turns fill; `None` if not known."""
        root = _made_by(handle)
        if root.op == _RESERVE:
            return self.number(root.inputs[1])
        shape = self._shape(root.inputs[0]) if root.op == _SPLIT else None
        return shape[0] if shape and shape[0] >= 0 else None

    def _sources(self, node: Node) -> list[Node]:
        """What has to be known first."""
        if node.op in self._arithmetic.EVALUATORS:
            return [tensor.node for tensor in node.inputs]
        if node.op == _LENGTH:
            root = _made_by(node.inputs[0])
            return [root.inputs[1].node] if root.op == _RESERVE else []
        return []

    def _evaluate(self, node: Node) -> Sequence[Array] | None:
        values = self._computed(node)
        dtypes = [self._dtype(node.output(port)) for port in range(len(values))]
        return values if values and self._arithmetic.all_fit(values, dtypes) else None

    def _computed(self, node: Node) -> Sequence[Array]:
        as_array = self._arithmetic.as_array
        if node.op == "Const":
            value = self._arithmetic.read_constant(node)
            return () if value is None else (value,)
        if node.op in _OF_SHAPES:
            shape = self._shape(node.inputs[0])
            if shape is None or -1 in shape:
                return ()
            return (as_array(_OF_SHAPES[node.op](shape)),)
        if node.op == _LENGTH:
            length = self.list_length(node.inputs[0])
            return () if length is None else (as_array(length),)
        values = [self._found(tensor) for tensor in node.inputs]
        known = [value for value in values if value is not None]
        return (self._arithmetic.evaluate(node, known) or ()) if len(known) == len(values) else ()

    def _found(self, tensor: Tensor) -> Array | None:
        values = self._values.get(tensor.node)
        return values[tensor.port] if values is not None and tensor.port < len(values) else None

    def _shape(self, tensor: Tensor) -> Shape:
        known = self._known(tensor)
        return None if known is None else known.shape

    def _dtype(self, tensor: Tensor) -> int:
        known = self._known(tensor)
        return 0 if known is None else known.dtype


_OF_SHAPES: dict[str, Callable[[Sequence[int]], object]] = {
    "Shape": list,
    "Size": prod,
    "Rank": len,
}


def _made_by(handle: Tensor) -> Node:
    """What made a list that is handed on, and filled."""
    node: Node = handle.node
    seen: set[Node] = set()
    while node.op in _SAME_LENGTH and node.inputs and node not in seen:
        seen.add(node)
        node = node.inputs[0].node
    return node
