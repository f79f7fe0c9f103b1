"""Gradients of filters as products of patches, where a kernel would hold columns of many images.

TensorFlow's kernel for the host copies what each filter reads to columns, for as many images as
make 30 MiB together with what they are multiplied by, and has memory for these however few there
are. What is computed here is the same product (`Conv2DCustomBackpropFilterOp`): of the patches of
all images, which are there once, and with filters of one pixel of the images themselves. Patches
are gathered pixel by pixel, which takes a third of the time that `ExtractImagePatches` does.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.host_scratch import images_at_once
from memopt.graph.op_types import DT_FLOAT

if TYPE_CHECKING:
    from memopt.graph.graph import Node
    from memopt.shapes.properties import Properties

GRADIENT = "Conv2DBackpropFilter"

_LAST = b"NHWC"
_PADDINGS = frozenset({b"SAME", b"VALID"})
_RANK = 4
_FLOAT_BYTES = 4
_MOST_PRODUCTS = 36
_WORTH_IT = 0.9
"""Of what the kernel needs, what it may need at most from patches."""


class _Axis(NamedTuple):
    """Along rows or columns: how many images have, a filter reads, and the strides and results."""

    size: int
    read: int
    stride: int
    made: int

    @property
    def margin(self) -> int:
        """How much of what filters read lies outside of an image."""
        return max(0, (self.made - 1) * self.stride + self.read - self.size)


class Patches(NamedTuple):
    """What a gradient of filters reads and makes.

    Attributes:
        image: The shape of the images: samples, rows, columns, channels.
        filters: That of the filters: rows, columns, channels that are read and made.
        gradient: That of the gradient of what was made.
        strides: From filter to filter, by dimension of an image.
        padding: "SAME" or "VALID".
        parts: In how many parts of the filters it is computed: 1, the rows of a filter, or its
            pixels.
    """

    image: tuple[int, ...]
    filters: tuple[int, ...]
    gradient: tuple[int, ...]
    strides: tuple[int, ...]
    padding: bytes
    parts: int = 1

    @property
    def axes(self) -> list[_Axis]:
        """What is told of rows and of columns."""
        told = (self.image[1:3], self.filters[:2], self.strides[1:3], self.gradient[1:3])
        return [_Axis(*each) for each in zip(*told, strict=True)]

    @property
    def is_of_pixels(self) -> bool:
        """Whether each filter reads one pixel, and every one is read: patches are the images."""
        return self.filters[:2] == (1, 1) and set(self.strides) == {1}

    @property
    def pixels(self) -> int:
        """How many patches an image has."""
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
    def kernel_bytes(self) -> int:
        """What is in use at least while the kernel computes it."""
        scratch = self._at_once * self.pixels * self.elements
        return _FLOAT_BYTES * (scratch + sum(map(prod, self[:3])))

    @property
    def need_bytes(self) -> int:
        """What is in use at least while it is computed from patches."""
        image, gradient, filters = map(prod, self[:3])
        # What is added up, and what all parts are put into.
        filters *= 1 + (len(self.products) > 1 or self.parts > 1)
        if self.is_of_pixels:
            return _FLOAT_BYTES * (image + gradient + filters)
        places = self.pixels * prod(self.filters[:2]) // self.parts
        patches = len(self.products[0]) * self.pixels * self.elements // self.parts
        read = image if self.padded == self.image else prod(self.padded)
        needs = [patches + gradient + filters, read + patches]
        if self.padded != self.image:
            needs.append(image + read)
        if len(self.products) * self.parts > 1:
            needs.append(read + patches + gradient + filters)
        return _FLOAT_BYTES * (places + max(needs))

    @property
    def products(self) -> list[range]:
        """Of which images the kernel multiplies the columns at once, and adds up the products."""
        samples, at_once = self.image[0], self._at_once
        return [range(n, min(n + at_once, samples)) for n in range(0, samples, at_once)]

    @property
    def windows(self) -> list[tuple[range, range]]:
        """Of each part, the rows and the columns of a filter that it has."""
        rows, columns = map(range, self.filters[:2])
        if self.parts == 1:
            return [(rows, columns)]
        if self.parts == len(rows):
            return [(rows[n : n + 1], columns) for n in rows]
        return [(rows[n : n + 1], columns[m : m + 1]) for n in rows for m in columns]

    @property
    def ways(self) -> list[Patches]:
        """In parts of all numbers, the fewest first: those that need much less than the kernel."""
        numbers = sorted({1, self.filters[0], prod(self.filters[:2])})
        ways = [self._replace(parts=parts) for parts in numbers]
        most_bytes = _WORTH_IT * self.kernel_bytes
        few = [way for way in ways if len(way.products) * way.parts <= _MOST_PRODUCTS]
        return [way for way in few if way.need_bytes <= most_bytes]

    @property
    def _at_once(self) -> int:
        return images_at_once(self.pixels, self.elements, self.filters[3], _FLOAT_BYTES)


def patches_of(node: Node, properties: Properties) -> Patches | str:
    """What a gradient of filters reads and makes, or why it stays as it is.

    Args:
        node: A Conv2DBackpropFilter.
        properties: What is certain of its graph.
    """
    image, _, gradient = (properties.shape(tensor.name) for tensor in node.inputs)
    filters = properties.shape(node.output().name)
    if image is None or filters is None or gradient is None:
        return "the shapes of what it reads and makes are not known"
    if any(min(shape, default=0) < 1 for shape in (image, filters, gradient)):
        return "the shapes of what it reads and makes are not known"
    told = node.attributes
    strides, padding = tuple(told["strides"].list.i), told["padding"].s
    patches = Patches(image, filters, gradient, strides, padding)
    return _why_not_from(node, patches) or patches


def _why_not_from(node: Node, patches: Patches) -> str:
    """Why a gradient is not computed from patches; "" if nothing speaks against it."""
    told, filters = node.attributes, patches.filters
    if told["T"].type != DT_FLOAT or patches.padding not in _PADDINGS:
        return "its numbers or its padding are of a kind that is not looked at"
    if "data_format" in told and told["data_format"].s != _LAST:
        return "its channels do not come last"
    dilations = told["dilations"].list.i if "dilations" in told else ()
    if set(dilations) - {1} or patches.image[3] != filters[2]:
        return "its filters are dilated, or read some channels each"
    if min(patches.elements, filters[3], patches.pixels * patches.image[0]) == 1:
        return "it is a product of a vector"
    return "" if patches.ways else "from patches it would need hardly less"
