"""Einsum's scratch memory: what it transposes before its product, and after."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.product_scratch import Product

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memopt.buffers.kernel_call import KernelCall

_BATCH, _FREE, _CONTRACTED = range(3)
_SWAPPED = {_BATCH: _BATCH, _CONTRACTED: _FREE, _FREE: _CONTRACTED}
"""A product can also take a matrix whose contracted dimension comes first."""


class Equation(NamedTuple):
    """The labels of two operands and of the output, as in "ab,bc->ac"."""

    left: str
    right: str
    output: str

    def order(self) -> dict[str, tuple[int, int]]:
        """By label: whether it is of the batch, free or contracted, and its number."""
        labels = dict.fromkeys(self.left + self.right)
        return {label: (self._kind(label), number) for number, label in enumerate(labels)}

    def _kind(self, label: str) -> int:
        if label not in self.output:
            return _CONTRACTED
        return _BATCH if label in self.left and label in self.right else _FREE


def product_of(call: KernelCall) -> Equation | None:
    """The equation of an Einsum that is a product of two matrices, or of batches of them.

    `None` for one that sums over a label of one operand alone, repeats a label in an operand, or
    leaves out labels by an ellipsis: its scratch memory is not known.
    """
    attribute = call.node.attributes.get("equation")
    text = attribute.s.decode(errors="replace") if attribute is not None else ""
    operands, arrow, output = text.replace(" ", "").partition("->")
    left, comma, right = operands.partition(",")
    if not (arrow and comma) or "." in text or "," in right:
        return None
    parts = (left, right, output)
    if any(len(set(part)) < len(part) for part in parts):
        return None
    alone = (set(left) ^ set(right)) - set(output)
    known = set(output) <= set(left) | set(right)
    return Equation(*parts) if known and not alone else None


def einsum_scratch_bytes(call: KernelCall, product_bytes: int = 0) -> int:
    """What an Einsum has only while it runs; 0 if that is not known.

    As `EinsumOp` (tensorflow/core/kernels/linalg/einsum_op_impl.h): each operand is transposed to
    batch, free and contracted labels unless it lies so, or so with the last two swapped; the
    product is transposed if the output is not batch, left and right labels.

    Args:
        call: The Einsum.
        product_bytes: What its product of matrices has only while it runs, which is gone when the
            product is transposed.
    """
    equation = product_of(call)
    if equation is None:
        return 0
    order = equation.order()
    transposed_bytes = sum(
        tensor.size_bytes or 0
        for labels, tensor in zip(equation[:2], call.inputs, strict=True)
        if not _is_in_order(labels, order)
    )
    # The left matrix's free labels have the lower numbers.
    in_turn = sorted(order, key=order.__getitem__)
    product = "".join(label for label in in_turn if label in equation.output)
    is_transposed = product != equation.output and len(product) > 1
    result_bytes = (call.outputs[0].size_bytes or 0) if is_transposed else 0
    return transposed_bytes + max(result_bytes, product_bytes)


def matrices_of(call: KernelCall) -> Product | None:
    """The product of batches of matrices that an Einsum makes; `None` if it is not known.

    An operand that does not lie as it is wanted is transposed before, to batch, free and
    contracted labels: the right one is then read across.
    """
    equation = product_of(call)
    if equation is None:
        return None
    sizes = dict[str, int]()
    for labels, tensor in zip(equation[:2], call.inputs, strict=True):
        assert tensor.shape is not None
        sizes.update(zip(labels, tensor.shape, strict=True))
    order = equation.order()

    def amount(labels: Iterable[str], kind: int) -> int:
        return prod(sizes[label] for label in labels if order[label][0] == kind)

    return Product(
        amount(sizes, _BATCH),
        amount(equation.left, _FREE),
        amount(sizes, _CONTRACTED),
        amount(equation.right, _FREE),
        _is_swapped(equation.left, order),
        not _is_swapped(equation.right, order),
    )


def _is_in_order(labels: Sequence[str], order: Mapping[str, tuple[int, int]]) -> bool:
    if len(labels) <= 1:
        return True
    usual = [order[label] for label in labels]
    return usual == sorted(usual) or _is_swapped(labels, order)


def _is_swapped(labels: Sequence[str], order: Mapping[str, tuple[int, int]]) -> bool:
    """Whether an operand lies with its contracted labels before its free ones."""
    swapped = [(_SWAPPED[kind], number) for kind, number in map(order.__getitem__, labels)]
    return swapped == sorted(swapped)
