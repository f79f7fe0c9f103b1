"""The numbers in a graph's small constants."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memopt.graph.graph import Node

_MOST_NUMBERS = 64
"""More than any list of axes, sizes or positions has."""

_INTEGER_TYPES = {3: "<i4", 9: "<i8"}


def constant_numbers(node: Node) -> tuple[int, ...] | None:
    """The integers that a constant holds; `None` for a large one and for what is no constant."""
    value = node.attributes.get("value")
    if node.op != "Const" or value is None or value.tensor.dtype not in _INTEGER_TYPES:
        return None
    tensor = value.tensor
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
