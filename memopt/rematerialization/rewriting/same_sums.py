"""Sums in a compiled step, added up by what added them up before, so that they round alike.

XLA's CPU compiler gives a sum of many floats to a library, which adds in another order than its own
kernels do; but not a sum of products, or of what is only moved: it looks at the operation before
the sum (`IsReduceOpOffloadedToYnn` in xla/backends/cpu/ynn_support.cc). So a sum of products that
are divided by a one, or wait, would be given away, and a product with that one is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.copy_names import TRIGGER_PREFIX
from memopt.graph.op_types import DT_FLOAT
from memopt.graph.xla_ops import Fusion, fusion_of
from memopt.rematerialization.rewriting.apply import find_original
from memopt.rematerialization.rewriting.data_triggers import (
    DataTriggers,
    dtype_of,
    find_known,
    least_bytes,
)
from memopt.rematerialization.rewriting.kept_results import NORMALIZATION

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter

_SUMS = frozenset({"BiasAddGrad", "Mean", "Sum"})
_OF_SEVERAL = "IdentityN"
_LEAST_BYTES = 4096
"""Sums of less are given away in no step that was seen."""


def keep_sums(rewriter: Rewriter, context: Context) -> None:
    """Let sums that no library adds up, and read what copies wait for, read a product again.

    Args:
        rewriter: With an edit open, after copies have their triggers.
        context: The sizes of tensors, and which sums a library adds up; if no results of the step
            are known to be stored, nothing is done.
    """
    if not context.stored:
        return
    known = find_known(rewriter, context)
    found = [node for node in rewriter.graph if _may_be_given_away(node, rewriter, context)]
    if known is None or not found:
        return
    triggers = DataTriggers(rewriter, context)
    one = triggers.unknown_one(known)
    for node in found:
        operand = _multiplied(node.inputs[0], one, triggers)
        rewriter.set_inputs(node, [operand, *node.inputs[1:]])


def _multiplied(operand: Tensor, one: Tensor, triggers: DataTriggers) -> Tensor:
    """The product of a tensor and a one; of a view the view of it, which XLA takes into the sum."""
    views = []
    while _is_view(operand.node):
        views.append(operand.node)
        operand = operand.node.inputs[0]
    product = triggers.add(operand, "Mul", [operand, one], T=DT_FLOAT)
    found = triggers.learn(product, operand, DT_FLOAT)
    for view in reversed(views):
        inputs = [found, *view.inputs[1:]]
        found = triggers.add_with(view.output(0), view.op, inputs, dict(view.attributes))
        triggers.properties.copy(found.node.name, view.name)
    return found


def _may_be_given_away(node: Node, rewriter: Rewriter, context: Context) -> bool:
    """Whether a sum reads what a trigger has made, and no library has added it up."""
    if node.op not in _SUMS and not node.op.startswith(NORMALIZATION):
        return False
    if find_original(node.name, context.library_sums) is not None:
        return False
    operand = node.inputs[0]
    if dtype_of(operand, rewriter) != DT_FLOAT:
        return False
    is_large = least_bytes(operand, context.properties) >= _LEAST_BYTES
    return is_large and _behind_views(operand).node.name.startswith(TRIGGER_PREFIX)


def _is_view(node: Node) -> bool:
    return fusion_of(node) is Fusion.VIEW and bool(node.inputs) and node.op != _OF_SEVERAL


def _behind_views(tensor: Tensor) -> Tensor:
    while _is_view(tensor.node):
        tensor = tensor.node.inputs[0]
    return tensor
