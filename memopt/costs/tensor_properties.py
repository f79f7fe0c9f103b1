"""What is known of one tensor: type, shape, bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias


class TensorProperties(NamedTuple):
    """What is known of one tensor.

    Attributes:
        dtype: TensorFlow's enumeration value of the element type; references as values.
        shape: Dimensions in elements, -1 for one that is not known; `None` if the rank is not.
        size_bytes: Bytes of the elements; `None` when not known, never zero for not known.
    """

    dtype: int
    shape: tuple[int, ...] | None
    size_bytes: int | None


NodeProperties: TypeAlias = Mapping[str, tuple[TensorProperties, ...]]
"""For each node what is known of its outputs, by port."""
