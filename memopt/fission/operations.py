"""Adds the operations that compute a gradient as products, with the shapes that they have."""

from __future__ import annotations

from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING

from memopt.graph.attributes import integer_attribute, parse_attribute, type_attribute
from memopt.graph.op_types import DT_FLOAT, DT_INT32

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    from memopt.graph.graph import Node, Tensor
    from memopt.rematerialization.rewriting.node_builder import NodeBuilder


class Operations:
    """Operations that compute what another one computes now; numbers are float.

    Args:
        build: Adds nodes; an edit has to be open.
        node: What is computed otherwise.
    """

    def __init__(self, build: NodeBuilder, node: Node) -> None:
        self._build = build
        self._node = node

    def become(self, made: Tensor, sizes: Tensor) -> None:
        """Let the node be a Reshape of what was made, to sizes that it was given."""
        rewriter = self._build.rewriter
        types = {"T": type_attribute(DT_FLOAT), "Tshape": type_attribute(DT_INT32)}
        rewriter.set_op(self._node, "Reshape", types)
        rewriter.set_inputs(self._node, [made, sizes])

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """What is known of a tensor's shape, which is all of it."""
        shape = self._build.properties.shape(tensor.name)
        assert shape is not None
        return shape

    def constant(self, numbers: object) -> Tensor:
        """32-bit integers."""
        return self._build.constant(self._node.output(), numbers)

    def zero(self) -> Tensor:
        """A 0 to be added."""
        return self._build.constant(self._node.output(), 0.0, DT_FLOAT)

    def added(self, left: Tensor, right: Tensor, dtype: int = DT_FLOAT) -> Tensor:
        """The sum of two tensors, of which the smaller one is spread over the other."""
        return self._spread("AddV2", left, right, dtype)

    def multiplied(self, left: Tensor, right: Tensor) -> Tensor:
        """The products of two tensors' elements, each spread over the other."""
        return self._spread("Mul", left, right, DT_FLOAT)

    def reshaped(self, tensor: Tensor, shape: tuple[int, ...], dtype: int = DT_FLOAT) -> Tensor:
        """The same elements in another shape."""
        inputs = [tensor, self.constant(list(shape))]
        made = self._add("Reshape", inputs, T=dtype, Tshape=DT_INT32)
        return self._build.note(made, shape, dtype)

    def as_rows(self, tensor: Tensor) -> Tensor:
        """All but the last dimension as one."""
        *others, width = self.shape(tensor)
        return self.reshaped(tensor, (prod(others), width))

    def transposed(self, matrix: Tensor) -> Tensor:
        """Rows as columns."""
        made = self._add("Transpose", [matrix, self.constant([1, 0])], T=DT_FLOAT, Tperm=DT_INT32)
        return self._build.note(made, self.shape(matrix)[::-1], DT_FLOAT)

    def padded(self, tensor: Tensor, margins: Sequence[tuple[int, int]]) -> Tensor:
        """With zeros before and after each dimension."""
        inputs = [tensor, self.constant([list(each) for each in margins])]
        made = self._add("Pad", inputs, T=DT_FLOAT, Tpaddings=DT_INT32)
        sizes = zip(self.shape(tensor), margins, strict=True)
        return self._build.note(made, tuple(size + sum(more) for size, more in sizes), DT_FLOAT)

    def some_rows(self, tensor: Tensor, rows: range, dtype: int = DT_FLOAT) -> Tensor:
        """Some rows, one after the other."""
        others = self.shape(tensor)[1:]
        start = (rows.start, *[0] * len(others))
        return self.window(tensor, start, (len(rows), *others), dtype)

    def window(
        self, tensor: Tensor, start: Sequence[int], shape: tuple[int, ...], dtype: int = DT_FLOAT
    ) -> Tensor:
        """What there is from a place on; all of it is there without an operation."""
        if shape == self.shape(tensor):
            return tensor
        inputs = [tensor, self.constant(list(start)), self.constant(list(shape))]
        made = self._add("Slice", inputs, T=dtype, Index=DT_INT32)
        return self._build.note(made, shape, dtype)

    def gathered(self, tensor: Tensor, places: Tensor, axis: int) -> Tensor:
        """What there is at some places of a dimension."""
        types = {"Tparams": DT_FLOAT, "Tindices": DT_INT32, "Taxis": DT_INT32}
        made = self._add("GatherV2", [tensor, places, self.constant(axis)], **types)
        shape = list(self.shape(tensor))
        shape[axis : axis + 1] = self.shape(places)
        return self._build.note(made, tuple(shape), DT_FLOAT)

    def product(
        self, left: Tensor, right: Tensor, *, of_left_columns: bool = False, of_rows: bool = False
    ) -> Tensor:
        """The product of two matrices.

        Args:
            left: Whose rows are multiplied.
            right: By whose columns.
            of_left_columns: Whether the columns of the left one are, and not its rows.
            of_rows: Whether by the rows of the right one, and not by its columns.
        """
        flags = {"transpose_a": of_left_columns, "transpose_b": of_rows}
        made = self._add_with(_flags(flags), "MatMul", [left, right])
        shape = (self.shape(left)[int(of_left_columns)], self.shape(right)[int(not of_rows)])
        return self._build.note(made, shape, DT_FLOAT)

    def products(self, left: Tensor, right: Tensor, *, of_columns: bool) -> Tensor:
        """The products of many matrices: of their columns, or of the rows of both.

        Args:
            left: Matrices.
            right: As many, or one for all of them.
            of_columns: Whether columns are multiplied, and not rows.
        """
        flags = {"adj_x": of_columns, "adj_y": not of_columns}
        made = self._add_with(_flags(flags), "BatchMatMulV2", [left, right])
        *number, rows, columns = self.shape(left)
        kept = (columns, self.shape(right)[-1]) if of_columns else (rows, self.shape(right)[-2])
        return self._build.note(made, (*number, *kept), DT_FLOAT)

    def put(self, rows: Tensor, places: Tensor, instead: Tensor) -> Tensor:
        """Rows of which some are replaced."""
        types = {"T": DT_FLOAT, "Tindices": DT_INT32}
        made = self._add("TensorScatterUpdate", [rows, places, instead], **types)
        return self._build.note(made, self.shape(rows), DT_FLOAT)

    def summed_rows(self, rows: Tensor, places: Tensor, number: int) -> Tensor:
        """Of each place the sum of its rows, in their order; places below 0 are left out."""
        types = {"T": DT_FLOAT, "Tindices": DT_INT32, "Tnumsegments": DT_INT32}
        inputs = [rows, places, self.constant(number)]
        made = self._add("UnsortedSegmentSum", inputs, **types)
        return self._build.note(made, (number, *self.shape(rows)[1:]), DT_FLOAT)

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """The rows of several tensors; one is there without an operation."""
        if len(parts) == 1:
            return parts[0]
        attributes = {
            "N": integer_attribute(len(parts)),
            "T": type_attribute(DT_FLOAT),
            "Tidx": type_attribute(DT_INT32),
        }
        made = self._add_with(attributes, "ConcatV2", [*parts, self.constant(0)])
        rows = sum(self.shape(part)[0] for part in parts)
        return self._build.note(made, (rows, *self.shape(parts[0])[1:]), DT_FLOAT)

    def _spread(self, op: str, left: Tensor, right: Tensor, dtype: int) -> Tensor:
        pairs = zip_longest(*(reversed(self.shape(each)) for each in (left, right)), fillvalue=1)
        shape = tuple(max(pair) for pair in pairs)[::-1]
        return self._build.note(self._add(op, [left, right], T=dtype), shape, dtype)

    def _add(self, op: str, inputs: Sequence[Tensor], **types: int) -> Tensor:
        return self._build.add(self._node.output(), op, inputs, **types)

    def _add_with(
        self, attributes: dict[str, AttrValue], op: str, inputs: Sequence[Tensor]
    ) -> Tensor:
        return self._build.add_with(self._node.output(), op, inputs, attributes)


def _flags(flags: dict[str, bool]) -> dict[str, AttrValue]:
    """Attributes of a product of floats."""
    told = {name: parse_attribute(str(flag).lower()) for name, flag in flags.items()}
    return {"T": type_attribute(DT_FLOAT), **told}
