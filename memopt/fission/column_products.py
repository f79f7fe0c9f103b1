"""Writes a gradient of images as products that make columns; see `columns`."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memopt.graph.op_types import DT_INT32

if TYPE_CHECKING:
    from memopt.fission.columns import Columns
    from memopt.fission.gradients import Axis
    from memopt.fission.operations import Operations
    from memopt.graph.graph import Tensor

_OUTSIDE = -(1 << 30)


class ColumnProducts:
    """Computes a gradient of images from columns.

    Args:
        operations: Adds what computes it.
        columns: What it reads and makes.
    """

    def __init__(self, operations: Operations, columns: Columns) -> None:
        self._do = operations
        self._columns = columns

    def write(self, sizes: Tensor, filters: Tensor, gradient: Tensor) -> None:
        """Let the gradient be made of what it has read."""
        columns, channels = self._columns, self._columns.filters[3]
        filters = self._do.reshaped(filters, (columns.elements, channels))
        rows = self._do.as_rows(gradient)
        made = self._do.joined([self._part(rows, filters, part) for part in columns.products])
        if columns.is_of_pixels or columns.by_pixels or columns.parts > 1:
            # As the kernel adds to images of zeros, none is negative; and a sum that reads this
            # may take over its buffer as it may take over the kernel's.
            made = self._do.added(made, self._do.zero())
        self._do.become(made, sizes)

    def _part(self, rows: Tensor, filters: Tensor, images: range) -> Tensor:
        """The gradients of some images, a row for each pixel."""
        columns = self._columns
        patches = columns.pixels
        rows = self._do.some_rows(rows, range(images.start * patches, images.stop * patches))
        again = self._again(rows, filters, len(images))
        if columns.by_pixels:
            return self._by_pixels(rows, filters, again, len(images))
        made = self._multiplied(rows, filters)
        for places, values in again:
            made = self._do.put(made, places, values)
        return made if columns.is_of_pixels else self._images(made, len(images))

    def _multiplied(self, rows: Tensor, filters: Tensor) -> Tensor:
        """The products of rows and filters, a row for each."""
        at_once = self._columns.rows
        if not at_once:
            return self._do.product(rows, filters, of_rows=True)
        number, channels = self._do.shape(rows)
        matrices = self._do.reshaped(rows, (number // at_once, at_once, channels))
        return self._do.as_rows(self._do.products(matrices, filters, of_columns=False))

    def _again(self, rows: Tensor, filters: Tensor, images: int) -> list[tuple[Tensor, Tensor]]:
        """Which patches are computed again, as a column, and what comes of them."""
        columns = self._columns
        kinds = [
            ([n * columns.pixels + each for n in range(images) for each in rest.patches], how)
            for rest in columns.rest
            for how in [self._fused if rest.is_fused else self._apart]
        ]
        if end := columns.end(images):
            kinds.append((list(end), self._alone))
        found = []
        for places, how in kinds:
            read = self._do.gathered(rows, self._do.constant(places), 0)
            found.append((self._do.constant([[each] for each in places]), how(read, filters)))
        return found

    def _by_pixels(
        self, rows: Tensor, filters: Tensor, again: list[tuple[Tensor, Tensor]], images: int
    ) -> Tensor:
        """Products with each pixel of the filters, moved and added up, the last pixel first."""
        columns = self._columns
        _, height, width, channels = columns.image
        down, across, *_ = columns.filters
        total: Tensor | None = None
        for pixel in reversed(range(down * across)):
            numbers = range(pixel * channels, (pixel + 1) * channels)
            made = self._multiplied(rows, self._do.some_rows(filters, numbers))
            for places, values in again:
                shape = (self._do.shape(values)[0], channels)
                of_pixel = self._do.window(values, (0, numbers.start), shape)
                made = self._do.put(made, places, of_pixel)
            made = self._do.reshaped(made, (images, *columns.gradient[1:3], channels))
            row, column = divmod(pixel, across)
            margins = [(0, 0), (row, down - 1 - row), (column, across - 1 - column), (0, 0)]
            made = self._do.padded(made, margins)
            total = made if total is None else self._do.added(total, made)
        assert total is not None
        start = tuple(before for before, _ in columns.margins)
        return self._do.as_rows(self._do.window(total, start, (images, height, width, channels)))

    def _alone(self, rows: Tensor, filters: Tensor) -> Tensor:
        """Products of a few rows and filters."""
        matrix = self._do.reshaped(rows, (1, *self._do.shape(rows)))
        return self._do.as_rows(self._do.products(matrix, filters, of_columns=False))

    def _fused(self, rows: Tensor, filters: Tensor) -> Tensor:
        """Products of rows and filters, added up for even and for odd channels."""
        sums = []
        for first in (0, 1):
            channels = self._do.constant(list(range(first, self._columns.filters[3], 2)))
            left, right = (self._do.gathered(each, channels, 1) for each in (rows, filters))
            left = self._do.reshaped(left, (1, *self._do.shape(left)))
            sums.append(self._do.products(left, right, of_columns=False))
        even, odd = sums
        return self._do.as_rows(self._do.added(even, odd))

    def _apart(self, rows: Tensor, filters: Tensor) -> Tensor:
        """The same, where each product is rounded before it is added."""
        number, channels = self._do.shape(rows)
        elements = self._columns.elements
        left = self._do.reshaped(self._do.transposed(rows), (channels, number, 1))
        right = self._do.reshaped(self._do.transposed(filters), (channels, 1, elements))
        products = self._do.multiplied(left, right)
        products = self._do.reshaped(products, (channels, number * elements))
        is_odd = self._do.constant([channel % 2 for channel in range(channels)])
        sums = self._do.summed_rows(products, is_odd, 2)
        even, odd = (self._do.some_rows(sums, range(n, n + 1)) for n in (0, 1))
        return self._do.reshaped(self._do.added(even, odd), (number, elements))

    def _images(self, made: Tensor, samples: int) -> Tensor:
        """Columns added to the pixels that their filters had read, patch after patch."""
        _, rows, columns, channels = self._columns.image
        read = prod(self._columns.filters[:2])
        made = self._do.reshaped(made, (samples * self._columns.pixels * read, channels))
        return self._do.summed_rows(made, self._places(samples), samples * rows * columns)

    def _places(self, samples: int) -> Tensor:
        """To which pixel each row of columns is added; below 0 where that is outside."""
        _, height, width, _ = self._columns.image
        _, (above, _), (before, _), _ = self._columns.margins
        tall, wide = self._columns.axes
        rows = [[[[n * width if n >= 0 else n] for n in each]] for each in _read(tall, above)]
        columns = [[[each] for each in _read(wide, before)]]
        images = [[[[[n * height * width]]]] for n in range(samples)]
        made = self._do.constant(rows)
        for addend in (columns, images):
            made = self._do.added(made, self._do.constant(addend), DT_INT32)
        return self._do.reshaped(made, (prod(self._do.shape(made)),), DT_INT32)


def _read(axis: Axis, margin: int) -> list[list[int]]:
    """Of each patch, what it has read along an axis; far below 0 where that is outside."""
    starts = range(-margin, axis.made * axis.stride - margin, axis.stride)
    return [
        [place if 0 <= place < axis.size else _OUTSIDE for place in range(start, start + axis.read)]
        for start in starts
    ]
