"""Grows the region around an operation with which splitting it takes off most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.fission.regions import Region, extensions

if TYPE_CHECKING:
    from memopt.fission.facts import Facts
    from memopt.fission.regions import Extension
    from memopt.graph.graph import Node

_MOST_NODES = 48
_TRIED_FULLY = 6
"""Of the regions with one operation more, so many are simulated: those with the least border."""
_IN_VAIN = 12
"""After so many operations that took nothing off, it ends."""


def grow(facts: Facts, target: Node, most_parts: int) -> Region | None:
    """The region around an operation that needs least if it runs in parts.

    One operation after the other is added: who makes or reads the largest tensors at the border,
    and of those the one with which least is needed, even if it is more than before, since a chain
    may only end behind it. The best on the way is taken; of equal ones the smaller one.

    Args:
        facts: What is known of the graph.
        target: The operation.
        most_parts: Into how many parts it may be split.

    Returns:
        The region; `None` if the operation cannot be split at all.
    """
    if not facts.is_split(target):
        return None
    started = (
        Region(facts, frozenset({target}))
        if facts.can_go(target)
        else Region(facts, frozenset(), frozenset({target}))
    )
    current, best, best_key = started, None, None
    in_vain = 0
    for _ in range(_MOST_NODES):
        key = _key(current, most_parts)
        if key is not None and (best_key is None or key < best_key):
            best, best_key, in_vain = current, key, 0
        else:
            in_vain += 1
        following = _best_extension(current, most_parts) if in_vain < _IN_VAIN else None
        if following is None:
            break
        current = following
    return best


def _best_extension(region: Region, most_parts: int) -> Region | None:
    """The best region with one operation more, across the largest tensors at the border."""
    found: dict[tuple[frozenset[Node], frozenset[Node]], Extension] = {}
    for each in extensions(region):
        if each.region.unit > 1:
            found.setdefault((each.region.moved, each.region.copied), each)
    largest = max((each.crossed_bytes for each in found.values()), default=0)
    usable = [each.region for each in found.values() if 2 * each.crossed_bytes > largest]
    usable.sort(key=lambda each: (each.boundary_bytes, each.added_work))
    return min(
        usable[:_TRIED_FULLY],
        key=lambda each: (each.need_bytes(_parts(each, most_parts)), each.added_work),
        default=None,
    )


def _key(region: Region, most_parts: int) -> tuple[int, int, int] | None:
    """What a region is compared by; `None` for one that cannot be written."""
    parts = _parts(region, most_parts)
    if region.why_not or not region.can_be_in(parts):
        return None
    return (region.need_bytes(parts), region.added_work, len(region.nodes))


def _parts(region: Region, most_parts: int) -> int:
    return max(1, min(most_parts, region.unit))
