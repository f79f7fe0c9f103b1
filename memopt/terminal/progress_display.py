"""Progress for people: bars on a terminal, or plain lines; told by `memopt.progress`."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import IO, TYPE_CHECKING, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
from rich.text import Text

from memopt.display import clip
from memopt.progress import duration_text

if TYPE_CHECKING:
    import rich.progress

    from memopt.progress import Task

    Mode = Literal["auto", "bars", "plain", "none"]

MODES = ("auto", "bars", "plain", "none")
"""Bars on a terminal and nothing elsewhere; bars; lines; nothing."""
_FIRST_S = 1.0
"""What is done sooner is not worth a line."""
_EVERY_S = 5.0
_LINE_LENGTH = 160
_NAME_LENGTH = 60
_STANDARD_ERROR = 2


class Silent:
    """Shows nothing; keeps what was found, for who stops the work.

    Attributes:
        last_found: What is had already; "" if nothing is.
    """

    last_found: str = ""

    def began(self, task: Task) -> None:
        """A task has begun."""

    def changed(self, task: Task) -> None:
        """A task has come further."""

    def ended(self, task: Task) -> None:
        """A task has ended."""

    def found(self, result: str) -> None:
        """Keep what is had already."""
        self.last_found = result

    def close(self) -> None:
        """Leave nothing behind on a terminal."""


class Lines(Silent):
    """A line for what takes more than a second, and others every few seconds.

    Args:
        stream: Where they go.
        first_s: After how many seconds the first comes.
        every_s: Seconds between others.
    """

    def __init__(
        self, stream: IO[str], *, first_s: float = _FIRST_S, every_s: float = _EVERY_S
    ) -> None:
        self._stream = stream
        self._first_s = first_s
        self._every_s = every_s
        self._tasks: list[Task] = []
        self._lock = threading.Lock()
        self._next_s = 0.0
        self._has_said = False
        self._idle = threading.Event()

    def began(self, task: Task) -> None:
        """Count seconds from the outermost one on, in a thread: not all of them come further."""
        with self._lock:
            self._tasks.append(task)
            if len(self._tasks) > 1:
                return
            self._has_said = False
            self._next_s = time.monotonic() + self._first_s
            self._idle = threading.Event()
        threading.Thread(target=self._watch, args=(self._idle,), daemon=True).start()

    def changed(self, task: Task) -> None:
        """Say so if it is time to."""
        del task
        self._say_if_due()

    def ended(self, task: Task) -> None:
        """Say how long the outermost one took, if anything was said of it."""
        with self._lock:
            self._tasks.remove(task)
            if self._tasks:
                return
            self._idle.set()
            if self._has_said:
                self._write(f"{clip(task.what, _NAME_LENGTH)}: {duration_text(task.seconds)}")

    def close(self) -> None:
        """Say no more."""
        with self._lock:
            self._idle.set()
            self._tasks.clear()

    def _watch(self, idle: threading.Event) -> None:
        while not idle.wait(min(self._first_s, 1.0)):
            self._say_if_due()

    def _say_if_due(self) -> None:
        with self._lock:
            if not self._tasks or time.monotonic() < self._next_s:
                return
            self._next_s = time.monotonic() + self._every_s
            self._has_said = True
            self._write(line_of(self._tasks))

    def _write(self, line: str) -> None:
        self._stream.write(f"{clip(line, _LINE_LENGTH)}\n")
        self._stream.flush()


def line_of(tasks: list[Task]) -> str:
    """Where tasks stand, the outermost first, and how long they take still, as far as is known."""
    line = ", ".join(map(state_text, tasks))
    line += f"; {duration_text(tasks[0].seconds)} so far"
    for task in tasks:
        left_s = task.left_s
        if left_s is not None:
            of = "" if task is tasks[0] else f" for {clip(task.what, _NAME_LENGTH)}"
            return f"{line}, about {duration_text(left_s)} left{of}"
    return line


def state_text(task: Task) -> str:
    """Where one task stands: "kernels 40 %: MatMul"."""
    share = task.share
    parts = clip(task.what, _NAME_LENGTH)
    if share is not None:
        parts += f" {share:.0%}"
    return f"{parts}: {clip(task.note, _NAME_LENGTH)}" if task.note else parts


class _TimeLeft(ProgressColumn):
    """For how long a task has been under way, and how long it may take still."""

    max_refresh = 0.5

    def render(self, task: rich.progress.Task) -> Text:
        """The column's text."""
        told: Task = task.fields["told"]
        left_s = told.left_s
        left = "" if left_s is None else f", about {duration_text(left_s)} left"
        return Text(f"{duration_text(told.seconds)}{left}", style="dim")


class Bars(Silent):
    """A bar for each task that is under way; they go when it ends.

    Args:
        console: The terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[Task, rich.progress.TaskID] = {}
        self._progress: Progress | None = None

    def began(self, task: Task) -> None:
        """Show it, below those that it is part of."""
        if self._progress is None:
            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                _TimeLeft(),
                console=self._console,
                transient=True,
            )
            self._progress.start()
        self._shown[task] = self._progress.add_task(
            self._described(task, len(self._shown)), total=task.total or None, told=task
        )

    def changed(self, task: Task) -> None:
        """Move its bar."""
        number = self._shown.get(task)
        if self._progress is None or number is None:
            return
        depth = list(self._shown).index(task)
        self._progress.update(
            number,
            completed=task.done,
            total=task.total or None,
            description=self._described(task, depth),
        )

    def ended(self, task: Task) -> None:
        """Take its bar away."""
        number = self._shown.pop(task, None)
        if self._progress is None or number is None:
            return
        self._progress.remove_task(number)
        if not self._shown:
            self.close()

    def close(self) -> None:
        """Give the terminal back."""
        if self._progress is not None:
            self._progress.stop()
        self._progress = None
        self._shown.clear()

    @staticmethod
    def _described(task: Task, depth: int) -> str:
        note = f": {clip(task.note, _NAME_LENGTH)}" if task.note else " ..."
        return f"{'  ' * depth}{clip(task.what, _NAME_LENGTH)}{note}"


def display_for(mode: Mode, stream: IO[str] | None = None) -> Silent:
    """What shows progress in a mode.

    Args:
        mode: One of `MODES`.
        stream: Where it goes; the standard error if not given.
    """
    shown = stream or _own_standard_error()
    if mode == "plain":
        return Lines(shown)
    if mode == "bars" or (mode == "auto" and shown.isatty()):
        return Bars(Console(file=shown, force_terminal=True if mode == "bars" else None))
    return Silent()


def _own_standard_error() -> IO[str]:
    """The standard error; where TensorFlow is kept from writing there, it still can be."""
    try:
        if sys.stderr.fileno() != _STANDARD_ERROR:
            return sys.stderr
        return os.fdopen(os.dup(_STANDARD_ERROR), "w", encoding=sys.stderr.encoding)
    except (OSError, ValueError, AttributeError):
        # No real file: a test's, a notebook's.
        return sys.stderr
