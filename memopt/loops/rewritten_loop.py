"""A loop in a graph that becomes another one, with other variables and other functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.functiondef import to_function_def
from memopt.graph.op_types import port_types
from memopt.graph.rewriter import Touches
from memopt.loops.bounded_loops import Turns, lasting_attributes
from memopt.loops.function_body import FunctionBody, Value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto

    from memopt.graph.graph import FunctionLibrary, Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.loops.function_body import Shape
    from memopt.loops.pairs import Loop

TOUCHES = frozenset(
    {Touches.NODES, Touches.DATA_EDGES, Touches.OPS, Touches.ATTRIBUTES, Touches.FUNCTIONS}
)
"""What a pass touches that writes loops anew."""


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


def functions_of(loop: Loop) -> tuple[FunctionBody, FunctionBody]:
    """The functions of a loop, to be written anew: its test and its body."""
    test, body = (FunctionBody(to_function_def(each.graph)) for each in (loop.test, loop.body))
    return test, body


def turns_of(
    loop: Loop,
    name: str,
    positions: Sequence[int],
    functions: tuple[FunctionBody, FunctionBody] | None = None,
) -> Turns:
    """The turns of a loop with some of its variables only.

    Args:
        loop: The loop.
        name: What the names of its functions begin with.
        positions: Those of the variables. Nothing that is needed for them reads another one.
        functions: Its test and its body, where these were changed.
    """
    test, body = functions or functions_of(loop)
    body.keep(positions, positions, effects=True)
    test.keep(positions, [0], effects=True)
    return Turns(loop.node.op, lasting_attributes(loop.node.attributes), test, body, name)


def variables_of(loop: Loop, library: FunctionLibrary | None) -> list[Value]:
    """The types of a loop's variables, and their shapes as far as it says so; under new names."""
    types = port_types(loop.node, library).outputs
    value = loop.node.attributes.get("output_shapes")
    shapes = [] if value is None else list(value.list.shape)
    told = len(shapes) == len(types)
    return [
        Value(f"variable_{position}", dtype, _shape(shapes[position]) if told else None)
        for position, dtype in enumerate(types)
    ]


def _shape(shape: TensorShapeProto) -> Shape:
    return None if shape.unknown_rank else tuple(dimension.size for dimension in shape.dim)


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
