"""Small integer tensors worked out without TensorFlow: what graphs compute from shapes.

Every function here gives what TensorFlow's kernel gives, or nothing where that fails, where a
number does not fit its type, or where a result is large.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from memopt.graph.attributes import number_attribute
from memopt.graph.op_types import DT_INT32, DT_INT64

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    from memopt.graph.graph import Node

Array: TypeAlias = npt.NDArray[Any]
"""Whole numbers as Python's, which do not overflow."""

_LIMITS = {DT_INT32: 2**31, DT_INT64: 2**63}

MOST_ELEMENTS = 64
"""Larger tensors are no shapes."""


def as_array(numbers: Any) -> Array:
    """Numbers as an array of the kind that is used here."""
    return np.asarray(numbers, dtype=object)


def fits(value: Array, dtype: int) -> bool:
    """Whether a value is small and can be held by a type."""
    limit = _LIMITS.get(dtype)
    if limit is None or value.size > MOST_ELEMENTS:
        return False
    return all(-limit <= number < limit for number in value.flat)


def all_fit(values: Sequence[Array], dtypes: Sequence[int]) -> bool:
    """Whether there is a type for each value, which is small and can be held by it."""
    return len(values) == len(dtypes) and all(map(fits, values, dtypes))


def read_constant(node: Node) -> Array | None:
    """The value of a Const; `None` if it is no small tensor of integers, or damaged."""
    from tensorflow.python.framework import tensor_util

    attribute = node.attributes.get("value")
    if node.op != "Const" or attribute is None or attribute.tensor.dtype not in _LIMITS:
        return None
    sizes = [dimension.size for dimension in attribute.tensor.tensor_shape.dim]
    if any(size < 0 for size in sizes) or prod(sizes) > MOST_ELEMENTS:
        return None
    try:
        return as_array(tensor_util.MakeNdarray(attribute.tensor).tolist()).reshape(sizes)
    except (TypeError, ValueError):
        return None


def constant_attributes(value: Array, dtype: int) -> dict[str, AttrValue]:
    """The attributes of a Const that holds a value."""
    from tensorflow.core.framework import attr_value_pb2, tensor_pb2, tensor_shape_pb2

    shape = tensor_shape_pb2.TensorShapeProto(
        dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in value.shape]
    )
    numbers = [int(number) for number in value.flat]
    held = {"int_val" if dtype == DT_INT32 else "int64_val": numbers}
    tensor = tensor_pb2.TensorProto(dtype=dtype, tensor_shape=shape, **held)
    return {
        "dtype": attr_value_pb2.AttrValue(type=dtype),
        "value": attr_value_pb2.AttrValue(tensor=tensor),
    }


def evaluate(node: Node, inputs: list[Array]) -> tuple[Array, ...] | None:
    """What a node gives for the values of its inputs, by port; `None` if that is not certain."""
    function = EVALUATORS.get(node.op)
    if function is None:
        return None
    try:
        values = function(node, inputs)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        return None  # The kernel fails as well, and is left to say so.
    return None if values is None else tuple(as_array(value) for value in values)


Outputs: TypeAlias = tuple[Any, ...] | None


def _broadcast_gradient_args(node: Node, inputs: list[Array]) -> Outputs:
    """For two shapes the dimensions over which a gradient is summed (`BCastList`)."""
    del node
    shapes = [tuple(value.tolist()) for value in inputs]
    if shapes[0] == shapes[1]:
        return [], []
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    reduced: tuple[list[int], list[int]] = ([], [])
    for axis, sizes in enumerate(zip(*aligned, strict=True)):
        if 1 not in sizes and sizes[0] != sizes[1]:
            return None
        for sums, size in zip(reduced, sizes, strict=True):
            if size == 1:
                sums.append(axis)
    return reduced


def _broadcast_args(node: Node, inputs: list[Array]) -> Outputs:
    del node
    shapes = [tuple(int(size) for size in value.tolist()) for value in inputs]
    return (np.broadcast_shapes(*shapes),)


def _concat_offset(node: Node, inputs: list[Array]) -> Outputs:
    del node
    axis, *shapes = inputs
    (place,) = axis.reshape(1)
    rank = len(shapes[0])
    if not -rank <= place < rank:
        return None
    rest = [np.delete(shape, place).tolist() for shape in shapes]
    if any(sizes != rest[0] for sizes in rest):
        return None
    offsets, start = [], 0
    for shape in shapes:
        offset = as_array([0] * rank)
        offset[place] = start
        offsets.append(offset)
        start += shape[place]
    return tuple(offsets)


