"""Checkpointing by segments: what lies idle at a turn is kept at its cuts, and recomputed between.

Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016); for segments that are cut
again, Griewank and Walther, "Algorithm 799: revolve" (2000).
"""

from __future__ import annotations

from itertools import pairwise
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple

from memopt.rematerialization.dead_code import find_dead
from memopt.rematerialization.instructions import Instructions
from memopt.rematerialization.rematerialized import Rematerialized
from memopt.rematerialization.segments.copies import make_copies
from memopt.rematerialization.segments.cuts import find_cuts
from memopt.rematerialization.segments.search import Search, lay_out_in_time
from memopt.rematerialization.segments.stage import NEVER, Course, Stage, Window
from memopt.time_limit import NO_LIMIT

if TYPE_CHECKING:
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.segments.search import Trial
    from memopt.time_limit import TimeLimit

_MOST_ROUNDS = 16
_MOST_DETOURS = 2
_MOST_APPROACHES = 6
_APPROACH = 32
"""How often a limit is tried that is lower by this fraction of what was reached."""
_MOST_WORK = 250_000
"""Searches times instructions: what looks at large graphs again and again has to end."""


def rematerialize_segments(
    network: Network,
    limit_bytes: int,
    *,
    smallest_bytes: int = 0,
    time_limit: TimeLimit = NO_LIMIT,
) -> Rematerialized:
    """Recompute segments of a sequence instead of keeping what they made, to keep to a limit.

    1. The turn is where the most bytes lie idle: made before, read behind, and not touched for
       long. In a training step that is where the backward part begins.
    2. The part before it is cut where few bytes cross. For each segment between two cuts there is
       a choice: to keep what it made; to recompute some of it, what costs least for its size
       first; or to recompute all of it. Dynamic programming finds the choices of least work.
    3. What is dropped is recomputed just before it is first needed behind the turn, together with
       all dropped things that it needs, and each thing once.
    4. If too much is in use still, the same is done again with the new sequence, around its peak.
       So a segment that was recomputed may be cut itself.

    A limit that cannot be kept is no error; then the lowest peak found is what comes out.
    Near-linear but for the number of cuts, which is limited.

    Args:
        network: The sequence with its buffers.
        limit_bytes: What may be in use, what was held before the step included.
        smallest_bytes: What makes no more than this is recomputed only for something else's sake.
        time_limit: When to end with what was found.
    """
    if network.peak_bytes <= limit_bytes:
        return _finish(_Outcome(Instructions(network), network.peak_bytes, 0, 0))
    best = _Planner(network, limit_bytes, smallest_bytes, time_limit).plan()
    return _finish(best)


def sqrt_segments(network: Network) -> Rematerialized:
    """The plain rule: as many segments as the square root of what they are made of.

    The number of segments is about the square root of the number of saved results, and each has
    about the same share of bytes and work. All that is saved within a segment is recomputed, but
    for the last one, whose results are read at once. No limit is looked at.
    """
    return _finish(_sqrt_outcome(network, 0))


class _Outcome(NamedTuple):
    """A table with copies, its peak, what the copies cost, and in how many rounds they came."""

    instructions: Instructions
    peak_bytes: int
    weight: int
    rounds: int

    def rank(self, limit_bytes: int) -> tuple[int, int]:
        """Less is better: first what is over the limit, then the work."""
        return max(self.peak_bytes - limit_bytes, 0), self.weight


