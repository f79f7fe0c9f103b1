"""Writes a gradient of filters as products of patches; see `patches`."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memopt.fission.patches import block_of, product_sizes
from memopt.graph.op_types import DT_INT32

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.fission.operations import Operations
    from memopt.fission.patches import Patches
    from memopt.graph.graph import Tensor


class PatchProducts:
    """Computes a gradient of filters from patches.

    Args:
        operations: Adds what computes it.
        patches: What it reads and makes.
    """

    def __init__(self, operations: Operations, patches: Patches) -> None:
        self._do = operations
        self._patches = patches

    def write(self, image: Tensor, sizes: Tensor, gradient: Tensor) -> None:
        """Let the gradient be made of what it has read."""
        rows = self._do.as_rows(gradient)
        image = self._do.as_rows(image) if self._patches.is_of_pixels else self._padded(image)
        if self._patches.runs:
            made = self._in_runs(image, rows)
        else:
            parts = [self._part(image, rows, window) for window in self._patches.windows]
            made = self._do.joined(parts)
        self._do.become(made, sizes)

    def _in_runs(self, image: Tensor, rows: Tensor) -> Tensor:
        """The gradient, of which the products of some patches after others are added up."""
        patches = self._patches
        if not patches.is_of_pixels:
            image = self._do.as_rows(image)
        total = self._added(image, rows, patches.padded[1] * patches.padded[2], self._of_runs)
        shape = (patches.elements, patches.filters[3])
        if patches.is_turned:
            return self._do.transposed(self._do.reshaped(total, shape[::-1]))
        return self._do.reshaped(total, shape)

    def _added(
        self, image: Tensor, rows: Tensor, pixels: int, make: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """What groups of images add to the gradient, of which each has so many rows to be read."""
        total: Tensor | None = None
        for images in self._patches.products:
            read = self._of_images(image, images, pixels)
            made = make(read, self._of_images(rows, images, self._patches.pixels))
            total = made if total is None else self._do.added(total, made)
        assert total is not None
        return total

    def _of_runs(self, read: Tensor, gradient: Tensor) -> Tensor:
        """What some images add to the gradient, as one row."""
        patches = self._patches
        number = self._do.shape(gradient)[0]
        places = None if patches.is_of_pixels else self._all_places(number // patches.pixels)
        total: list[Tensor] = []
        for run in patches.run_ranges(number):
            columns = self._patches_at(read, places, run)
            products = self._products(columns, self._do.some_rows(gradient, run), block_of(number))
            addends = self._do.joined([*total, *products])
            ids = self._do.constant([0] * self._do.shape(addends)[0])
            total = [self._do.summed_rows(addends, ids, 1)]
        return total[0]

    def _all_places(self, images: int) -> Tensor:
        """Of each patch of some images, which of all their pixels it has."""
        rows, columns = map(range, self._patches.filters[:2])
        _, height, width, _ = self._patches.padded
        starts = self._do.constant([[n * height * width] for n in range(images)])
        places = self._do.added(starts, self._places((rows, columns)), DT_INT32)
        read = len(rows) * len(columns)
        return self._do.reshaped(places, (images * self._patches.pixels, read), DT_INT32)

    def _patches_at(self, pixels: Tensor, places: Tensor | None, run: range) -> Tensor:
        """Some patches, a row for each."""
        if places is None:
            return self._do.some_rows(pixels, run)
        places = self._do.some_rows(places, run, DT_INT32)
        number = prod(self._do.shape(places))
        made = self._do.gathered(pixels, self._do.reshaped(places, (number,), DT_INT32), 0)
        return self._do.reshaped(made, (len(run), self._patches.elements))

    def _products(self, columns: Tensor, gradient: Tensor, block: int) -> list[Tensor]:
        """The products of blocks of patches and of what is left, a row for each."""
        factors = (gradient, columns) if self._patches.is_turned else (columns, gradient)
        found, start = [], 0
        for count, size in product_sizes(self._do.shape(columns)[0], block):
            rows = range(start, start + count * size)
            left, right = (
                self._do.reshaped(
                    self._do.some_rows(each, rows), (count, size, self._do.shape(each)[1])
                )
                for each in factors
            )
            made = self._do.products(left, right, of_columns=True)
            found.append(self._do.reshaped(made, (count, prod(self._do.shape(made)[1:]))))
            start = rows.stop
        return found

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

        def product(read: Tensor, gradient: Tensor) -> Tensor:
            columns = self._gathered(read, places) if places else read
            return self._do.product(columns, gradient, of_left_columns=True)

        return self._added(image, rows, 1 if places else patches.pixels, product)

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
