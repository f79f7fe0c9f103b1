"""The numbers in a graph's small constants."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorflow.core.framework.tensor_pb2 import TensorProto

    from memopt.graph.graph import Node

_MOST_NUMBERS = 64
"""More than any list of axes, sizes or positions has."""

_INTEGER_TYPES = {3: "<i4", 9: "<i8"}


def constant_numbers(node: Node) -> tuple[int, ...] | None:
    """The integers that a constant holds; `None` for a large one and for what is no constant."""
    value = node.attributes.get("value")
    return tensor_numbers(value.tensor) if node.op == "Const" and value is not None else None


def tensor_numbers(tensor: TensorProto) -> tuple[int, ...] | None:
    """The integers that a message holds; `None` for many of them, and for other numbers."""
    if tensor.dtype not in _INTEGER_TYPES:
        return None
    count = prod(dimension.size for dimension in tensor.tensor_shape.dim)
    if count > _MOST_NUMBERS:
        return None
    if tensor.tensor_content:
        import numpy as np

        content = np.frombuffer(tensor.tensor_content, _INTEGER_TYPES[tensor.dtype])
        return tuple(int(number) for number in content)
    listed = tuple(tensor.int_val) or tuple(tensor.int64_val) or (0,)
    # The last number stands for all that follow.
    return (*listed, *[listed[-1]] * (count - len(listed)))[:count]
