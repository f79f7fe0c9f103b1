"""Lists of tensors in functions that are written: empty, with one more element, with one less."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.attributes import type_attribute
from memopt.graph.op_types import DT_INT32, DT_VARIANT
from memopt.loops.bounded_loops import integers, number
from memopt.loops.function_body import Value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from memopt.graph.graph import Node
    from memopt.loops.function_body import FunctionBody, Shape

_ANY_SHAPE = -1
NO_LIMIT = -1
"""How many elements a list may have."""


def push(function: FunctionBody, into: Value, value: Value) -> Value:
    """The list with one more element."""
    attributes = {"element_dtype": type_attribute(value.dtype)}
    name = function.add("TensorListPushBack", "kept", [into.spelling, value.spelling], attributes)
    return into._replace(spelling=f"{name}:output_handle:0")


def pop(
    function: FunctionBody, out_of: Value, value: Value, controls: Sequence[str]
) -> tuple[Value, Value]:
    """The list without its last element, and the element."""
    shape = function.add("Const", "element_shape", (), shape_attributes(value.shape))
    inputs = [out_of.spelling, f"{shape}:output:0", *controls]
    attributes = {"element_dtype": type_attribute(value.dtype)}
    name = function.add("TensorListPopBack", "value", inputs, attributes)
    return (
        out_of._replace(spelling=f"{name}:output_handle:0"),
        value._replace(spelling=f"{name}:tensor:0"),
    )


def empty_list(function: FunctionBody, push: Node, element: Shape, most: int) -> Value:
    """An empty list of elements of the type that an operation puts into one, of so many at most."""
    shape = function.add("Const", "element_shape", (), shape_attributes(known_shape(element)))
    inputs = [f"{shape}:output:0", number(function, "most_elements", most)]
    name = function.add("EmptyTensorList", "kept", inputs, list_attributes(pushed_type(push)))
    return Value(f"{name}:handle:0", DT_VARIANT, ())


def pushed_type(push: Node) -> int:
    """The type of what an operation puts into a list."""
    return int(push.attributes["element_dtype"].type)


def known_shape(element: Shape) -> Shape:
    """What a list is told of its elements' shape: all of it or nothing."""
    return element if element is not None and -1 not in element else None


def list_attributes(dtype: int) -> dict[str, Any]:
    """Those of an operation that makes a list of elements of a type."""
    return {"element_dtype": type_attribute(dtype), "shape_type": type_attribute(DT_INT32)}


def shape_attributes(shape: Shape) -> dict[str, Any]:
    """Those of a Const that says an element's shape."""
    return integers(_ANY_SHAPE if shape is None else shape)
