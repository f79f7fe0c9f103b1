"""What is known of one tensor: type, shape, bytes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from memopt.graph.op_types import DT_RESOURCE, DT_STRING, DT_VARIANT, REF_TYPE_OFFSET

if TYPE_CHECKING:
    from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto

Shape: TypeAlias = tuple[int, ...] | None
"""Dimensions in elements, -1 for one that is not known; `None` if the rank is not."""

_DATA_ELSEWHERE = frozenset({DT_STRING, DT_VARIANT})
"""Types whose elements point to memory that the shape says nothing of."""

ELEMENT_BYTES = {
    **dict.fromkeys((4, 6, 10, 11, 12, *range(24, 34)), 1),  # 8 bits and less
    **dict.fromkeys((5, 14, 15, 16, 17, 19), 2),
    **dict.fromkeys((1, 3, 13, 22), 4),
    **dict.fromkeys((2, 8, 9, 23), 8),
    18: 16,
}
"""Bytes of an element by TensorFlow's enumeration value (`DataTypeSize`).

Strings, resources and variants have no fixed size and are not in it.
"""


class TensorProperties(NamedTuple):
    """What is known of one tensor.

    Attributes:
        dtype: TensorFlow's enumeration value of the element type; references as values.
        shape: Dimensions in elements, -1 for one that is not known; `None` if the rank is not.
        size_bytes: Bytes of the elements; `None` when not known, never zero for not known.
    """

    dtype: int
    shape: Shape
    size_bytes: int | None

    @property
    def is_known(self) -> bool:
        """Whether every dimension is known."""
        return self.shape is not None and -1 not in self.shape

    @property
    def least_bytes(self) -> int:
        """The bytes that Grappler counts (`CalculateTensorSize`): at least so many there are.

        A dimension that is not known counts as 1, and so does a rank; strings, resources and
        variants count nothing.
        """
        if self.size_bytes is not None:
            return self.size_bytes
        elements = prod(1 if size == -1 else size for size in self.shape or ())
        return elements * ELEMENT_BYTES.get(self.dtype, 0)


NodeProperties: TypeAlias = Mapping[str, tuple[TensorProperties, ...]]
"""For each node what is known of its outputs, by port."""


@lru_cache(maxsize=1 << 14)
def tensor_properties(dtype: int, shape: Shape) -> TensorProperties:
    """What is known of a tensor of that type and shape; references as values.

    A graph has few distinct ones, so they are shared.
    """
    dtype %= REF_TYPE_OFFSET
    if dtype == DT_RESOURCE:
        # A handle; the variable behind it is no tensor of the graph.
        return TensorProperties(dtype, shape, 0)
    if shape is None or -1 in shape or dtype in _DATA_ELSEWHERE:
        return TensorProperties(dtype, shape, None)
    element_bytes = ELEMENT_BYTES.get(dtype)
    size_bytes = None if element_bytes is None else prod(shape) * element_bytes
    return TensorProperties(dtype, shape, size_bytes)


def known_by_either(one: TensorProperties, other: TensorProperties) -> TensorProperties:
    """All that two inferences know of the same tensor; where they differ, the first is right."""
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return other if one.shape is None else one
    sizes = zip(one.shape, other.shape, strict=True)
    return tensor_properties(one.dtype, tuple(b if a == -1 else a for a, b in sizes))


def set_shape(message: TensorShapeProto, shape: Shape) -> None:
    """Say a shape in a message that says nothing yet."""
    message.SetInParent()
    if shape is None:
        message.unknown_rank = True
        return
    for size in shape:
        message.dim.add(size=size)
