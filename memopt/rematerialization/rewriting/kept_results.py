"""Results of the forward part that XLA would compute again from what is larger: better kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.xla_ops import ELEMENTWISE, Fusion, fusion_of
from memopt.rematerialization.rewriting.apply import find_original
from memopt.rematerialization.rewriting.data_triggers import can_wait, is_mask

if TYPE_CHECKING:
    from collections.abc import Collection

    from memopt.context import Context
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.shapes.properties import Properties

_MADE_TOGETHER = ELEMENTWISE | {Fusion.REDUCTION, Fusion.VIEW}
_LEAST_BYTES = 4096
_PRODUCTS = frozenset({"Mul", "MulNoNan", "Square", "SquaredDifference", "LeakyRelu"})
NORMALIZATION = "FusedBatchNorm"
"""What ops begin with that multiply, add and take averages."""


def find_kept(rewriter: Rewriter, context: Context, backward: Collection[str]) -> list[Tensor]:
    """Results of the forward part, or copies of them, that are better kept; linear in edges.

    1. What both a kernel and a fusion read: it is in memory for the kernel, and for the fusion what
       it is made of is. Not what a reduction reads: fused with what makes its operand it may add in
       another order.
    2. Masks that the backward part reads (which elements were dropped): what they are compared of
       is four times as large.

    Args:
        rewriter: The graph.
        context: The sizes of tensors, and what must stay as it is called.
        backward: Names of the nodes of the backward part.
    """
    found = []
    for node in rewriter.graph:
        if fusion_of(node) is not Fusion.CHEAP or node.name in context.named:
            continue
        outputs = context.properties.outputs(node.name)
        if (
            not outputs
            or outputs[0].least_bytes < _LEAST_BYTES
            or find_original(node.name, backward)
        ):
            continue
        tensor = node.output(0)
        if is_mask(tensor, rewriter):
            is_better = _is_read_behind(tensor, backward)
        else:
            is_better = can_wait(tensor, rewriter) and _is_read_both_ways(tensor)
        if is_better:
            found.append(tensor)
    return found


def _is_read_behind(mask: Tensor, backward: Collection[str]) -> bool:
    """Whether only fusions read a mask, and some of the backward part."""
    readers = find_readers(mask)
    is_fused = all(fusion_of(reader) in ELEMENTWISE for reader in readers)
    return is_fused and any(find_original(reader.name, backward) for reader in readers)


def _is_read_both_ways(tensor: Tensor) -> bool:
    """Whether kernels and fusions read a result, and no reductions."""
    fusions = {fusion_of(reader) for reader in find_readers(tensor)}
    if Fusion.REDUCTION in fusions or Fusion.KERNEL not in fusions:
        return False
    return not fusions.isdisjoint(ELEMENTWISE)


def may_round(tensor: Tensor, rewriter: Rewriter) -> bool:
    """Whether the kernel that makes a result multiplies: what it fuses decides how it rounds.

    Masks are compared of random numbers, which no product makes.
    """
    if is_mask(tensor, rewriter):
        return False
    seen: set[Node] = set()
    pending = [tensor.node]
    while pending:
        node = pending.pop()
        if node in seen or fusion_of(node) not in _MADE_TOGETHER:
            continue
        if node.op in _PRODUCTS or node.op.startswith(NORMALIZATION):
            return True
        seen.add(node)
        pending.extend(source.node for source in node.inputs)
    return False


def find_readers(tensor: Tensor, properties: Properties | None = None) -> set[Node]:
    """Who reads a tensor, through views of it, too.

    Args:
        tensor: The tensor.
        properties: If given, those who read it through a view that is known to have another shape
            do not count.
    """
    made = properties.tensor(tensor.name) if properties else None
    found: set[Node] = set()
    pending = [tensor]
    while pending:
        for user, _ in pending.pop().uses:
            if fusion_of(user) is not Fusion.VIEW:
                found.add(user)
                continue
            for shown in user.outputs:
                known = properties.tensor(shown.name) if made and properties else None
                if not (made and known) or known.shape == made.shape:
                    pending.append(shown)
    return found


def is_reshaped_for_kernels(tensor: Tensor, context: Context) -> bool:
    """Whether all kernels that read a tensor read it in another shape than that it is made in."""
    readers = find_readers(tensor, context.properties)
    return not any(fusion_of(reader) is Fusion.KERNEL for reader in readers)
