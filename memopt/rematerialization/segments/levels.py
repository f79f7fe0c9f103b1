"""How much of a segment is recomputed: everything, or only what costs little for its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memopt.rematerialization.segments.stage import Stage

_SHARES = (0.2, 0.4, 0.6, 0.8)
"""Shares of the bytes saved: what costs least for its size is recomputed first."""


class Level:
    """What is recomputed if nothing is cut: the same rule everywhere.

    Attributes:
        rank: Position among the levels; at 0 nothing is recomputed.
        again: By position: whether it is recomputed.
        kept_bytes: By position: what is kept for behind the turn.
        dropped_bytes: By position: what is saved and not kept.
        droppable: By position: whether the rule allows it to be recomputed.
    """

    def __init__(self, stage: Stage, rank: int, droppable: list[bool]) -> None:
        self.rank = rank
        self.droppable = droppable
        count = stage.turn + 1
        self.again = [False] * count
        wanted = [size_bytes > 0 for size_bytes in stage.saved_bytes]
        self.kept_bytes = [0] * count
        self.dropped_bytes = [0] * count
        for position in reversed(range(count)):
            if not wanted[position]:
                continue
            if not droppable[position]:
                saved_bytes = stage.saved_bytes[position]
                self.kept_bytes[position] = saved_bytes or stage.made_bytes[position]
                continue
            self.again[position] = True
            self.dropped_bytes[position] = stage.saved_bytes[position]
            for source in stage.sources[position]:
                wanted[source] = True


def find_levels(stage: Stage) -> list[Level]:
    """Levels from nothing to everything."""
    count = stage.turn + 1
    density = [
        weight / max(size_bytes, 1)
        for weight, size_bytes in zip(stage.unit_weights, stage.made_bytes, strict=True)
    ]
    droppable = [
        (density[position], stage.saved_bytes[position])
        for position in range(count)
        if stage.movable[position] and stage.saved_bytes[position]
    ]
    droppable.sort()
    total_bytes = sum(size_bytes for _, size_bytes in droppable)
    thresholds: list[float] = []
    so_far_bytes = 0
    for value, size_bytes in droppable:
        so_far_bytes += size_bytes
        if (
            len(thresholds) < len(_SHARES)
            and so_far_bytes >= _SHARES[len(thresholds)] * total_bytes
        ):
            thresholds.append(value)
    allowed = [[False] * count]
    for threshold in dict.fromkeys(thresholds):
        rule = [
            can and density[position] <= threshold for position, can in enumerate(stage.movable)
        ]
        if rule != allowed[-1]:
            allowed.append(rule)
    if stage.movable != allowed[-1]:
        allowed.append(list(stage.movable))
    return [Level(stage, rank, rule) for rank, rule in enumerate(allowed)]
