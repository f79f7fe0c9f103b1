"""Short rows: what kernels take for each stretch of elements that they work through by itself.

Where an input is broadcast, the last axis is summed up or pieces are copied, a kernel begins anew
with each stretch of elements that lie side by side, and hardly uses vectors within: along rows of
eight numbers that is most of its time. Grappler counts elements only.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memopt.costs.estimator.op_info import Formula

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from memopt.costs.estimator.op_info import OpInfo, Work
    from memopt.shapes.tensor_properties import TensorProperties


class Rows(NamedTuple):
    """How an op works row by row.

    Attributes:
        count: How many rows; 0 where all that is worked on is one.
        operations: What each takes, as operations.
        operations_per_element: What each of the result takes besides where there are rows.
    """

    count: Callable[[OpInfo], int]
    operations: int
    operations_per_element: int = 0


def on_rows(formula: Formula, rows: Rows) -> Formula:
    """A formula that counts rows, too."""

    def work(info: OpInfo) -> Work | None:
        done, count = formula.work(info), rows.count(info)
        if done is None or not count:
            return done
        elements = info.elements(info.output())
        more = count * rows.operations + elements * rows.operations_per_element
        return done._replace(operations=done.operations + more)

    return Formula(work, formula.attributes)


def broadcast_rows(info: OpInfo) -> int:
    """Stretches along which each input is either read on or begun anew with each element.

    None where all inputs are as large as the result, or a single element.
    """
    return _rows_within(info.inputs, info.output())


def repeated_rows(info: OpInfo) -> int:
    """The same of an op whose first input is what is repeated."""
    return _rows_within(info.inputs[:1], info.output())


def _rows_within(parts: Sequence[TensorProperties], whole: TensorProperties) -> int:
    shapes, result = _known_shapes(parts), whole.shape or ()
    if len(shapes) < len(parts) or min(result, default=0) < 0:
        return 0
    shapes = [(1,) * (len(result) - len(shape)) + shape for shape in shapes]
    pattern: tuple[bool, ...] | None = None
    for axis in reversed(range(len(result))):
        if result[axis] == 1:
            continue
        repeats = tuple(shape[axis] != result[axis] for shape in shapes)
        if pattern not in (None, repeats):
            return prod(result[: axis + 1])
        pattern = repeats
    return 0


def copied_rows(info: OpInfo) -> int:
    """Stretches of pieces that are taken from a tensor, or put into one, of the same type."""
    tensors = (*info.inputs, *info.outputs)
    shapes = _known_shapes(tensor for tensor in tensors if tensor.dtype == info.output().dtype)
    whole = max(shapes, key=prod, default=())
    return sum(_stretches(part, whole) for part in shapes if len(part) == len(whole))


def _known_shapes(tensors: Iterable[TensorProperties]) -> list[tuple[int, ...]]:
    """The shapes of those of which every size is known."""
    shapes = (tensor.shape for tensor in tensors)
    return [shape for shape in shapes if shape is not None and min(shape, default=0) >= 0]


def _stretches(part: Sequence[int], whole: Sequence[int]) -> int:
    """How many stretches of a tensor a part of it is made of; 0 if it is all of it."""
    for axis in reversed(range(len(part))):
        if part[axis] != whole[axis]:
            return prod(part[:axis])
    return 0


def summed_rows(info: OpInfo) -> int:
    """Elements of the result, if each is of elements that lie side by side."""
    given, result = info.input(0).shape or (), info.output().shape or ()
    kept = tuple(result)
    while kept and len(kept) == len(given) and kept[-1] == 1:
        kept = kept[:-1]
    if not kept or min(given, default=-1) < 0 or len(kept) == len(given):
        return 0
    return prod(kept) if kept == tuple(given[: len(kept)]) else 0


def last_rows(info: OpInfo) -> int:
    """Rows along the last axis, each of which is a sum by itself."""
    *others, _ = info.sizes(info.input(0).shape, max(1, len(info.input(0).shape or ())))
    return prod(others)
