"""How far long work is: told to whoever listens in this context, and to nobody by default.

What takes long opens a `task` and says how far it has come; the command line listens and draws
bars or prints lines. The core knows neither: without a listener a task costs nothing.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEAST_SHARE = 0.02
"""Of a task, what has to be done before its pace says anything."""
_MINUTE_S = 60
_HOUR_MIN = 60


@dataclass(eq=False)
class Task:
    """Work that is under way.

    Attributes:
        what: What is done, in words: "planning".
        total: How much there is to do, in any unit; 0 if that is not known.
        most_s: Seconds after which it ends in any case; 0 if there is no such limit.
        is_even: Whether its parts take about as long as one another, so that its pace tells.
        done: How much of it is done.
        note: What is being done now, or what came of the last part.
        started_s: When it began, by `time.monotonic`.
    """

    what: str
    total: float = 0.0
    most_s: float = 0.0
    is_even: bool = True
    done: float = 0.0
    note: str = ""
    started_s: float = field(default_factory=time.monotonic)
    _listener: Listener | None = None

    def advance(self, amount: float = 1.0, note: str = "") -> None:
        """Say that so much more is done."""
        self.update(self.done + amount, note)

    def skip(self, amount: float = 1.0, note: str = "") -> None:
        """Say that so much need not be done: it took no time, and says nothing of the pace."""
        self.total = max(self.total - amount, 0.0)
        self.update(self.done, note)

    def update(self, done: float, note: str = "") -> None:
        """Say how much is done by now."""
        self.done = min(done, self.total) if self.total else done
        if note:
            self.note = note
        if self._listener is not None:
            self._listener.changed(self)

    def say(self, note: str) -> None:
        """Say what is being done now."""
        self.update(self.done, note)

    @property
    def share(self) -> float | None:
        """How much of it is done, from 0 to 1; `None` if that is not known."""
        return self.done / self.total if self.total else None

    @property
    def seconds(self) -> float:
        """For how long it has been under way."""
        return time.monotonic() - self.started_s

    @property
    def left_s(self) -> float | None:
        """How many seconds it may take still, going by its pace and its limit; `None`: unknown."""
        seconds, share = self.seconds, self.share
        left = [self.most_s - seconds] if self.most_s else []
        if self.is_even and share is not None and share >= _LEAST_SHARE:
            left.append(seconds / share * (1 - share))
        return max(0.0, min(left)) if left else None


class Listener(Protocol):
    """Who is told of tasks; calls come from the thread that works, and must not raise."""

    def began(self, task: Task) -> None:
        """A task has begun, inside those that have not ended."""

    def changed(self, task: Task) -> None:
        """A task has come further."""

    def ended(self, task: Task) -> None:
        """A task has ended, well or not."""

    def found(self, result: str) -> None:
        """Something is had already that is of use if the work is stopped here."""


_listener: ContextVar[Listener | None] = ContextVar("memopt_progress", default=None)


def listener() -> Listener | None:
    """Who listens in this context."""
    return _listener.get()


@contextmanager
def listening(to: Listener | None) -> Iterator[None]:
    """Let somebody, or nobody, listen to what is done inside, in this thread or task."""
    token = _listener.set(to)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def task(
    what: str, total: float = 0.0, most_s: float = 0.0, *, is_even: bool = True
) -> Iterator[Task]:
    """Say that work is under way; what is yielded is told how far it has come.

    Args:
        what: What is done, in words.
        total: How much there is to do, in any unit; 0 if that is not known.
        most_s: Seconds after which it ends in any case; 0 or infinity if there is no such limit.
        is_even: Whether its parts take about as long as one another.
    """
    told = _listener.get()
    limit_s = most_s if 0 < most_s < float("inf") else 0.0
    begun = Task(what, total, limit_s, is_even, _listener=told)
    if told is not None:
        told.began(begun)
    try:
        yield begun
    finally:
        if told is not None:
            told.ended(begun)


def found(result: str) -> None:
    """Say what is had already, in case that the work is stopped here."""
    told = _listener.get()
    if told is not None:
        told.found(result)


def duration_text(seconds: float) -> str:
    """A duration for people: "0.7 s", "12 s", "3 min 5 s", "2 h 10 min"."""
    if seconds < 1:
        return f"{seconds:.1f} s"
    if round(seconds) < _MINUTE_S:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), _MINUTE_S)
    if minutes >= _HOUR_MIN:
        hours, minutes = divmod(minutes, _HOUR_MIN)
        return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
