"""Whether uses of state stay in order where some nodes no longer wait for some others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.control_dependencies.state_access import find_state_uses
from memopt.graph.op_types import NEXT_ITERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from memopt.graph.graph import Graph
    from memopt.graph.traversal import Numbering

_MOST_USES = 1 << 14
"""Of state; each has a bit at every node."""


def loses_order(graph: Graph, numbering: Numbering, gone: Container[tuple[int, int]]) -> bool:
    """Whether two uses of one state, of which one writes, are in order by some edges alone.

    Grappler takes out a control edge between two uses where a longer path leads from one to the
    other, so any edge may be the last one that does. Linear in edges, times the words that hold a
    bit for each use. Where a graph has loops, or too many uses, the answer is that it may be so.

    Args:
        graph: The graph.
        numbering: Its numbering.
        gone: The edges that are to go, each with the places of what is waited for and who waits.
    """
    uses = find_state_uses(graph)
    used = dict.fromkeys(use.place for group in uses.states for use in group)
    bits = {place: 1 << number for number, place in enumerate(used | dict.fromkeys(uses.effects))}
    has_loops = any(node.op in NEXT_ITERATIONS for node in numbering.nodes)
    if has_loops or len(bits) > _MOST_USES:
        return True
    all_before = _reach(numbering, bits, lambda *_: True)
    still_before = _reach(numbering, bits, lambda *edge: edge not in gone)
    lost = {place: all_before[place] & ~still_before[place] for place in bits}
    # What has effects of its own may have to wait for any use, and any use for it.
    effects = sum(bits[place] for place in dict.fromkeys(uses.effects))
    if any(lost[place] & effects for place in bits) or any(map(lost.get, uses.effects)):
        return True
    for group in uses.states:
        others = sum(bits[place] for place in {use.place for use in group})
        writers = sum(bits[place] for place in {use.place for use in group if use.writes})
        if any(lost[use.place] & (others if use.writes else writers) for use in group):
            return True
    return False


def _reach(
    numbering: Numbering, bits: dict[int, int], is_there: Callable[[int, int], bool]
) -> Sequence[int]:
    """By place: the uses from which edges lead there, as bits."""
    found = [0] * len(numbering.nodes)
    for place in numbering.order:
        for before in numbering.producers[place]:
            if is_there(before, place):
                found[place] |= found[before] | bits.get(before, 0)
    return found
