"""Gradients of filters as products of patches.

What is computed is the product that TensorFlow's kernel for the host computes of columns
(`Conv2DCustomBackpropFilterOp`): of the patches of all images, which are there once, and with
filters of one pixel of the images themselves. Patches are gathered pixel by pixel, which takes a
third of the time that `ExtractImagePatches` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from memopt.buffers.host_scratch import images_at_once
from memopt.fission.gradients import FLOAT_BYTES, Gradient, gradient_of

if TYPE_CHECKING:
    from memopt.graph.graph import Node
    from memopt.shapes.properties import Properties


@dataclass(frozen=True, kw_only=True)
class Patches(Gradient):
    """A gradient of filters; its parts are the rows of a filter, or its pixels."""

    @property
    def what(self) -> str:
        """What it is computed from, in words for a report."""
        return "patches" if self.parts == 1 else f"patches, in {self.parts} parts of filters"

    @property
    def padded(self) -> tuple[int, ...]:
        """The shape of the images with their margins."""
        return tuple(size + sum(more) for size, more in zip(self.image, self.margins, strict=True))

    @property
    def kernel_bytes(self) -> int:
        """What is in use at least while the kernel computes it."""
        scratch = self._at_once * self.pixels * self.elements
        return FLOAT_BYTES * (scratch + sum(self.sizes))

    @property
    def need_bytes(self) -> int:
        """What is in use at least while it is computed from patches."""
        image, filters, gradient = self.sizes
        # What is added up, and what all parts are put into.
        filters *= 1 + (len(self.products) > 1 or self.parts > 1)
        if self.is_of_pixels:
            return FLOAT_BYTES * (image + gradient + filters)
        places = self.pixels * prod(self.filters[:2]) // self.parts
        patches = len(self.products[0]) * self.pixels * self.elements // self.parts
        read = image if self.padded == self.image else prod(self.padded)
        needs = [patches + gradient + filters, read + patches]
        if self.padded != self.image:
            needs.append(image + read)
        if self.product_count > 1:
            needs.append(read + patches + gradient + filters)
        return FLOAT_BYTES * (places + max(needs))

    @property
    def products(self) -> list[range]:
        """Of which images the kernel multiplies the columns at once, and adds up the products."""
        samples, at_once = self.image[0], self._at_once
        return [range(n, min(n + at_once, samples)) for n in range(0, samples, at_once)]

    @property
    def product_count(self) -> int:
        """How many products it takes."""
        return len(self.products) * self.parts

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
    def variants(self) -> list[Patches]:
        """As a whole, by the rows of a filter and by its pixels."""
        return [
            self.in_parts(parts) for parts in sorted({1, self.filters[0], prod(self.filters[:2])})
        ]

    @property
    def _at_once(self) -> int:
        return images_at_once(self.pixels, self.elements, self.filters[3], FLOAT_BYTES)


def patches_of(node: Node, properties: Properties) -> Patches | str:
    """What a gradient of filters reads and makes, or why it stays as it is.

    Args:
        node: A Conv2DBackpropFilter.
        properties: What is certain of its graph.
    """
    image, _, gradient = (properties.shape(tensor.name) for tensor in node.inputs)
    filters = properties.shape(node.output().name)
    return gradient_of(Patches, node, (image, filters, gradient))
