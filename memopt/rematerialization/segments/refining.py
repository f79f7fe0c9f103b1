"""One thing after the other: dropped besides where too much is in use, kept where there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.rematerialization.segments.stage import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.rematerialization.segments.layout import Layout, Outlook
    from memopt.rematerialization.segments.stage import Stage

_MOST_CANDIDATES = 256
"""So many are looked at, the best ones."""
_MOST_SINGLE = 8
"""So many are tried alone."""
_STEP = 32
"""The fraction of a peak by which it is to be lowered at once."""


def keep_more(
    stage: Stage, layout: Layout, outlook: Outlook, limit_bytes: int
) -> Iterator[list[int]]:
    """Positions of what could be kept, since there is room for it all the time until it is read.

    What costs most for its size comes first. All of it, then smaller parts.
    """
    usage_bytes = list(outlook.usage_bytes)
    found: list[int] = []
    index_of = _indices(outlook)
    ends = {
        member: index_of[group.anchor] - len(group.members) + number
        for group in layout.groups
        for number, member in enumerate(group.members)
    }
    candidates = [member for member in ends if stage.saved_bytes[member]]
    candidates.sort(key=lambda member: (-_density(stage, member), member))
    for member in candidates[:_MOST_CANDIDATES]:
        size_bytes = stage.made_bytes[member]
        first, last = index_of[stage.last_read[member]] + 1, ends[member]
        between = usage_bytes[first:last]
        if max(between, default=0) + size_bytes <= limit_bytes:
            usage_bytes[first:last] = [usage + size_bytes for usage in between]
            found.append(member)
    yield from _parts(found)


def drop_more(
    stage: Stage, layout: Layout, outlook: Outlook, limit_bytes: int
) -> Iterator[list[int]]:
    """Positions of what could be recomputed besides, so that the peak is nearer to the limit.

    What costs least for its size comes first. As much as it takes, then smaller parts, then single
    things.
    """
    worst = outlook.worst
    step_bytes = (outlook.peak_bytes - stage.course.timeline.held_bytes) // _STEP
    excess_bytes = min(outlook.peak_bytes - limit_bytes, step_bytes)
    index_of = _indices(outlook)
    ends = _ends_of_kept(stage, layout, index_of)
    candidates = [
        position
        for position, end in ends.items()
        if stage.movable[position] and index_of[stage.last_read[position]] < worst < end
    ]
    candidates.sort(key=lambda member: (_density(stage, member), member))
    found: list[int] = []
    for position in candidates[:_MOST_CANDIDATES]:
        if excess_bytes <= 0:
            break
        found.append(position)
        excess_bytes -= stage.made_bytes[position]
    yield from _parts(found)
    for position in candidates[1:_MOST_SINGLE]:
        yield [position]


def _parts(found: list[int]) -> Iterator[list[int]]:
    """All of it, the first half, the first quarter, and so on."""
    while found:
        yield found
        found = found[: len(found) // 2]


def _ends_of_kept(stage: Stage, layout: Layout, index_of: dict[int, int]) -> dict[int, int]:
    """By position of what is kept: until when, at least, for what is behind the turn or for copies.

    These are numbers in the new sequence.
    """
    again = {member for group in layout.groups for member in group.members}
    ends = {
        position: index_of[needed_at]
        for position, needed_at in enumerate(stage.needed_at)
        if needed_at != NEVER and position not in again
    }
    for group in layout.groups:
        at = index_of[group.anchor]
        for member in group.members:
            for source in stage.sources[member]:
                if source not in again:
                    ends[source] = max(ends.get(source, at), at)
    return ends


def _density(stage: Stage, position: int) -> float:
    return stage.unit_weights[position] / max(stage.made_bytes[position], 1)


def _indices(outlook: Outlook) -> dict[int, int]:
    """By position: the number in the new sequence."""
    return {place: index for index, place in enumerate(outlook.positions) if place != NEVER}
