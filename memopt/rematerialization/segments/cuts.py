"""Places to cut the part of a sequence before a turn at."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memopt.rematerialization.segments.stage import Stage


def find_cuts(stage: Stage, most: int) -> list[int]:
    """Positions after which to cut, the first before everything, the last one at the turn.

    One for each share of the bytes saved, and of the work that leads to them: where the fewest
    bytes cross.
    """
    count = stage.turn + 1
    crossing_bytes = _crossing_bytes(stage)
    weights = _leading_weights(stage)
    total_bytes = stage.total_saved_bytes or 1
    total_weight = sum(weights) or 1
    done = list(
        accumulate(
            saved_bytes * total_weight + weight * total_bytes
            for saved_bytes, weight in zip(stage.saved_bytes, weights, strict=True)
        )
    )
    best: dict[int, int] = {}
    for position in range(count - 1):
        share = -(-done[position] * most // max(done[-1], 1)) - 1
        if share < 0:
            continue  # nothing comes before it that could be recomputed
        if share not in best or crossing_bytes[position] <= crossing_bytes[best[share]]:
            best[share] = position
    return [-1, *sorted(best.values()), stage.turn]


def _crossing_bytes(stage: Stage) -> list[tuple[int, int]]:
    """By position: the bytes that those read before the turn that come after it; and not saved."""
    change = [0] * (stage.turn + 2)
    unsaved = [0] * (stage.turn + 2)
    for position, last in enumerate(stage.last_read):
        change[position] += stage.made_bytes[position]
        change[last] -= stage.made_bytes[position]
        if not stage.saved_bytes[position]:
            unsaved[position] += stage.made_bytes[position]
            unsaved[last] -= stage.made_bytes[position]
    return list(zip(accumulate(change), accumulate(unsaved), strict=True))


def _leading_weights(stage: Stage) -> list[int]:
    """By position: what it costs, if something saved needs it that may be recomputed."""
    leads = [size_bytes > 0 for size_bytes in stage.saved_bytes]
    for position in reversed(range(stage.turn + 1)):
        if leads[position] and stage.movable[position]:
            for source in stage.sources[position]:
                leads[source] = True
    return [
        weight if led and can else 0
        for weight, led, can in zip(stage.weights, leads, stage.movable, strict=True)
    ]
