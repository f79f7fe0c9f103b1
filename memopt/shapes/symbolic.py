"""Shapes with open dimensions: which of them are the same, whatever the caller gives."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

from memopt.shapes.constants import constant_numbers

if TYPE_CHECKING:
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.traversal import Numbering
    from memopt.shapes.properties import Properties

Dimension: TypeAlias = int | tuple[str, int]
"""Elements; or where they come from: a tensor, and which of its dimensions it is."""
Dimensions: TypeAlias = tuple[Dimension, ...]

_LIKE_THE_FIRST = frozenset(
    {
        *("Abs", "AddN", "BiasAdd", "Cast", "Elu", "EluGrad", "Erf", "Exp", "Identity", "Inv"),
        *("LeakyRelu", "LeakyReluGrad", "Log", "Log1p", "Neg", "OnesLike", "PreventGradient"),
        *("Reciprocal", "Relu", "Relu6", "Relu6Grad", "ReluGrad", "Rsqrt", "RsqrtGrad", "Selu"),
        *("SeluGrad", "Sigmoid", "SigmoidGrad", "Snapshot", "Softmax", "Softplus", "SoftplusGrad"),
        *("Sqrt", "SqrtGrad", "Square", "StopGradient", "Tanh", "TanhGrad", "ZerosLike"),
    }
)
"""Ops whose first output has the shape of their first input."""
_BROADCASTING = frozenset(
    {
        *("Add", "AddV2", "Div", "DivNoNan", "Maximum", "Minimum", "Mul", "Pow", "RealDiv"),
        *("SquaredDifference", "Sub"),
    }
)
_REDUCTIONS = frozenset({"Max", "Mean", "Min", "Prod", "Sum"})
_SHAPED = frozenset({"BroadcastTo", "Reshape"})
"""Ops that are told the shape of what they make."""


class SymbolicShapes:
    """Tells dimensions that are equal in every call, though nobody knows how large they are.

    TensorFlow's inference knows each open dimension as not known. Here it is named by the tensor
    that has it first, and followed through what computes element by element, through reductions
    that keep their dimensions, and through what is given the shape of a tensor. Linear in nodes.

    Args:
        numbering: The graph, ordered.
        properties: What holds of its tensors in every call.
    """

    def __init__(self, numbering: Numbering, properties: Properties) -> None:
        self._properties = properties
        self._found: dict[Tensor, Dimensions | None] = {}
        for place in numbering.order:
            node = numbering.nodes[place]
            if node.inputs and not self._is_certain(node.output()):
                self._found[node.output()] = self._follow(node) or self._own(node.output())

    def find(self, tensor: Tensor) -> Dimensions | None:
        """The dimensions of a tensor; `None` if not even their number is known."""
        if tensor not in self._found:
            self._found[tensor] = self._own(tensor)
        return self._found[tensor]

    def add(self, tensor: Tensor, dimensions: Dimensions | None) -> None:
        """Tell those of a tensor that was added."""
        self._found[tensor] = dimensions

    def told_by(self, tensor: Tensor) -> Dimensions | None:
        """The dimensions that a tensor of integers says another one has, as `tf.shape` gives it."""
        node = tensor.node
        if node.op == "Shape":
            return self.find(node.inputs[0])
        numbers = constant_numbers(node)
        # -1 stands for what is left over, which is another number for each tensor.
        return None if numbers is None or min(numbers, default=0) < 0 else numbers

    def _follow(self, node: Node) -> Dimensions | None:
        """The dimensions of what a node makes, by those of what it reads."""
        first = self.find(node.inputs[0])
        if node.op in _LIKE_THE_FIRST:
            return first
        if node.op in _SHAPED:
            return self.told_by(node.inputs[1])
        if node.op in _BROADCASTING:
            return together(first, self.find(node.inputs[1]))
        if first is not None and node.op in _REDUCTIONS and _keeps_dimensions(node):
            axes = constant_numbers(node.inputs[1].node)
            if axes is None:
                return None
            reduced = {axis % len(first) for axis in axes}
            return tuple(1 if at in reduced else size for at, size in enumerate(first))
        return None

    def _own(self, tensor: Tensor) -> Dimensions | None:
        """The dimensions of a tensor, each open one named by it."""
        known = self._properties.tensor(tensor.name)
        if known is None or known.shape is None:
            return None
        return tuple(
            size if size >= 0 else (tensor.name, at) for at, size in enumerate(known.shape)
        )

    def _is_certain(self, tensor: Tensor) -> bool:
        known = self._properties.tensor(tensor.name)
        return known is not None and known.is_known


def _keeps_dimensions(reduction: Node) -> bool:
    value = reduction.attributes.get("keep_dims")
    return value is not None and value.b


def together(one: Dimensions | None, other: Dimensions | None) -> Dimensions | None:
    """The shape of what is computed of two, each repeated to the other's; `None` if not known."""
    if one is None or other is None:
        return None
    found: list[Dimension] = []
    for first, second in zip_longest(reversed(one), reversed(other), fillvalue=1):
        if first != second and 1 not in (first, second):
            return None
        found.append(second if first == 1 else first)
    return tuple(reversed(found))
