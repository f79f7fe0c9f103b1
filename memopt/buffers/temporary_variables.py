"""Temporary variables: memory in which a sum is added up, from its first value to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memopt.buffers.placed_tensors import PlacedTensors
    from memopt.graph.graph import Node

TEMPORARY = "TemporaryVariable"


def begin_sum(tensors: PlacedTensors, place: int, node: Node) -> bool:
    """Place what a node gives that puts the first value of a sum into one; whether it does.

    The value takes the place of what nobody else reads, or is copied into the variable's memory
    (tensorflow/core/kernels/assign_op.h), in which the sum stays.

    Args:
        tensors: The buffers of the run.
        place: The node's.
        node: Any.
    """
    if node.op != "Assign" or node.inputs[0].node.op != TEMPORARY:
        return False
    variable, value = (tensors.buffer(tensor) for tensor in node.inputs)
    size_bytes = tensors.pool.size_bytes[variable]
    tensors.give(place, tensors.make(place, size_bytes, (value, variable)))
    return True
