"""How far a fleet has come: a line for each task that has come to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.display import clip
from memopt.progress import duration_text, found

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.fleets.report import FleetTask
    from memopt.progress import Task

_NAME_LENGTH = 60
_REASON_LENGTH = 160


class Progress:
    """Counts tasks and says so: to whoever listens to progress, and to the caller.

    Args:
        under_way: The fleet, with the number of its tasks.
        out: Its folder.
        say: Gets each line.
    """

    def __init__(self, under_way: Task, out: str, say: Callable[[str], None]) -> None:
        self._under_way = under_way
        self._total = round(under_way.total)
        self._out = out
        self._say = say
        self._ended = self._done = 0

    def count(self, task: FleetTask) -> None:
        """Take note of a task."""
        self._ended += 1
        self._done += task.is_done
        failed = f", {self._ended - self._done} failed" if self._ended > self._done else ""
        line = f"{self._ended}/{self._total}{failed}: {_outcome_text(task)}"
        if task.is_new:
            self._under_way.advance(note=line)
        else:
            # It took no time, and says nothing about how long the others take.
            self._under_way.skip(note=line)
        found(f"{self._done} of {self._total} tasks are done, and kept in {self._out}")
        left_s = self._under_way.left_s
        left = f"; about {duration_text(left_s)} left" if left_s else ""
        self._say(f"{line}{left}")


def _outcome_text(task: FleetTask) -> str:
    name, budget, shapes, peak, *_, outcome = task.row()
    parts = [clip(f"{name} {budget} {shapes}".strip(), _NAME_LENGTH)]
    if task.is_done:
        parts.append(peak or outcome)
    if outcome != "done":
        parts.append(outcome)
    if task.reason:
        parts.append(clip(task.reason, _REASON_LENGTH))
    return ", ".join(parts)
