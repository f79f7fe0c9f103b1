"""The search at one turn: cuts and levels, dynamic programming, and how it really turns out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.rematerialization.segments.choice import choose_segments, lowest_target
from memopt.rematerialization.segments.cuts import find_cuts
from memopt.rematerialization.segments.layout import Layout, Outlook, follow, lay_out
from memopt.rematerialization.segments.levels import find_levels
from memopt.rematerialization.segments.options import find_nested, find_options
from memopt.rematerialization.segments.refining import drop_more, keep_more
from memopt.time_limit import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.rematerialization.segments.choice import Segment
    from memopt.rematerialization.segments.stage import Stage, Window
    from memopt.time_limit import TimeLimit

_MOST_CUTS = 64
_MOST_TRIES = 6
_MOST_REFINEMENTS = 16


class Trial(NamedTuple):
    """What could be done at a turn.

    Attributes:
        stage: The turn.
        dropped: By position: what is not kept.
        layout: What is recomputed where.
        outlook: The memory that this takes.
        nested: Whether that is not the end of it: something recomputed is to be cut itself.
    """

    stage: Stage
    dropped: list[bool]
    layout: Layout
    outlook: Outlook
    nested: bool

    @property
    def peak_bytes(self) -> int:
        """The most in use in the window and wherever something changed for the worse."""
        return self.outlook.peak_bytes

    def rank(self, limit_bytes: int) -> tuple[int, int]:
        """Less is better: first what is over the limit, then the work."""
        return max(self.peak_bytes - limit_bytes, 0), self.layout.weight


class Search:
    """Ways to keep a limit at a turn.

    Args:
        stage: The turn.
        window: Where the limit is to be kept.
        limit_bytes: The limit, what is held included.
        time_limit: When to end with what was found.
        nested: Whether to count on cutting again what is recomputed.
    """

    def __init__(
        self,
        stage: Stage,
        window: Window,
        limit_bytes: int,
        time_limit: TimeLimit = NO_LIMIT,
        *,
        nested: bool,
    ) -> None:
        self._time_limit = time_limit
        self._stage = stage
        self._window = window
        self._limit_bytes = limit_bytes
        self._levels = find_levels(stage)
        self._cuts = find_cuts(stage, _MOST_CUTS)
        self._options = find_options(stage, self._levels, self._cuts)
        if nested:
            self._options = find_nested(self._options)

    def best(self) -> Trial | None:
        """The least work that keeps the limit, or what comes nearest to it; `None`: nothing found.

        What is estimated and what is simulated differ, so the estimate is aimed higher or lower
        until the simulation is near the limit.
        """
        limit_bytes = self._limit_bytes
        low = lowest_target(self._options, 2 * self._stage.course.peak_bytes)
        high = max(self._stage.course.peak_bytes, low)
        target_bytes = max(limit_bytes, low)
        best: Trial | None = None
        tried: set[int] = set()
        while target_bytes not in tried and len(tried) < _MOST_TRIES:
            if self._time_limit.is_over:
                break
            tried.add(target_bytes)
            trial = self._try(target_bytes)
            if trial is None or trial.nested:
                return best or trial
            if best is None or trial.rank(limit_bytes) < best.rank(limit_bytes):
                best = trial
            if trial.peak_bytes > limit_bytes:
                high = target_bytes
            else:
                low = target_bytes
            target_bytes = min(max(target_bytes + limit_bytes - trial.peak_bytes, low), high)
        return self._refine(best) if best else None

    def _refine(self, best: Trial) -> Trial:
        """Drop or keep single things while that is for the better."""
        for _ in range(_MOST_REFINEMENTS):
            better = self._better(best)
            if better is None or self._time_limit.is_over:
                break
            best = better
        return best

    def _better(self, best: Trial) -> Trial | None:
        limit_bytes = self._limit_bytes
        is_over = best.peak_bytes > limit_bytes
        change = drop_more if is_over else keep_more
        for positions in change(self._stage, best.layout, best.outlook, limit_bytes):
            dropped = list(best.dropped)
            for position in positions:
                dropped[position] = is_over
            trial = self._follow(dropped)
            if trial.rank(limit_bytes) < best.rank(limit_bytes):
                return trial
        return None

    def _try(self, target_bytes: int) -> Trial | None:
        segments = choose_segments(self._options, target_bytes)
        if segments is None:
            return None
        trial = self._follow(self._dropped(segments))
        return trial._replace(nested=any(segment.nested for segment in segments))

    def _follow(self, dropped: list[bool]) -> Trial:
        layout = lay_out_in_time(self._stage, dropped)
        outlook = follow(self._stage, layout, self._limit_bytes, self._window)
        return Trial(self._stage, dropped, layout, outlook, False)

    def _dropped(self, segments: Sequence[Segment]) -> list[bool]:
        """By position: what the segments recompute, without what they hand to later ones."""
        stage = self._stage
        dropped = [False] * (stage.turn + 1)
        for segment in segments:
            last = self._cuts[segment.end]
            droppable = self._levels[segment.level].droppable
            for position in range(self._cuts[segment.start] + 1, last + 1):
                if droppable[position] and stage.last_read[position] <= last:
                    dropped[position] = True
        return dropped


def lay_out_in_time(stage: Stage, dropped: list[bool]) -> Layout:
    """Lay out what is dropped, but for what would come too late for a follower."""
    dropped = [drop and can for drop, can in zip(dropped, stage.movable, strict=True)]
    layout = lay_out(stage, dropped)
    while layout.late:
        for position in layout.late:
            stage.movable[position] = dropped[position] = False
        layout = lay_out(stage, dropped)
    return layout
