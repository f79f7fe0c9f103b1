"""What XLA computes anew in kernels that read it, as operations of their own: so plans see that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.traversal import Numbering
from memopt.graph.xla_ops import COPYING, ELEMENTWISE, Fusion, fusion_of
from memopt.rematerialization.rewriting.data_triggers import least_bytes
from memopt.rematerialization.rewriting.kept_results import find_readers
from memopt.rematerialization.rewriting.node_builder import NodeBuilder

if TYPE_CHECKING:
    from collections.abc import Collection

    from memopt.context import Context
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter

TWIN_PREFIX = "Fused/"
_LEAST_BYTES = 4096
_MOST_INPUTS = 6
"""About how many large operands a kernel has at most for another to become part of it."""


def add_fused_twins(rewriter: Rewriter, context: Context, kept: Collection[Tensor]) -> int:
    """Give those that compute a cheap result in their own kernel an operation of their own for it.

    A cheap result is in memory for the kernels that read memory, such as a convolution, and what
    others of its readers need is what it is made of: they compute it for themselves. With one
    operation for both, a copy of what it is made of would serve none of these. XLA makes one of the
    two again where no copies come between. Linear in edges.

    It is for steps whose convolutions copy operands when they read them, see `delay_operands`, and
    so compute what they copy.

    Args:
        rewriter: With an edit open.
        context: The sizes of tensors.
        kept: Results that stay in memory for all that read them.

    Returns:
        How many were added.
    """
    kept = set(kept)
    count = 0
    builder = NodeBuilder(rewriter, context, TWIN_PREFIX)
    numbering = Numbering.of(rewriter.graph)
    for node in [numbering.nodes[place] for place in numbering.order]:
        tensor = node.output(0)
        if fusion_of(node) is not Fusion.CHEAP or tensor in kept or len(node.inputs) > _MOST_INPUTS:
            continue
        if least_bytes(tensor, context.properties) < _LEAST_BYTES:
            continue
        users = dict.fromkeys(user for user, _ in tensor.uses)
        fused = [user for user in users if _is_fused(user)]
        if not fused or not any(map(_is_read_by_kernel, set(users).difference(fused))):
            continue
        builder.read_instead(fused, tensor, _twin(builder, node))
        count += 1
    return count


def _is_fused(user: Node) -> bool:
    """Whether all that a user of a result is part of compute that result for themselves."""
    return all(
        fusion_of(reader) in ELEMENTWISE or reader.op in COPYING for reader in _readers(user)
    )


def _is_read_by_kernel(user: Node) -> bool:
    return any(fusion_of(reader) is Fusion.KERNEL for reader in _readers(user))


def _readers(user: Node) -> set[Node]:
    """A user, or who reads what it shows."""
    if fusion_of(user) is not Fusion.VIEW:
        return {user}
    return set().union(*map(find_readers, user.outputs))


def _twin(builder: NodeBuilder, node: Node) -> Tensor:
    """The first output of another operation like one."""
    twin = builder.rewriter.add_node(
        builder.free_name(node.name),
        node.op,
        inputs=node.inputs,
        control_inputs=node.control_inputs,
        device=node.device,
        attributes=node.attributes,
    )
    builder.properties.copy(twin.name, node.name)
    return twin.output(0)
