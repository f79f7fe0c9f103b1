"""Gradients of images as products that make columns, which are added up to images.

TensorFlow's kernel for the host (`Conv2DCustomBackpropInputOp`) multiplies the gradient of each
image by the filters, and adds what comes of it to the pixels that the filters had read, patch by
patch. Its products are oneDNN's (`dnnl_sgemm`), which goes through the patches in blocks of 96;
what is left is halved if it is more than 144. The patches of a block come in groups of six, and
each of their numbers is one sum, rounded once for a product and its addition. Up to three that are
left over are added up otherwise: even and odd channels apart, and one or two patches with products
that are rounded by themselves. A product of all patches, or of many small matrices, has no such
rest but at its end, so that these patches are computed once more, as the kernel does it.

Where patches are next to each other, their pixels can be multiplied one by one, the last one first,
and added up as images that are moved: that takes half of the time, and less memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.host_scratch import columns_at_once
from memopt.fission.gradients import FLOAT_BYTES, MOST_IMAGES, Gradient, gradient_of

if TYPE_CHECKING:
    from memopt.graph.graph import Node
    from memopt.shapes.properties import Properties

_BLOCK = 96
_MOST_IN_A_BLOCK = 144
_GROUP = 6
_RESTS = (1, 2, 3)
_FUSED = 3
_WITHOUT_REST = (0, 4, 5)
_OF_END = 4
_MOST_PARTS = 16
_MOST_MOVED = 9
_MOST_PLACES = 1 << 30


class Rest(NamedTuple):
    """The last patches of blocks that are added up in one way.

    Attributes:
        patches: Of each image.
        is_fused: Whether products and their additions are rounded once.
    """

    patches: list[int]
    is_fused: bool


@dataclass(frozen=True, kw_only=True)
class Columns(Gradient):
    """A gradient of images; its parts have some of the images each.

    Attributes:
        threads: How many share the work of a kernel.
        rows: How many patches are multiplied as one of many matrices; 0: all as one.
        by_pixels: Whether the pixels of patches are multiplied one by one.
    """

    threads: int
    rows: int = 0
    by_pixels: bool = False

    @property
    def what(self) -> str:
        """What it is computed from, in words for a report."""
        return "columns" if self.parts == 1 else f"columns, in {self.parts} parts of the images"

    @property
    def kernel_bytes(self) -> int:
        """What is in use at least while the kernel computes it."""
        columns = self._at_once * self.pixels * self.elements
        return FLOAT_BYTES * (columns + sum(self.sizes))

    @property
    def need_bytes(self) -> int:
        """What is in use at least while it is computed from columns."""
        image, filters, gradient = self.sizes
        samples = len(self.products[0])
        of_part = samples / self.image[0]
        held, done = gradient + filters, 0.0
        if self.parts > 1:
            held += int(of_part * gradient)
            done = (1 - of_part) * image
        patches = samples * self.pixels
        columns = patches * (self.filters[2] if self.by_pixels else self.elements)
        again = samples * sum(len(each.patches) for each in self.rest) + len(self.end(samples))
        sums = again * self.elements
        needs = [columns, 2 * columns if again else 0]
        if self.rest:
            channels = self.filters[3]
            needs.append(again * channels + filters + (channels + 2) * sums)
        if self.by_pixels:
            moved = int(of_part * prod(self.padded))
            needs.append(moved + max(2 * columns, columns + moved, moved + int(of_part * image)))
        elif not self.is_of_pixels:
            needs.append(columns + patches * prod(self.filters[:2]) + int(of_part * image))
        together = 2 * image if self.parts > 1 else 0
        return FLOAT_BYTES * max(held + sums + int(done) + max(needs), together)

    @property
    def products(self) -> list[range]:
        """The images of each part."""
        samples, parts = self.image[0], self.parts
        # The first has as many images as any: what a part needs is told of that one.
        ends = [samples - samples * part // parts for part in range(parts, -1, -1)]
        return [range(*each) for each in pairwise(ends)]

    @property
    def product_count(self) -> int:
        """How many products it takes."""
        return self.parts * (prod(self.filters[:2]) if self.by_pixels else 1)

    @property
    def rest(self) -> list[Rest]:
        """Which patches of an image the kernel adds up otherwise than all others."""
        sizes = _blocks(self.pixels)
        rests = [
            (range(stop - size % _GROUP, stop), size % _GROUP == _FUSED)
            for stop, size in zip(accumulate(sizes), sizes, strict=True)
            if size % _GROUP in _RESTS
        ]
        kinds = dict.fromkeys(is_fused for _, is_fused in rests)
        return [
            Rest([patch for some, kind in rests if kind == is_fused for patch in some], is_fused)
            for is_fused in kinds
        ]

    @property
    def variants(self) -> list[Columns]:
        """In parts of all numbers, first by pixels, with matrices of some sizes."""
        # Threads share the work of each image where there is much, by another rule.
        is_large = self.image[0] > MOST_IMAGES or prod(self.image[:3]) >= _MOST_PLACES
        if self._at_once == 1 or is_large:
            return []
        numbers = [1]
        while 2 * numbers[-1] <= min(self.image[0], _MOST_PARTS):
            numbers.append(2 * numbers[-1])
        can_be = set(self.strides) == {1} and 1 < prod(self.filters[:2]) <= _MOST_MOVED
        found = []
        for each in (replace(self, parts=number) for number in numbers):
            rows = each.matrix_rows
            for by_pixels in [True, False] if can_be else [False]:
                found += [replace(each, rows=number, by_pixels=by_pixels) for number in rows]
        return found

    @property
    def matrix_rows(self) -> list[int]:
        """Of how many patches matrices can be that have no rest."""
        sizes = {len(images) * self.pixels for images in self.products}
        within = range(1, min(_MOST_IN_A_BLOCK, *sizes) + 1)
        fitting = [
            rows
            for rows in within
            if rows % _GROUP in _WITHOUT_REST and not any(size % rows for size in sizes)
        ]
        found = [0]
        if self.pixels % _GROUP in _WITHOUT_REST:
            found.append(self.pixels)
        found += fitting[-1:]
        # How processors share a larger one can have a rest, too.
        found += [rows for rows in fitting if rows <= _MOST_IN_A_BLOCK // 2][-1:]
        return list(dict.fromkeys(found))

    def end(self, images: int) -> range:
        """The last patches of some images, which a product of all adds up otherwise."""
        patches = images * self.pixels
        rest = patches % _GROUP
        again = {self.pixels - each for some in self.rest for each in some.patches}
        if self.rows or rest in _WITHOUT_REST or again >= set(range(1, rest + 1)):
            return range(0)
        return range(patches - min(_OF_END, patches), patches)

    @property
    def _at_once(self) -> int:
        """How many images' columns the kernel holds."""
        sizes = (self.pixels, self.elements, self.filters[3])
        return columns_at_once(self.image[0], *sizes, FLOAT_BYTES, self.threads)


def columns_of(node: Node, properties: Properties, threads: int) -> Columns | str:
    """What a gradient of images reads and makes, or why it stays as it is.

    Args:
        node: A Conv2DBackpropInput.
        properties: What is certain of its graph.
        threads: How many share the work of a kernel.
    """
    _, filters, gradient = (properties.shape(tensor.name) for tensor in node.inputs)
    image = properties.shape(node.output().name)
    return gradient_of(Columns, node, (image, filters, gradient), threads=threads)


def _blocks(patches: int) -> list[int]:
    """How many patches each block of the kernel's product has."""
    full = max(0, patches // _BLOCK - 1)
    left = patches - full * _BLOCK
    if left <= _MOST_IN_A_BLOCK:
        return [_BLOCK] * full + [left]
    return [_BLOCK] * full + [left - left // 2, left // 2]
