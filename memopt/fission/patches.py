"""Gradients of filters as products of patches.

What is computed is the product that TensorFlow's kernel for the host computes of columns
(`Conv2DCustomBackpropFilterOp`): of the patches of all images, which are there once, and with
filters of one pixel of the images themselves. Patches are gathered pixel by pixel, which takes a
third of the time that `ExtractImagePatches` does.

Where all patches together need too much, there are two ways. Parts of the filters, of whose pixels
the patches have some each: but how threads share a product depends on its size, and with that the
order in which it adds up. Or runs of patches: a product that threads share adds up blocks of up to
320 patches one after the other (`TensorContractionBlocking` of Eigen), and more than 256 by halves
(`dnnl_sgemm`), so that the products of these are added up in their order. Of few channels that are
made, a product takes half the time if it is computed as columns; where threads share it otherwise
then, it has other bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from memopt.buffers.host_scratch import images_at_once
from memopt.buffers.kernel_rules import ALIGNMENT_BYTES
from memopt.buffers.rounding import divided
from memopt.fission.gradients import FLOAT_BYTES, MOST_IMAGES, Gradient, gradient_of

if TYPE_CHECKING:
    from memopt.graph.graph import Node
    from memopt.shapes.properties import Properties

_MOST_IN_A_BLOCK = 320
_MOST_AT_ONCE = 256
_GROUP = 8
_RUNS = (2, 4, 8, 16)
_SIDE, _OTHER_RESTS = 6, frozenset({1, 2, 3})
"""Of how many columns products make results at once, and how many that are left over are added up
in another order."""


@dataclass(frozen=True, kw_only=True)
class Patches(Gradient):
    """A gradient of filters; its parts are the rows of a filter, or its pixels.

    Attributes:
        runs: In how many runs of patches it is computed; 0: as Eigen shares the products.
        is_turned: Whether the products of runs have a row for each channel that is made.
    """

    runs: int = 0
    is_turned: bool = False

    @property
    def what(self) -> str:
        """What it is computed from, in words for a report."""
        if self.runs:
            return f"patches, in {self.runs} runs" + ", turned" * self.is_turned
        return "patches" if self.parts == 1 else f"patches, in {self.parts} parts of filters"

    @property
    def is_of_vector(self) -> bool:
        """Whether it is a product of a vector, which other kernels compute."""
        return super().is_of_vector or self.filters[3] == 1

    @property
    def kernel_bytes(self) -> int:
        """What is in use at least while the kernel computes it."""
        scratch = self._at_once * self.pixels * self.elements
        return FLOAT_BYTES * (scratch + sum(self.sizes))

    @property
    def need_bytes(self) -> int:
        """What is in use at least while it is computed from patches."""
        if self.runs:
            return self._bytes_in_runs
        image, filters, gradient = self.sizes
        # What is added up, and what all parts are put into.
        filters *= 1 + (len(self.products) > 1 or self.parts > 1)
        if self.is_of_pixels:
            return FLOAT_BYTES * (image + gradient + filters)
        places = self.pixels * prod(self.filters[:2]) // self.parts
        patches = len(self.products[0]) * self.pixels * self.elements // self.parts
        needs = [patches + gradient + filters, self._read + patches]
        if self.padded != self.image:
            needs.append(image + self._read)
        if self.product_count > 1:
            needs.append(self._read + patches + gradient + filters)
        return FLOAT_BYTES * (places + max(needs))

    @property
    def _bytes_in_runs(self) -> int:
        image, filters, gradient = self.sizes
        images = len(self.products[0])
        patches = images * self.pixels
        run = len(self.run_ranges(patches)[0])
        places = 0 if self.is_of_pixels else (patches + run) * prod(self.filters[:2])
        products = sum(count for count, _ in product_sizes(run, block_of(patches)))
        sums = 2 * (products + 1) * filters
        held = self._read + gradient
        if len(self.products) > 1:
            held += _copied(self.padded, images) + _copied(self.gradient, images)
        of_run = run * (self.elements + self.filters[3])
        padding = image + self._read if self.padded != self.image else 0
        return FLOAT_BYTES * max(held + places + of_run + sums, padding)

    @property
    def _read(self) -> int:
        """How many numbers there are with the margins."""
        return prod(self.padded)

    @property
    def products(self) -> list[range]:
        """Of which images the kernel multiplies the columns at once, and adds up the products."""
        samples, at_once = self.image[0], self._at_once
        return [range(n, min(n + at_once, samples)) for n in range(0, samples, at_once)]

    @property
    def product_count(self) -> int:
        """How many products it takes."""
        return len(self.products) * max(self.parts, self.runs)

    def run_ranges(self, patches: int) -> list[range]:
        """The patches of each run, of which all but the last one have whole blocks."""
        size = block_of(patches)
        blocks = divided(patches, size)
        length = divided(blocks, min(self.runs, blocks)) * size
        return [range(n, min(n + length, patches)) for n in range(0, patches, length)]

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
        """As a whole, by the rows of a filter, by its pixels, and in runs of patches."""
        numbers = sorted({1, self.filters[0], prod(self.filters[:2])})
        images = len(self.products[0])
        patches = images * self.pixels if images <= MOST_IMAGES else 0
        runs = [runs for runs in _RUNS if runs * block_of(patches) < patches]
        in_parts = [replace(self, parts=each) for each in numbers]
        turned = [True, False] if self._can_be_turned else [False]
        in_runs = [(each, is_turned) for each in runs for is_turned in turned]
        return in_parts + [replace(self, runs=each, is_turned=turned) for each, turned in in_runs]

    @property
    def _can_be_turned(self) -> bool:
        """Whether neither side of a product leaves a rest that its kernel adds up otherwise."""
        return _OTHER_RESTS.isdisjoint({self.elements % _SIDE, self.filters[3] % _SIDE})

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


def _copied(shape: tuple[int, ...], images: int) -> int:
    """How many numbers of some images are copied if they are sliced out of all: none if aligned."""
    numbers = prod(shape[1:])
    return images * numbers if numbers * FLOAT_BYTES % ALIGNMENT_BYTES else 0


def block_of(patches: int) -> int:
    """How many of so many patches a block has: the last one is as large as possible."""
    rest = patches % _MOST_IN_A_BLOCK
    if patches <= _MOST_IN_A_BLOCK or not rest:
        return min(patches, _MOST_IN_A_BLOCK)
    blocks = patches // _MOST_IN_A_BLOCK + 1
    return _MOST_IN_A_BLOCK - (_MOST_IN_A_BLOCK - 1 - rest) // (_GROUP * blocks) * _GROUP


def product_sizes(patches: int, block: int) -> list[tuple[int, int]]:
    """How many products there are of a run of patches one after the other, and of how many each."""
    whole, left = divmod(patches, block)
    at_once = [(whole * count, size) for count, size in _products_of(block) if whole]
    return at_once + _products_of(left)


def _products_of(patches: int) -> list[tuple[int, int]]:
    if patches <= _MOST_AT_ONCE:
        return [(1, patches)] if patches else []
    half = patches // 2
    return [(2, half)] if patches % 2 == 0 else [(1, half + 1), (1, half)]