def _strided_slice(node: Node, inputs: list[Array]) -> Outputs:
    value, begin, end, strides = inputs
    if number_attribute(node, "ellipsis_mask") or number_attribute(node, "new_axis_mask"):
        return None
    masks = [number_attribute(node, f"{name}_mask") for name in ("begin", "end", "shrink_axis")]
    index: list[int | slice] = []
    for place, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        open_start, open_end, shrinks = (mask >> place & 1 for mask in masks)
        if shrinks and step <= 0:
            return None
        cut = slice(None if open_start else first, None if open_end else last, step)
        index.append(int(first) if shrinks else cut)
    return (value[tuple(index)],)


def _pack(node: Node, inputs: list[Array]) -> Outputs:
    return (np.stack(inputs, axis=number_attribute(node, "axis")),)


def _concat(node: Node, inputs: list[Array]) -> Outputs:
    del node
    *values, axis = inputs
    return (np.concatenate(values, axis=int(axis)),)


def _gather(node: Node, inputs: list[Array]) -> Outputs:
    values, places, axis = inputs
    if number_attribute(node, "batch_dims") or any(place < 0 for place in places.flat):
        return None
    return (np.take(values, places.astype(np.int64), axis=int(axis)),)


def _reduction(function: Callable[..., Any]) -> Callable[[Node, list[Array]], Outputs]:
    def apply(node: Node, inputs: list[Array]) -> Outputs:
        value, axes = inputs
        places = tuple(int(axis) for axis in axes.flat)
        return (function(value, axis=places, keepdims=bool(number_attribute(node, "keep_dims"))),)

    return apply


def _range(node: Node, inputs: list[Array]) -> Outputs:
    del node
    numbers = range(*(int(value) for value in inputs))
    # The length of a long one is no integer for `len`.
    return None if numbers[MOST_ELEMENTS:] else (list(numbers),)


def _expand_dims(node: Node, inputs: list[Array]) -> Outputs:
    del node
    value, axis = inputs
    (place,) = axis.reshape(1)
    return (np.expand_dims(value, int(place)),)


def _squeeze(node: Node, inputs: list[Array]) -> Outputs:
    squeezed = node.attributes.get("squeeze_dims")
    axes = tuple(squeezed.list.i) if squeezed is not None else ()
    return (np.squeeze(inputs[0], axis=axes or None),)


def _invert_permutation(node: Node, inputs: list[Array]) -> Outputs:
    """For an order of dimensions the one that undoes it."""
    del node
    order = inputs[0].tolist()
    if sorted(order) != list(range(len(order))):
        return None
    return (np.argsort(inputs[0].astype(np.int64)).astype(object),)


def _same(node: Node, inputs: list[Array]) -> Outputs:
    del node
    return (inputs[0],)


def _elementwise(function: Callable[[Any, Any], Any]) -> Callable[[Node, list[Array]], Outputs]:
    def apply(node: Node, inputs: list[Array]) -> Outputs:
        del node
        return (reduce(function, inputs),)

    return apply


EVALUATORS: Mapping[str, Callable[[Node, list[Array]], Outputs]] = MappingProxyType(
    {
        "Add": _elementwise(np.add),
        "AddV2": _elementwise(np.add),
        "BroadcastArgs": _broadcast_args,
        "BroadcastGradientArgs": _broadcast_gradient_args,
        "Cast": _same,
        "ConcatOffset": _concat_offset,
        "ConcatV2": _concat,
        "ExpandDims": _expand_dims,
        "FloorDiv": _elementwise(np.floor_divide),
        "FloorMod": _elementwise(np.mod),
        "GatherV2": _gather,
        "Identity": _same,
        "InvertPermutation": _invert_permutation,
        "Max": _reduction(np.max),
        "Maximum": _elementwise(np.maximum),
        "Min": _reduction(np.min),
        "Minimum": _elementwise(np.minimum),
        "Mul": _elementwise(np.multiply),
        "Pack": _pack,
        "Prod": _reduction(np.prod),
        "Range": _range,
        "Squeeze": _squeeze,
        "StridedSlice": _strided_slice,
        "Sub": _elementwise(np.subtract),
    }
)
"""The ops that are worked out; a cast gives the same number or, by `fits`, none."""
