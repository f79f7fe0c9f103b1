"""PoolingGradients: gradients of maxima as comparisons, where XLA would fill tables for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from memopt.graph.attributes import type_attribute
from memopt.graph.op_types import DT_BOOL, DT_DOUBLE, DT_FLOAT, DT_INT32
from memopt.graph.rewriter import Touches
from memopt.passes.base import Pass
from memopt.rematerialization.rewriting.node_builder import NodeBuilder

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter

_PREFIX = "Pooling/"
_RANK = 4


@dataclass(frozen=True)
class PoolingGradients(Pass):
    """Compute gradients of max pooling by comparing, in a step that XLA compiles.

    XLA's CPU compiler has no kernel for a gradient of max pooling (`SelectAndScatter`). It makes
    tables of the place of each element, one for each dimension, and adds gradients up one by one
    in a loop: nine times the memory of the tensor, and ten times the time of what is done here.

    1. Considered is a MaxPoolGrad of windows that do not overlap, in float or double.
    2. The elements of a window are compared one after the other, as XLA does: the first stays
       unless another is greater, so of equal ones the first is taken, and what is no number gives
       way to whatever comes next.
    3. Each element gets the gradient of its window if it was the one, else zero. A gradient of -0
       becomes 0, as it does when it is added to zero.

    The number of samples may differ from call to call. Refused, with a reason in the report: other
    windows, layouts and types; images of which no more is known; what is fed.
    """

    name: ClassVar[str] = "pooling-gradients"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {Touches.NODES, Touches.DATA_EDGES, Touches.OPS, Touches.ATTRIBUTES}
    )

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Replace one gradient after the other, with an edit for each; linear in nodes."""
        for node in [each for each in rewriter.graph if each.op == "MaxPoolGrad"]:
            windows = _windows_of(node, context)
            if isinstance(windows, str):
                rewriter.decline(node, windows)
                continue
            with rewriter.edit("which element of a window is largest is compared, not looked up"):
                _Gradient(rewriter, context, node, windows).compute()


class _Windows(NamedTuple):
    """Windows of an image that do not overlap.

    Attributes:
        shape: Of the image: samples, rows, columns, channels; -1 for samples that nobody knows.
        rows: Of a window.
        columns: Of a window.
        is_open: Whether another call may have other samples.
    """

    shape: tuple[int, int, int, int]
    rows: int
    columns: int
    is_open: bool

    @property
    def counts(self) -> tuple[int, int]:
        """How many windows there are below and beside each other."""
        return self.shape[1] // self.rows, self.shape[2] // self.columns


def _windows_of(node: Node, context: Context) -> _Windows | str:
    """The windows of a gradient, or why it stays as it is."""
    if node.name in context.named:
        return "it is fed, fetched or kept: it stays what it is called"
    attributes = node.attributes
    if attributes["T"].type not in (DT_FLOAT, DT_DOUBLE):
        return "its type is neither float nor double"
    if "data_format" in attributes and attributes["data_format"].s != b"NHWC":
        return "its channels do not come last"
    sizes, strides = (tuple(attributes[name].list.i) for name in ("ksize", "strides"))
    if sizes != strides or sizes[0] != 1 or sizes[-1] != 1:
        return "its windows overlap, leave gaps, or cross samples or channels"
    return _fitted(node, sizes[1], sizes[2], context)


def _fitted(node: Node, rows: int, columns: int, context: Context) -> _Windows | str:
    """The windows in the image, if it is known and they do not reach over its edges."""
    image = node.inputs[0]
    known = context.properties.shape(image.name)
    certain = context.properties.certain.shape(image.name)
    if known is None or certain is None or len(certain) != _RANK or -1 in certain[1:]:
        return "the shape of the image is not known"
    _, height, width, channels = certain
    windows = _Windows((known[0], height, width, channels), rows, columns, certain[0] == -1)
    if 0 in (*windows.counts, known[0], channels):
        return "there is nothing in it"
    is_cut = bool(height % rows or width % columns)
    if is_cut and node.attributes["padding"].s != b"VALID":
        return "its windows reach over the edge"
    return windows


