"""How far a fleet has come: a line for each task, with the time that is left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from memopt.display import clip

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.fleets.report import FleetTask

_NAME_LENGTH = 60
_REASON_LENGTH = 160
_SECONDS_PER_MINUTE = 60
_SECONDS_PER_HOUR = 3600


class Progress:
    """Counts tasks and says so.

    Args:
        total: How many tasks there are.
        say: Gets each line.
        clock: Seconds that pass.
    """

    def __init__(
        self,
        total: int,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._say = say
        self._clock = clock
        self._begun_s = clock()
        self._done = self._new = self._failed = 0

    def count(self, task: FleetTask) -> None:
        """Take note of a task."""
        self._done += 1
        self._new += task.is_new
        self._failed += not task.is_done
        name, budget, shapes, peak, *_, outcome = task.row()
        parts = [clip(f"{name} {budget} {shapes}".strip(), _NAME_LENGTH)]
        if task.is_done:
            parts.append(peak or outcome)
        if outcome != "done":
            parts.append(outcome)
        if task.reason:
            parts.append(clip(task.reason, _REASON_LENGTH))
        failed = f", {self._failed} failed" if self._failed else ""
        self._say(f"{self._done}/{self._total}{failed}: {': '.join(parts)}{self._left_text()}")

    def _left_text(self) -> str:
        """About how long the rest takes, by what was done until now; "" while nothing is known."""
        left = self._total - self._done
        if not left or not self._new:
            return ""
        seconds = (self._clock() - self._begun_s) / self._new * left
        return f"; about {duration_text(seconds)} left"


def duration_text(seconds: float) -> str:
    """A time for people, in the unit that suits it."""
    if seconds < _SECONDS_PER_MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _SECONDS_PER_HOUR:
        return f"{seconds / _SECONDS_PER_MINUTE:.0f} min"
    return f"{seconds / _SECONDS_PER_HOUR:.1f} h"
