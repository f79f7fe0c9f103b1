"""Gradients of images as products that make columns, which are added up to images.

TensorFlow's kernel for the host (`Conv2DCustomBackpropInputOp`) multiplies the gradient of each
image by the filters, and adds what comes of it to the pixels that the filters had read, patch by
patch. Its products are oneDNN's (`dnnl_sgemm`), which goes through the patches in blocks of 96;
what is left is halved if it is more than 144. The patches of a block come in groups of six, and
each of their numbers is one sum, rounded once for a product and its addition. One or two that are
left over are added up otherwise: even and odd channels apart, and products are rounded by
themselves. Products of many small matrices have no such rest, so that these patches are computed
once more, as the kernel does it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from memopt.buffers.host_scratch import columns_at_once
from memopt.fission.gradients import FLOAT_BYTES, Gradient, gradient_of

if TYPE_CHECKING:
    from memopt.graph.graph import Node
    from memopt.shapes.properties import Properties

_BLOCK = 96
_MOST_IN_A_BLOCK = 144
_GROUP = 6
_SMALL_RESTS = (1, 2)
_WITHOUT_REST = (0, 4, 5)
_MOST_PARTS = 16
_MOST_PLACES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Columns(Gradient):
    """A gradient of images; its parts have some of the images each.

    Attributes:
        threads: How many share the work of a kernel.
        rows: How many patches are multiplied as one matrix; 0: none, which is no way.
    """

    threads: int
    rows: int = 0

    @property
    def what(self) -> str:
        """What it is computed from, in words for a report."""
        return "columns" if self.parts == 1 else f"columns, in {self.parts} parts of the images"

    @property
    def kernel_bytes(self) -> int:
        """What is in use at least while the kernel computes it."""
        images = columns_at_once(
            self.image[0], self.pixels, self.elements, self.filters[3], FLOAT_BYTES, self.threads
        )
        return FLOAT_BYTES * (images * self.pixels * self.elements + sum(self.sizes))

    @property
    def need_bytes(self) -> int:
        """What is in use at least while it is computed from columns."""
        image, filters, gradient = self.sizes
        samples = len(self.products[0])
        of_part = samples / self.image[0]
        columns = samples * self.pixels * self.elements
        held, done = gradient + filters, 0.0
        if self.parts > 1:
            held += int(of_part * gradient)
            done = (1 - of_part) * image
        needs = [columns]
        again = samples * len(self.rest)
        if again:
            channels = self.filters[3]
            sums = again * self.elements
            needs.append(columns + again * channels + filters + (channels + 2) * sums)
            needs.append(2 * columns + sums)
        if not self.is_of_pixels:
            places = samples * self.pixels * prod(self.filters[:2])
            needs.append(columns + places + int(of_part * image))
        together = 2 * image if self.parts > 1 else 0
        return FLOAT_BYTES * max(held + int(done) + max(needs), together)

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
        return self.parts

    @property
    def rest(self) -> list[int]:
        """Which patches of an image the kernel adds up otherwise than all others."""
        rest: list[int] = []
        start = 0
        for size in _blocks(self.pixels):
            start += size
            if size % _GROUP in _SMALL_RESTS:
                rest += range(start - size % _GROUP, start)
        return rest

    @property
    def variants(self) -> list[Columns]:
        """In parts of all numbers, with matrices of some sizes, the fewest parts first."""
        if prod(self.image[:3]) >= _MOST_PLACES:
            return []
        numbers = [1]
        while 2 * numbers[-1] <= min(self.image[0], _MOST_PARTS):
            numbers.append(2 * numbers[-1])
        if self.image[0] <= _MOST_PARTS and self.image[0] not in numbers:
            numbers.append(self.image[0])
        found = []
        for each in map(self.in_parts, numbers):
            found += [replace(each, rows=rows) for rows in each.matrix_rows]
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
        whole = [self.pixels] if self.pixels % _GROUP in _WITHOUT_REST else []
        return list(dict.fromkeys(whole + fitting[-1:]))


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
