"""Lets the operands of convolutions in a compiled step wait for the one that is made last.

XLA brings operands of convolutions into other layouts, and does so as soon as it can: the filters
of a whole network lie beside their transposed copies from the first moment on, and results of the
forward part beside theirs until the gradient arrives. What waits for the last operand is copied
when it is read, in the same kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.xla_ops import Fusion, fusion_of
from memopt.rematerialization.rewriting.data_triggers import can_wait, least_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.context import Context
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.rematerialization.rewriting.data_triggers import Triggers

_CONVOLUTIONS = ("Conv2D", "Conv3D", "DepthwiseConv2dNative")
_LEAST_BYTES = 4096
_BEFORE_THE_STEP = -1


def delay_operands(
    rewriter: Rewriter, context: Context, order: Sequence[Node], triggers: Triggers
) -> int:
    """Let all operands of each convolution wait for the last of them.

    Args:
        rewriter: With an edit open.
        context: The sizes of tensors.
        order: The nodes in the order that was planned.
        triggers: How tensors wait.

    Returns:
        How many operands wait.
    """
    position = {node: number for number, node in enumerate(order)}
    count = 0
    for node in order:
        if not node.op.startswith(_CONVOLUTIONS):
            continue
        large = [
            tensor
            for tensor in dict.fromkeys(node.inputs)
            if can_wait(tensor, rewriter)
            and least_bytes(tensor, context.properties) >= _LEAST_BYTES
        ]
        last = max(large, key=lambda tensor: _made_at(tensor, position), default=None)
        if last is None or _made_at(last, position) == _BEFORE_THE_STEP:
            continue
        early = [tensor for tensor in large if tensor != last]
        if early:
            held = triggers.hold(early, last)
            rewriter.set_inputs(node, [held.get(tensor, tensor) for tensor in node.inputs])
            count += len(early)
    return count


def _made_at(tensor: Tensor, position: Mapping[Node, int]) -> int:
    """When the kernel behind a tensor runs; variables and inputs are there before."""
    node = tensor.node
    while fusion_of(node) is Fusion.VIEW and node.inputs:
        node = node.inputs[0].node
    return position.get(node, _BEFORE_THE_STEP) if node.inputs else _BEFORE_THE_STEP
