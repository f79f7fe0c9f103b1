"""A loop in a graph that becomes another one, with other variables and other functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.functiondef import to_function_def

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tensorflow.core.framework.function_pb2 import FunctionDef

    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.loops.function_body import Shape
    from memopt.loops.pairs import Body


def become(
    rewriter: Rewriter,
    node: Node,
    positions: Sequence[int],
    attributes: dict[str, Any],
    given: Sequence[Tensor],
) -> None:
    """Make a loop in the graph another one; what reads it reads the same of it.

    Args:
        rewriter: Changes the graph; an edit is open.
        node: The loop.
        positions: Those of its variables that are the first ones of the other.
        attributes: What the other one is told.
        given: What it is given.
    """
    for place, position in enumerate(positions):
        # Nobody reads what stood at the lower position any more.
        if place != position:
            rewriter.replace_uses(node.output(position), node.output(place))
    rewriter.set_op(node, node.op, attributes)
    rewriter.set_inputs(node, given)


def definition_of(body: Body) -> FunctionDef:
    """A function of a loop, as a library has it."""
    return to_function_def(body.graph)


def variable_shapes(node: Node, count: int) -> list[Shape]:
    """The shapes of a loop's variables, as far as it says so."""
    value = node.attributes.get("output_shapes")
    shapes = [] if value is None else list(value.list.shape)
    if len(shapes) != count:
        return [None] * count
    return [
        None if shape.unknown_rank else tuple(dimension.size for dimension in shape.dim)
        for shape in shapes
    ]


def read_only(node: Node, stays: Sequence[int]) -> dict[str, Any]:
    """Which variables are resources that no turn changes, of those that stay.

    Args:
        node: The loop.
        stays: The positions of the variables that stay, in their new order; -1 for one that is new.
    """
    from tensorflow.core.framework import attr_value_pb2

    value = node.attributes.get("_read_only_resource_inputs")
    if value is None:
        return {}
    told = attr_value_pb2.AttrValue()
    told.list.i.extend(stays.index(position) for position in value.list.i if position in stays)
    return {"_read_only_resource_inputs": told}
