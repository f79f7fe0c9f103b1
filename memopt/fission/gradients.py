"""Gradients of convolutions that are computed as products, where a kernel would need more memory.

TensorFlow's kernels for the host copy what filters read to columns, for as many images as make
30 MiB together with what they are multiplied by, and have memory for these however few there are.
The same products need less if they are written as operations of their own: see `patches` for
gradients of filters and `columns` for those of images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from memopt.graph.op_types import DT_FLOAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memopt.graph.graph import Node

_Kind = TypeVar("_Kind", bound="Gradient")

FLOAT_BYTES = 4
MOST_IMAGES = 1 << 13
"""Of how many images places are written down as constants."""
_UNKNOWN = "the shapes of what it reads and makes are not known"

_LAST = b"NHWC"
_PADDINGS = frozenset({b"SAME", b"VALID"})
_RANK = 4
_MOST_PRODUCTS = 36
_WORTH_IT = 0.9
"""Of what the kernel needs, what it may need at most as products."""


class Axis(NamedTuple):
    """Along rows or columns: how many images have, a filter reads, and the strides and results."""

    size: int
    read: int
    stride: int
    made: int

    @property
    def margin(self) -> int:
        """How much of what filters read lies outside of an image."""
        return max(0, (self.made - 1) * self.stride + self.read - self.size)


@dataclass(frozen=True, kw_only=True)
class Gradient(ABC):
    """What a gradient of a convolution reads and makes, and one way to compute it.

    Attributes:
        image: The shape of the images: samples, rows, columns, channels.
        filters: That of the filters: rows, columns, channels that are read and made.
        gradient: That of the gradient of what was made.
        strides: From filter to filter, by dimension of an image.
        padding: "SAME" or "VALID".
        parts: In how many parts it is computed.
    """

    image: tuple[int, ...]
    filters: tuple[int, ...]
    gradient: tuple[int, ...]
    strides: tuple[int, ...]
    padding: bytes
    parts: int = 1

    @property
    @abstractmethod
    def what(self) -> str:
        """What it is computed from, in words for a report."""

    @property
    @abstractmethod
    def kernel_bytes(self) -> int:
        """What is in use at least while the kernel computes it."""

    @property
    @abstractmethod
    def need_bytes(self) -> int:
        """What is in use at least while it is computed as products."""

    @property
    @abstractmethod
    def product_count(self) -> int:
        """How many products it takes."""

    @property
    @abstractmethod
    def variants(self) -> Iterable[Self]:
        """In parts of all numbers, the fewest first."""

    @property
    def ways(self) -> list[Self]:
        """The variants that need much less than the kernel."""
        most_bytes = _WORTH_IT * self.kernel_bytes
        few = [way for way in self.variants if way.product_count <= _MOST_PRODUCTS]
        return [way for way in few if way.need_bytes <= most_bytes]

    @property
    def axes(self) -> list[Axis]:
        """What is told of rows and of columns."""
        told = (self.image[1:3], self.filters[:2], self.strides[1:3], self.gradient[1:3])
        return [Axis(*each) for each in zip(*told, strict=True)]

    @property
    def is_of_pixels(self) -> bool:
        """Whether each filter reads one pixel, and every one is read."""
        return self.filters[:2] == (1, 1) and set(self.strides) == {1}

    @property
    def is_of_vector(self) -> bool:
        """Whether it is a product of a vector, which other kernels compute."""
        return min(self.elements, self.pixels * self.image[0]) == 1

    @property
    def pixels(self) -> int:
        """How many patches of an image filters read."""
        return prod(self.gradient[1:3])

    @property
    def elements(self) -> int:
        """How many numbers a patch has."""
        return prod(self.filters[:3])

    @property
    def margins(self) -> list[tuple[int, int]]:
        """How many zeros lie before and after each dimension of an image."""
        if self.padding != b"SAME":
            return [(0, 0)] * _RANK
        margins = [each.margin for each in self.axes]
        return [(0, 0), *((each // 2, each - each // 2) for each in margins), (0, 0)]

    @property
    def padded(self) -> tuple[int, ...]:
        """The shape of the images with their margins."""
        return tuple(size + sum(more) for size, more in zip(self.image, self.margins, strict=True))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many numbers the images, the filters and the gradient have."""
        return prod(self.image), prod(self.filters), prod(self.gradient)


def gradient_of(
    kind: type[_Kind], node: Node, shapes: Sequence[tuple[int, ...] | None], **told: int
) -> _Kind | str:
    """What a gradient reads and makes, or why it stays as it is.

    Args:
        kind: Of a gradient.
        node: The operation.
        shapes: Of images, filters and the gradient of what was made, as far as they are known.
        told: What else that kind is told.
    """
    image, filters, gradient = shapes
    if image is None or filters is None or gradient is None:
        return _UNKNOWN
    if any(min(shape, default=0) < 1 for shape in (image, filters, gradient)):
        return _UNKNOWN
    attributes = node.attributes
    strides, padding = tuple(attributes["strides"].list.i), attributes["padding"].s
    found = kind(
        image=image, filters=filters, gradient=gradient, strides=strides, padding=padding, **told
    )
    return _why_no_product(node, found) or found


def _why_no_product(node: Node, found: Gradient) -> str:
    """Why a gradient is not computed as products; "" if nothing speaks against it."""
    told, filters = node.attributes, found.filters
    if told["T"].type != DT_FLOAT or found.padding not in _PADDINGS:
        return "its numbers or its padding are of a kind that is not looked at"
    if "data_format" in told and told["data_format"].s != _LAST:
        return "its channels do not come last"
    dilations = told["dilations"].list.i if "dilations" in told else ()
    if set(dilations) - {1} or found.image[3] != filters[2]:
        return "its filters are dilated, or read some channels each"
    if found.is_of_vector:
        return "it is a product of a vector"
    return "" if found.ways else f"from {found.what} it would need hardly less"
