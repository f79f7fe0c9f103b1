"""Scratch memory of oneDNN's products of batches of matrices: the blocks that it copies.

With AVX-512 a matrix that lies across the direction in which the kernel reads it is copied, a block
at a time, by each thread into memory of its own. That grows with the matrices and with the threads:
of the gradient of an attention's values, 256 long, a thread copies 256 KiB. Found by running 844
products with 1 to 16 threads: exact for sizes that attentions have, and more than 1 % of what the
product reads and makes off for 13 % of those that were drawn at random, mostly too high.
Without AVX-512 oneDNN takes none.
"""

from __future__ import annotations

from typing import NamedTuple

from memopt.buffers.rounding import divided, round_up

_FLOAT_BYTES = 4
_LANES = 16
_BLOCK_COLUMNS = 64
_MOST_ROWS = 256
_BLOCK_DEPTH = 512
_ALIASING_COLUMNS = 512
_LEAST_BYTES, _THREAD_BYTES = 128, 640
_ALIGNMENT = 128


class Product(NamedTuple):
    """A product of batches of matrices of 32-bit numbers.

    Attributes:
        batch: How many pairs of matrices.
        rows: Of the left matrix.
        depth: Columns of the left matrix, which are the rows of the right one.
        columns: Of the right matrix.
        transposes_left: Whether the left matrix lies transposed in memory.
        transposes_right: Whether the right one does.
    """

    batch: int
    rows: int
    depth: int
    columns: int
    transposes_left: bool
    transposes_right: bool


def product_scratch_bytes(product: Product, threads: int) -> int:
    """What oneDNN's kernel has while it multiplies."""
    if 0 in product[:4]:
        return 0
    copied = (_left_block_bytes(product, threads), _right_block_bytes(product))
    return (
        _LEAST_BYTES
        + threads * _THREAD_BYTES
        + sum(_ALIGNMENT + round_up(threads * size, _ALIGNMENT) for size in copied if size)
    )


def _left_block_bytes(product: Product, threads: int) -> int:
    """A thread's rows of the left matrix, which too few products share among the threads."""
    if not product.transposes_left or 1 in (product.rows, product.depth):
        return 0
    sharing = max(1, threads // product.batch)
    rows = min(product.rows, _MOST_ROWS, max(_LANES, divided(product.rows, sharing)))
    depth = round_up(min(product.depth, _BLOCK_DEPTH), _LANES)
    if depth == _BLOCK_DEPTH:
        depth += _LANES
    return rows * depth * _FLOAT_BYTES


def _right_block_bytes(product: Product) -> int:
    """Columns of the right matrix, copied too where its rows fall on the same lines of a cache."""
    lies_across = product.transposes_right and 1 not in (product.depth, product.columns)
    if not lies_across and product.columns % _ALIASING_COLUMNS:
        return 0
    is_deep = product.depth > 2 * _BLOCK_DEPTH and not product.transposes_left
    most = 2 * _BLOCK_DEPTH if is_deep else _BLOCK_DEPTH
    return round_up(min(product.depth, most), _LANES) * _BLOCK_COLUMNS * _FLOAT_BYTES
