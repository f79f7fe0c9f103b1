"""Writes a gradient of filters as products of patches; see `patches`."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memopt.graph.attributes import integer_attribute, parse_attribute, type_attribute
from memopt.graph.op_types import DT_FLOAT, DT_INT32
from memopt.rematerialization.rewriting.node_builder import NodeBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow.core.framework.attr_value_pb2 import AttrValue

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
    _Writing(NodeBuilder(rewriter, context, _PREFIX), node, patches).write()


class _Writing(NamedTuple):
    build: NodeBuilder
    node: Node
    patches: Patches

    def write(self) -> None:
        rewriter, node = self.build.rewriter, self.node
        image, sizes, gradient = node.inputs
        rows = self._rows(gradient)
        image = self._rows(image) if self.patches.is_of_pixels else self._padded(image)
        parts = [self._part(image, rows, window) for window in self.patches.windows]
        made = parts[0] if len(parts) == 1 else self._joined(parts)
        types = {"T": type_attribute(DT_FLOAT), "Tshape": type_attribute(DT_INT32)}
        rewriter.set_op(node, "Reshape", types)
        rewriter.set_inputs(node, [made, sizes])

    def _padded(self, image: Tensor) -> Tensor:
        """The images with their margins, a row for each pixel."""
        patches = self.patches
        if patches.padded != patches.image:
            margins = self._constant([list(each) for each in patches.margins])
            made = self._add("Pad", [image, margins], T=DT_FLOAT, Tpaddings=DT_INT32)
            image = self._note(made, patches.padded)
        samples, rows, columns, channels = patches.padded
        return self._reshaped(image, (samples, rows * columns, channels))

    def _part(self, image: Tensor, rows: Tensor, window: tuple[range, range]) -> Tensor:
        """The gradient of some rows and columns of the filters, an element a row."""
        patches = self.patches
        places = None if patches.is_of_pixels else self._places(window)
        total: Tensor | None = None
        for images in patches.products:
            read = self._of_images(image, images, 1 if places else patches.pixels)
            columns = self._gathered(read, places) if places else read
            made = self._product(columns, self._of_images(rows, images, patches.pixels))
            if total is not None:
                made = self._note(self._add("AddV2", [total, made], T=DT_FLOAT), self._shape(made))
            total = made
        assert total is not None
        return total

    def _places(self, window: tuple[range, range]) -> Tensor:
        """Which pixels of a padded image each patch has: sums of those of rows and of columns."""
        width = self.patches.padded[2]
        (tall, rows), (wide, columns) = zip(self.patches.axes, window, strict=True)
        tops, lefts = (range(0, each.made * each.stride, each.stride) for each in (tall, wide))
        starts = [[[[(top + row) * width] for row in rows]] for top in tops]
        offsets = [[[[left + column for column in columns]] for left in lefts]]
        addends = [self._constant(starts), self._constant(offsets)]
        shape = (tall.made, wide.made, len(rows), len(columns))
        made = self._note(self._add("AddV2", addends, T=DT_INT32), shape, DT_INT32)
        return self._reshaped(made, (prod(shape),), DT_INT32)

    def _gathered(self, image: Tensor, places: Tensor) -> Tensor:
        """The patches of images, a row for each."""
        samples, _, channels = self._shape(image)
        (number,) = self._shape(places)
        types = {"Tparams": DT_FLOAT, "Tindices": DT_INT32, "Taxis": DT_INT32}
        made = self._add("GatherV2", [image, places, self._constant(1)], **types)
        self._note(made, (samples, number, channels))
        pixels = self.patches.pixels
        return self._reshaped(made, (samples * pixels, number // pixels * channels))

    def _product(self, columns: Tensor, rows: Tensor) -> Tensor:
        """What some images add to the gradient."""
        attributes = {
            "T": type_attribute(DT_FLOAT),
            "transpose_a": parse_attribute("true"),
            "transpose_b": parse_attribute("false"),
        }
        made = self._add_with(attributes, "MatMul", [columns, rows])
        return self._note(made, (self._shape(columns)[1], self._shape(rows)[1]))

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        """All elements of the filters, of which parts have some."""
        attributes = {
            "N": integer_attribute(len(parts)),
            "T": type_attribute(DT_FLOAT),
            "Tidx": type_attribute(DT_INT32),
        }
        made = self._add_with(attributes, "ConcatV2", [*parts, self._constant(0)])
        return self._note(made, (self.patches.elements, self.patches.filters[3]))

    def _of_images(self, tensor: Tensor, images: range, rows: int) -> Tensor:
        """What there is of some images, of each of which there are so many rows."""
        if len(images) == self.patches.image[0]:
            return tensor
        _, *others = self._shape(tensor)
        shape = (len(images) * rows, *others)
        start = self._constant([images.start * rows, *[0] * len(others)])
        inputs = [tensor, start, self._constant(list(shape))]
        return self._note(self._add("Slice", inputs, T=DT_FLOAT, Index=DT_INT32), shape)

    def _rows(self, tensor: Tensor) -> Tensor:
        """All but the last dimension as one."""
        *others, width = self._shape(tensor)
        return self._reshaped(tensor, (prod(others), width))

    def _shape(self, tensor: Tensor) -> tuple[int, ...]:
        shape = self.build.properties.shape(tensor.name)
        assert shape is not None
        return shape

    def _reshaped(self, tensor: Tensor, shape: tuple[int, ...], dtype: int = DT_FLOAT) -> Tensor:
        inputs = [tensor, self._constant(list(shape))]
        return self._note(self._add("Reshape", inputs, T=dtype, Tshape=DT_INT32), shape, dtype)

    def _add(self, op: str, inputs: Sequence[Tensor], **types: int) -> Tensor:
        return self.build.add(self.node.output(), op, inputs, **types)

    def _add_with(
        self, attributes: dict[str, AttrValue], op: str, inputs: Sequence[Tensor]
    ) -> Tensor:
        """A node with attributes that are not all types."""
        name = self.build.free_name(f"{self.node.name}/{op}")
        made = self.build.rewriter.add_node(
            name, op, inputs=inputs, device=self.node.device, attributes=attributes
        )
        return made.output()

    def _note(self, made: Tensor, shape: tuple[int, ...], dtype: int = DT_FLOAT) -> Tensor:
        return self.build.note(made, shape, dtype)

    def _constant(self, numbers: object) -> Tensor:
        return self.build.constant(self.node.output(), numbers)
