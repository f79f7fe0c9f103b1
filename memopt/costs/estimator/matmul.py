"""Products of matrices: plain, sparse, in batches, and by Einstein's summation."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memopt.costs.estimator.op_info import (
    Attribute,
    Formula,
    OpInfo,
    element_bytes,
    flag_of,
    text_of,
)
from memopt.costs.estimator.unknown_op import unknown_work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.costs.estimator.op_info import Work
    from memopt.shapes.tensor_properties import Shape

OPERATIONS_PER_MAC = 2
"""A multiplication and an addition."""

MATRIX_RANK = 2
OPERANDS = 2


def _matrix_product(info: OpInfo) -> Work | None:
    """A product of inputs 0 and 1, whatever else there is (`PredictMatMul`)."""
    transposed = (info.attributes["transpose_a"], info.attributes["transpose_b"])
    operations = _product_operations(
        info, info.input(0).shape, info.input(1).shape, transposed=transposed
    )
    return info.work_on_all(operations)


def _product_operations(
    info: OpInfo,
    left: Sequence[int] | None,
    right: Sequence[int] | None,
    *,
    transposed: tuple[bool, bool],
) -> int:
    """`CountMatMulOperations`, which computes in floating point."""
    rows, inner = info.sizes(left, MATRIX_RANK)
    inner_right, columns = info.sizes(right, MATRIX_RANK)
    if transposed[0]:
        rows, inner = inner, rows
    if transposed[1]:
        inner_right, columns = columns, inner_right
    if inner != inner_right and 1 not in (inner, inner_right):
        return 0
    # One of them may not have been known.
    return int(float(rows) * columns * max(inner, inner_right) * OPERATIONS_PER_MAC)


MATRIX_PRODUCT = Formula(
    _matrix_product,
    (Attribute("transpose_a", flag_of, False), Attribute("transpose_b", flag_of, False)),
)


def _batch_product(info: OpInfo) -> Work | None:
    """A product for each matrix of a batch, batches broadcast (`PredictBatchMatMul`)."""
    transposed = (info.attributes["adj_x"], info.attributes["adj_y"])
    left = _matrices(info, info.input(0).shape)
    right = _matrices(info, info.input(1).shape)
    operations = _batch_operations(info, left, right, transposed=transposed)
    return info.work_on_all(operations)


def _matrices(info: OpInfo, shape: Shape) -> list[int]:
    rank = len(shape or ())
    if rank < MATRIX_RANK:
        info.inaccurate = True
    return info.sizes(shape, max(MATRIX_RANK, rank))


def _batch_operations(
    info: OpInfo, left: list[int], right: list[int], *, transposed: tuple[bool, bool]
) -> int:
    """`CountBatchMatMulOperations`."""
    longer, shorter = (right, left) if len(right) > len(left) else (left, right)
    padded = [1] * (len(longer) - len(shorter)) + shorter
    products = prod(map(max, longer[:-MATRIX_RANK], padded[:-MATRIX_RANK]))
    of_one = _product_operations(
        info, left[-MATRIX_RANK:], right[-MATRIX_RANK:], transposed=transposed
    )
    return products * of_one


BATCH_PRODUCT = Formula(
    _batch_product, (Attribute("adj_x", flag_of, False), Attribute("adj_y", flag_of, False))
)


class Contraction(NamedTuple):
    """Einstein's summation of two operands as a product of matrices in batches.

    Attributes:
        batch: Sizes of the axes that both operands and the result have.
        rows: Elements over the axes of the first operand that the result keeps.
        inner: Elements over the axes that both have and the result has not.
        columns: Elements over the axes of the second operand that the result keeps.
    """

    batch: list[int]
    rows: int
    inner: int
    columns: int


def _einsum(info: OpInfo) -> Work | None:
    """What a single batch product can do; anything else is not known (`PredictEinsum`)."""
    contraction = _contraction(info)
    if contraction is None:
        return unknown_work(info)
    batch, rows, inner, columns = contraction
    left, right = [*batch, rows, inner], [*batch, inner, columns]
    operations = _batch_operations(info, left, right, transposed=(False, False))
    # The second operand's batch is read as large as the first one's.
    read_bytes = prod(left) * element_bytes(info.input(0))
    read_bytes += prod(right) * element_bytes(info.input(1))
    return info.work(operations, read_bytes, info.total_bytes(info.outputs))


def _contraction(info: OpInfo) -> Contraction | None:
    """`GenerateBatchMatmulContextFromEinsum`."""
    labels = _labels(info)
    if labels is None:
        return None
    left, right, result = labels
    left_sizes = _matrices(info, info.inputs[0].shape)
    right_sizes = _matrices(info, info.inputs[1].shape)
    if len(left) != len(left_sizes) or len(right) != len(right_sizes):
        return None
    batch: list[int] = []
    rows = inner = columns = 1
    for label, size in zip(left, left_sizes, strict=True):
        if label not in right:
            rows *= size
        elif label not in result:
            inner *= size
        else:
            batch.append(size)
    for label, size in zip(right, right_sizes, strict=True):
        if label not in left:
            columns *= size
    return Contraction(batch, rows, inner, columns)


def _labels(info: OpInfo) -> tuple[str, str, str] | None:
    """The axes of two operands and the result; `None` if they are of another kind.

    Not understood are an ellipsis, an axis that occurs twice in a tensor, and one that is summed
    over and only one operand has.
    """
    operands, arrow, result = info.attributes["equation"].partition("->")
    left, comma, right = operands.partition(",")
    if not arrow or not comma or "," in right or len(info.inputs) != OPERANDS:
        return None
    labels = (left, right, result)
    if "..." in left or "..." in right or any(len(set(axes)) < len(axes) for axes in labels):
        return None
    alone = set(left) ^ set(right)
    return labels if alone <= set(result) else None


EINSUM = Formula(_einsum, (Attribute("equation", text_of, ""),))


def _sparse_product(info: OpInfo) -> Work | None:
    """A sparse matrix (indices, values, shape) times a dense one.

    `PredictSparseTensorDenseMatMul`: each value meets each column, whichever way the matrices lie.
    """
    indices, values, shape, dense = (info.input(slot) for slot in range(4))
    columns = info.sizes(dense.shape, MATRIX_RANK)[1]
    products = info.elements(values) * columns
    read_bytes = info.total_bytes((indices, values, shape)) + products * element_bytes(dense)
    return info.work(products * OPERATIONS_PER_MAC, read_bytes, info.total_bytes(info.outputs))


SPARSE_PRODUCT = Formula(_sparse_product)
