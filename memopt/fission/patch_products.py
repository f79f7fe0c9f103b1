"""Writes a gradient of filters as products of patches; see `patches`."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memopt.fission.operations import Operations
from memopt.graph.op_types import DT_INT32
from memopt.rematerialization.rewriting.node_builder import NodeBuilder

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.fission.patches import Patches
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter

_PREFIX = "Patches/"


def write_patches(rewriter: Rewriter, context: Context, node: Node, patches: Patches) -> None:
    """Compute a gradient of filters from patches; its readers read the last operation.

    Args:
        rewriter: An edit has to be open.
        context: What the pass knows.
        node: The gradient, which becomes a Reshape.
        patches: What it reads and makes.
    """
    image, sizes, gradient = node.inputs
    writing = _Writing(Operations(NodeBuilder(rewriter, context, _PREFIX), node), patches)
    writing.write(image, sizes, gradient)


class _Writing:
    def __init__(self, operations: Operations, patches: Patches) -> None:
        self._do = operations
        self._patches = patches

    def write(self, image: Tensor, sizes: Tensor, gradient: Tensor) -> None:
        rows = self._do.as_rows(gradient)
        image = self._do.as_rows(image) if self._patches.is_of_pixels else self._padded(image)
        parts = [self._part(image, rows, window) for window in self._patches.windows]
        self._do.become(self._do.joined(parts), sizes)

    def _padded(self, image: Tensor) -> Tensor:
        """The images with their margins, a row for each pixel."""
        patches = self._patches
        if patches.padded != patches.image:
            image = self._do.padded(image, patches.margins)
        samples, rows, columns, channels = patches.padded
        return self._do.reshaped(image, (samples, rows * columns, channels))

    def _part(self, image: Tensor, rows: Tensor, window: tuple[range, range]) -> Tensor:
        """The gradient of some rows and columns of the filters, an element a row."""
        patches = self._patches
        places = None if patches.is_of_pixels else self._places(window)
        total: Tensor | None = None
        for images in patches.products:
            read = self._of_images(image, images, 1 if places else patches.pixels)
            columns = self._gathered(read, places) if places else read
            gradient = self._of_images(rows, images, patches.pixels)
            made = self._do.product(columns, gradient, transpose_left=True)
            total = made if total is None else self._do.added(total, made)
        assert total is not None
        return total

    def _places(self, window: tuple[range, range]) -> Tensor:
        """Which pixels of a padded image each patch has: sums of those of rows and of columns."""
        width = self._patches.padded[2]
        (tall, rows), (wide, columns) = zip(self._patches.axes, window, strict=True)
        tops, lefts = (range(0, each.made * each.stride, each.stride) for each in (tall, wide))
        starts = [[[[(top + row) * width] for row in rows]] for top in tops]
        offsets = [[[[left + column for column in columns]] for left in lefts]]
        made = self._do.added(self._do.constant(starts), self._do.constant(offsets), DT_INT32)
        return self._do.reshaped(made, (prod(self._do.shape(made)),), DT_INT32)

    def _gathered(self, image: Tensor, places: Tensor) -> Tensor:
        """The patches of images, a row for each."""
        samples, number, channels = self._do.shape(made := self._do.gathered(image, places, 1))
        pixels = self._patches.pixels
        return self._do.reshaped(made, (samples * pixels, number // pixels * channels))

    def _of_images(self, tensor: Tensor, images: range, rows: int) -> Tensor:
        """What there is of some images, of each of which there are so many rows."""
        return self._do.some_rows(tensor, range(images.start * rows, images.stop * rows))
