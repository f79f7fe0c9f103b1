"""Which segments to recompute: the least work that fits, by dynamic programming over cuts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.rematerialization.segments.options import Option

_MOST_STATES = 48
"""How many ways to get to a cut are remembered."""


class Segment(NamedTuple):
    """Part of what comes before a turn: indices of the cuts around it, and how it is treated."""

    start: int
    end: int
    level: int
    nested: bool


class _State(NamedTuple):
    kept_bytes: int
    weight: int
    segment: Segment | None
    before: _State | None


def choose_segments(options: Sequence[Sequence[Option]], target_bytes: int) -> list[Segment] | None:
    """The segments of least work whose estimated peak is within a target; `None`: there are none.

    By cut the states that are better than all others in bytes kept or in work.
    """
    states: list[list[_State]] = [[_State(0, 0, None, None)]]
    for end in range(1, len(options)):
        found: list[_State] = []
        for option in options[end]:
            most_bytes = target_bytes - option.need_bytes
            segment = Segment(option.start, end, option.level, option.nested)
            for state in states[option.start]:
                if state.kept_bytes > most_bytes:
                    break
                kept_bytes = state.kept_bytes + option.kept_bytes
                found.append(_State(kept_bytes, state.weight + option.weight, segment, state))
        states.append(_thin(found))
    if not states[-1]:
        return None
    chosen: list[Segment] = []
    last: _State | None = min(states[-1], key=lambda state: state.weight)
    while last is not None and last.segment is not None:
        chosen.append(last.segment)
        last = last.before
    return chosen[::-1]


def lowest_target(options: Sequence[Sequence[Option]], highest_bytes: int) -> int:
    """The lowest estimated peak that any choice of segments has."""
    low, high = -1, highest_bytes
    while high - low > max(high >> 10, 1):
        middle = (low + high) // 2
        if _is_possible(options, middle):
            high = middle
        else:
            low = middle
    return high


def _is_possible(options: Sequence[Sequence[Option]], target_bytes: int) -> bool:
    fewest: list[int | None] = [0]
    for end in range(1, len(options)):
        best: int | None = None
        for option in options[end]:
            kept_bytes = fewest[option.start]
            if kept_bytes is None or kept_bytes + option.need_bytes > target_bytes:
                continue
            if best is None or kept_bytes + option.kept_bytes < best:
                best = kept_bytes + option.kept_bytes
        fewest.append(best)
    return fewest[-1] is not None


def _thin(states: list[_State]) -> list[_State]:
    """Those that no other one beats in bytes and work; of too many, some all along."""
    states.sort(key=lambda state: state[:2])
    best: list[_State] = []
    for state in states:
        if not best or state.weight < best[-1].weight:
            best.append(state)
    if len(best) <= _MOST_STATES:
        return best
    last = len(best) - 1
    return [best[n * last // (_MOST_STATES - 1)] for n in range(_MOST_STATES)]
