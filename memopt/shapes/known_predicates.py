"""What decides which side of a branch is taken, where shapes and constants tell."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.shapes.certainty import CertainShapes
from memopt.shapes.known_integers import KnownIntegers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.shapes.properties import Properties
    from memopt.shapes.tensor_properties import TensorProperties

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "Equal": operator.eq,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
    "Less": operator.lt,
    "LessEqual": operator.le,
    "NotEqual": operator.ne,
}
_HANDED_ON = frozenset({"Identity", "Switch"})
_NOT = "LogicalNot"


class KnownPredicates:
    """Tells predicates that are the same whatever the caller gives.

    These are constants, and comparisons of numbers that are computed of certain shapes alone: how
    long a sequence is, whether there is an odd one. Grappler folds such a comparison only where it
    sees the shape, and it does not see one behind a branch that it has not folded before.

    Args:
        graph: The graph.
        properties: What is known of its tensors.
        fed: Names of the nodes that the caller feeds.
    """

    def __init__(self, graph: Graph, properties: Properties, fed: Collection[str]) -> None:
        certain = CertainShapes(graph, properties.certain, fed)

        def told(tensor: Tensor) -> TensorProperties | None:
            is_certain = isinstance(certain.find(tensor), tuple)
            return properties.certain.tensor(tensor.name) if is_certain else None

        self._fed = fed
        self._integers = KnownIntegers(told)

    def value(self, predicate: Tensor) -> bool | None:
        """What a predicate is in every call; `None` if that is not known."""
        node, is_negated = predicate.node, False
        seen: set[Node] = set()
        while node.op in _HANDED_ON or node.op == _NOT:
            if node in seen or node.name in self._fed:
                return None
            seen.add(node)
            is_negated ^= node.op == _NOT
            node = node.inputs[0].node
        found = None if node.name in self._fed else self._decided(node)
        return None if found is None else found != is_negated

    def _decided(self, node: Node) -> bool | None:
        if node.op == "Const":
            return _read_constant(node)
        compare = _COMPARISONS.get(node.op)
        if compare is None:
            return None
        numbers = [self._integers.number(tensor) for tensor in node.inputs]
        known = [number for number in numbers if number is not None]
        return compare(*known) if len(known) == len(numbers) else None


def _read_constant(node: Node) -> bool | None:
    """The value of a Const; `None` if it is not a single truth value, or damaged."""
    from tensorflow.python.framework import tensor_util

    attribute = node.attributes.get("value")
    if attribute is None or attribute.tensor.dtype != op_types.DT_BOOL:
        return None
    if attribute.tensor.tensor_shape.dim:
        return None
    try:
        return bool(tensor_util.MakeNdarray(attribute.tensor).item())
    except (TypeError, ValueError):
        return None
