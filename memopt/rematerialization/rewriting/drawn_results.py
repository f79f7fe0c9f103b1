"""What XLA computes where it draws normal numbers: it stays in the kernel that draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.xla_ops import NORMAL_NUMBERS, Fusion, fusion_of
from memopt.rematerialization.rewriting.apply import find_original

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from memopt.graph.graph import Node


def find_drawn(order: Iterable[Node], stored: AbstractSet[str]) -> list[Node]:
    """The operations of kernels that draw normal numbers, up to those whose results are in memory.

    A copy of such numbers waits for nothing but a seed and is merged with its original. What two
    kernels read then is drawn in one of its own, where sines and logarithms round otherwise than
    in the kernel of the original.

    Args:
        order: The nodes that run, producers first.
        stored: The operations whose results are in memory; nothing is found if they are not known.
    """
    found: list[Node] = []
    inside: set[Node] = set()
    for node in order if stored else ():
        is_part = fusion_of(node) is not Fusion.KERNEL
        reads = is_part and any(tensor.node in inside for tensor in node.inputs)
        if not reads and node.op not in NORMAL_NUMBERS:
            continue
        found.append(node)
        if find_original(node.name, stored) is None:
            inside.add(node)
    return found
