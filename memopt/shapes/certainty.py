"""Which shapes are certain in every call of a step, and which only in calls of one kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.shapes.function_calls import HANDLES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.shapes.properties import Properties

_PYTHON = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
"""Ops that return what they like; what a graph says of its shape nobody checks."""

_GIVEN = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})


class CertainShapes:
    """Tells the shapes that tensors have whatever the caller gives.

    The shapes of a graph are worked out from what it declares. A Placeholder whose whole shape is
    declared is taken at its word: sessions refuse other values, and in functions TensorFlow's own
    constant folding goes by it. Not certain is what is computed from anything else that is fed: a
    Placeholder with open dimensions, an inner tensor, the argument of a function, which another
    call may give in another shape. Nor is what Python returns, or what is read from a v1 variable
    that an Assign may give another shape.
    """

    def __init__(self, graph: Graph, properties: Properties, fed: Collection[str]) -> None:
        self._library = graph.library
        self._properties = properties
        self._causes: dict[Node, Node] = {}
        for node in graph:
            self._causes.update((source, node) for source in _uncertain(node, fed))
        pending = list(self._causes)
        for node in pending:
            for tensor in node.outputs:
                for reader, _ in tensor.uses:
                    if reader not in self._causes:
                        self._causes[reader] = self._causes[node]
                        pending.append(reader)

    def find(self, tensor: Tensor) -> tuple[int, ...] | str:
        """The shape of a tensor, or why it is not certain.

        Raises:
            InvalidGraphError: TensorFlow refuses the graph.
        """
        dtype = op_types.port_types(tensor.node, self._library).outputs[tensor.port]
        if dtype % op_types.REF_TYPE_OFFSET in HANDLES:
            return f"{tensor.name!r} is a handle"
        cause = self._causes.get(tensor.node)
        if cause is not None:
            return f"the shape of {tensor.name!r} could be another, because of {cause.name!r}"
        known = self._properties.tensor(tensor.name)
        if known is None or known.shape is None or not known.is_known:
            return f"the shape of {tensor.name!r} is not known"
        return known.shape


def _uncertain(node: Node, fed: Collection[str]) -> Iterator[Node]:
    """The nodes whose shapes are not certain because of a node: itself, or what it updates."""
    is_given = node.op in _GIVEN or node.name in fed
    if node.op in _PYTHON or (is_given and not _is_whole(node)):
        yield node
    elif node.op == "Assign" and not _validates(node):
        variable = node.inputs[0].node
        while variable.op in op_types.FORWARDING:
            variable = variable.inputs[0].node
        yield variable


def _is_whole(placeholder: Node) -> bool:
    """Whether a whole shape is declared, and enforced."""
    declared = placeholder.attributes.get("shape")
    if placeholder.op != "Placeholder" or declared is None or declared.shape.unknown_rank:
        return False
    return all(dimension.size >= 0 for dimension in declared.shape.dim)


def _validates(assign: Node) -> bool:
    validate = assign.attributes.get("validate_shape")
    return validate is None or bool(validate.b)