class _Planner:
    """Tries one way after the other."""

    def __init__(
        self, network: Network, limit_bytes: int, smallest_bytes: int, time_limit: TimeLimit
    ) -> None:
        self._network = network
        self._limit_bytes = limit_bytes
        self._smallest_bytes = smallest_bytes
        self._time_limit = time_limit
        self._work = 0

    def plan(self) -> _Outcome:
        """What keeps the limit, or comes nearest to it."""
        limit_bytes = self._limit_bytes
        best = self._run(limit_bytes, nested=False)
        plain = _sqrt_outcome(self._network, self._smallest_bytes)
        best = min(best, plain, key=lambda outcome: outcome.rank(limit_bytes))
        if best.peak_bytes > limit_bytes:
            nested = self._run(limit_bytes, nested=True)
            best = min(best, nested, key=lambda outcome: outcome.rank(limit_bytes))
        if best.peak_bytes > limit_bytes:
            return self._come_nearer(best)
        return self._make_cheaper(best)

    def _make_cheaper(self, best: _Outcome) -> _Outcome:
        """What took several rounds may take fewer if the first one aims lower."""
        limit_bytes = self._limit_bytes
        room_bytes = limit_bytes - self._network.buffer_graph.held_bytes
        for part in range(1, _MOST_DETOURS + 1):
            if best.rounds <= 1 or self._time_limit.is_over:
                break
            other = self._run(limit_bytes - part * room_bytes // _APPROACH, nested=False)
            best = min(best, other, key=lambda outcome: outcome.rank(limit_bytes))
        return best

    def _come_nearer(self, best: _Outcome) -> _Outcome:
        """With limits that are nearly in reach, more is reached than with one that is not."""
        held_bytes = self._network.buffer_graph.held_bytes
        for _ in range(_MOST_APPROACHES):
            if self._time_limit.is_over:
                return best
            step_bytes = (best.peak_bytes - held_bytes) // _APPROACH
            goal_bytes = max(best.peak_bytes - step_bytes, self._limit_bytes)
            nearer = min(
                (self._run(goal_bytes, nested=nested) for nested in (False, True)),
                key=lambda outcome: outcome.rank(goal_bytes),
            )
            if nearer.peak_bytes >= best.peak_bytes:
                break
            best = nearer
        # What comes as near may cost less if it does not try for more.
        again = self._run(best.peak_bytes, nested=False)
        return min(best, again, key=lambda outcome: outcome.rank(best.peak_bytes))

    def _run(self, limit_bytes: int, *, nested: bool) -> _Outcome:
        """Turn by turn, until the limit is kept or nothing is won."""
        instructions = Instructions(self._network)
        weight = rounds = 0
        course = Course(instructions)
        while course.peak_bytes > limit_bytes and rounds < _MOST_ROUNDS:
            if self._time_limit.is_over:
                break
            trial = self._best_trial(course, limit_bytes, nested=nested)
            if trial is None:
                break
            make_copies(trial.stage, trial.layout)
            weight += trial.layout.weight
            rounds += 1
            course = Course(instructions)
        return _Outcome(instructions, course.peak_bytes, weight, rounds)

    def _best_trial(self, course: Course, limit_bytes: int, *, nested: bool) -> Trial | None:
        """What is best at the turn of all that is over the limit, or at one near the peak."""
        best: Trial | None = None
        for window in course.find_windows(limit_bytes):
            turn = course.find_turn(window)
            if turn == NEVER or self._work > _MOST_WORK or self._time_limit.is_over:
                continue
            self._work += len(course.order)
            stage = Stage(course, turn, self._smallest_bytes)
            search = Search(stage, window, limit_bytes, self._time_limit, nested=nested)
            trial = search.best()
            if trial is None or not (trial.nested or trial.peak_bytes < course.peak_bytes):
                continue
            if best is None or trial.rank(limit_bytes) < best.rank(limit_bytes):
                best = trial
            if trial.peak_bytes <= limit_bytes:
                break
        return best


def _sqrt_outcome(network: Network, smallest_bytes: int) -> _Outcome:
    instructions = Instructions(network)
    course = Course(instructions)
    turn = course.find_turn(Window(0, len(course.order) - 1)) if course.order else NEVER
    if turn == NEVER:
        return _Outcome(instructions, course.peak_bytes, 0, 0)
    stage = Stage(course, turn, smallest_bytes)
    saved = zip(stage.saved_bytes, stage.movable, strict=True)
    count = sum(1 for size_bytes, can in saved if size_bytes and can)
    segments = isqrt(max(count - 1, 0)) + 1
    cuts = find_cuts(stage, segments)
    dropped = [False] * (turn + 1)
    for first, last in pairwise(cuts[:segments]):
        for position in range(first + 1, last + 1):
            dropped[position] = stage.last_read[position] <= last
    layout = lay_out_in_time(stage, dropped)
    make_copies(stage, layout)
    return _Outcome(instructions, Course(instructions).peak_bytes, layout.weight, 1)


def _finish(outcome: _Outcome) -> Rematerialized:
    removed = find_dead(outcome.instructions)
    gone = frozenset(removed)
    return Rematerialized(
        outcome.instructions,
        [number for number in outcome.instructions.line if number not in gone],
        removed,
        outcome.peak_bytes,
        outcome.rounds,
    )