class _Gradient:
    """Makes a MaxPoolGrad the last one of operations that compute the same."""

    def __init__(self, rewriter: Rewriter, context: Context, node: Node, windows: _Windows) -> None:
        self._build = NodeBuilder(rewriter, context, _PREFIX)
        self._rewriter = rewriter
        self._node = node
        self._windows = windows
        self._dtype = node.attributes["T"].type
        self._like = node.output(0)

    def compute(self) -> None:
        """Make the operations; the last one has the node's name, readers and controls."""
        samples, height, width, channels = self._windows.shape
        down, across = self._windows.counts
        rows, columns = self._windows.rows, self._windows.columns
        image = self._node.inputs[0]
        covered = (samples, down * rows, across * columns, channels)
        if covered != self._windows.shape:
            image = self._slice(image, (0, 0, 0, 0), covered)
        split = self._reshape(image, (samples, down, rows, across, columns, channels))
        largest = self._find_largest(split)
        gradient = self._reshape(self._node.inputs[2], (samples, down, 1, across, 1, channels))
        picked = self._pick(gradient, largest, (samples, down, rows, across, columns, channels))
        if covered == self._windows.shape:
            self._become("Reshape", [picked, self._sizes(covered)], Tshape=DT_INT32)
            return
        inner = self._reshape(picked, covered)
        edges = [[0, 0], [0, height - covered[1]], [0, width - covered[2]], [0, 0]]
        self._become("Pad", [inner, self._constant(edges)], Tpaddings=DT_INT32)

    def _find_largest(self, split: Tensor) -> Tensor:
        """The number of the largest element of each window, row by row."""
        samples, channels = self._windows.shape[0], self._windows.shape[3]
        down, across = self._windows.counts
        shape = (samples, down, 1, across, 1, channels)
        places = [(y, x) for y in range(self._windows.rows) for x in range(self._windows.columns)]
        elements = [self._slice(split, (0, 0, y, 0, x, 0), shape) for y, x in places]
        best, largest = elements[0], self._constant(0)
        for number, element in enumerate(elements[1:], 1):
            stays = self._add("GreaterEqual", [best, element], shape, DT_BOOL, T=self._dtype)
            best = self._select(stays, best, element, shape)
            other = self._constant(number)
            largest = self._add("SelectV2", [stays, largest, other], shape, DT_INT32, T=DT_INT32)
        return largest

    def _pick(self, gradient: Tensor, largest: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The gradient of a window for its largest element, zero for the others."""
        rows, columns = self._windows.rows, self._windows.columns
        zero = self._constant(0.0, self._dtype)
        whole = self._windows.counts
        shape_of_one = (shape[0], whole[0], 1, whole[1], 1, shape[-1])
        is_zero = self._add("Equal", [gradient, zero], shape_of_one, DT_BOOL, T=self._dtype)
        gradient = self._select(is_zero, zero, gradient, shape_of_one)
        numbers = [[[y * columns + x] for x in range(columns)] for y in range(rows)]
        places = self._constant([[[row] for row in numbers]])
        is_largest = self._add("Equal", [largest, places], shape, DT_BOOL, T=DT_INT32)
        return self._select(is_largest, gradient, zero, shape)

    def _select(
        self, condition: Tensor, then: Tensor, other: Tensor, shape: tuple[int, ...]
    ) -> Tensor:
        return self._add("SelectV2", [condition, then, other], shape, self._dtype, T=self._dtype)

    def _reshape(self, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
        inputs = [tensor, self._sizes(shape)]
        return self._add("Reshape", inputs, shape, self._dtype, T=self._dtype, Tshape=DT_INT32)

    def _slice(self, tensor: Tensor, start: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
        inputs = [tensor, self._constant(list(start)), self._sizes(shape)]
        return self._add("Slice", inputs, shape, self._dtype, T=self._dtype, Index=DT_INT32)

    def _sizes(self, shape: tuple[int, ...]) -> Tensor:
        """A shape to bring something into; -1 stands for all samples that there are."""
        return self._constant([-1, *shape[1:]] if self._windows.is_open else list(shape))

    def _constant(self, numbers: object, dtype: int = DT_INT32) -> Tensor:
        return self._build.constant(self._like, numbers, dtype)

    def _add(
        self, op: str, inputs: list[Tensor], shape: tuple[int, ...], dtype: int, **types: int
    ) -> Tensor:
        return self._build.note(self._build.add(self._like, op, inputs, **types), shape, dtype)

    def _become(self, op: str, inputs: list[Tensor], **types: int) -> None:
        attributes = {name: type_attribute(t) for name, t in {"T": self._dtype, **types}.items()}
        self._rewriter.set_op(self._node, op, attributes)
        self._rewriter.set_inputs(self._node, inputs)
