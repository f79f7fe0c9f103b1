"""Writes a gradient of images as products that make columns; see `columns`."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memopt.fission.operations import Operations
from memopt.graph.op_types import DT_INT32
from memopt.rematerialization.rewriting.node_builder import NodeBuilder

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.fission.columns import Columns
    from memopt.fission.gradients import Axis
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter

_PREFIX = "Columns/"
_OUTSIDE = -(1 << 30)


def write_columns(rewriter: Rewriter, context: Context, node: Node, columns: Columns) -> None:
    """Compute a gradient of images from columns; its readers read the last operation.

    Args:
        rewriter: An edit has to be open.
        context: What the pass knows.
        node: The gradient, which becomes a Reshape.
        columns: What it reads and makes.
    """
    sizes, filters, gradient = node.inputs
    writing = _Writing(Operations(NodeBuilder(rewriter, context, _PREFIX), node), columns)
    writing.write(sizes, filters, gradient)


class _Writing:
    def __init__(self, operations: Operations, columns: Columns) -> None:
        self._do = operations
        self._columns = columns

    def write(self, sizes: Tensor, filters: Tensor, gradient: Tensor) -> None:
        columns, channels = self._columns, self._columns.filters[3]
        filters = self._do.reshaped(filters, (columns.elements, channels))
        rows = self._do.as_rows(gradient)
        made = self._do.joined([self._part(rows, filters, part) for part in columns.products])
        if columns.is_of_pixels or columns.parts > 1:
            # As the kernel adds to images of zeros, none is negative; and a sum that reads this
            # may take over its buffer as it may take over the kernel's.
            made = self._do.added(made, self._do.zero())
        self._do.become(made, sizes)

    def _part(self, rows: Tensor, filters: Tensor, images: range) -> Tensor:
        """The gradients of some images, a row for each pixel."""
        columns = self._columns
        patches = columns.pixels
        rows = self._do.some_rows(rows, range(images.start * patches, images.stop * patches))
        number, channels = self._do.shape(rows)
        matrices = self._do.reshaped(rows, (number // columns.rows, columns.rows, channels))
        made = self._do.as_rows(self._do.products(matrices, filters))
        if columns.rest:
            places = [n * patches + place for n in range(len(images)) for place in columns.rest]
            again = self._again(self._do.gathered(rows, self._do.constant(places), 0), filters)
            made = self._do.put(made, self._do.constant([[place] for place in places]), again)
        return made if columns.is_of_pixels else self._images(made, len(images))

    def _again(self, rows: Tensor, filters: Tensor) -> Tensor:
        """Products of rows and filters, added up apart for even and for odd channels."""
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
