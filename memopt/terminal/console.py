"""The terminal: where results go, what shows that work is going on, TensorFlow's silence."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING

from rich.console import Console

from memopt.progress import listener, task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.status import Status

_STANDARD_ERROR = 2
_PIPE_WIDTH = 200
# What is no terminal has no width, and cutting numbers off would spoil what a program reads.
terminal = Console(soft_wrap=True, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
_progress = Console(stderr=True)
_shown: list[Status] = []


def start_tensorflow() -> None:
    """Import it without its messages."""
    with task("starting TensorFlow"), silence():
        import_module("tensorflow")


@contextmanager
def silence() -> Iterator[None]:
    """Do without TensorFlow's messages at its start, which no log level keeps back before 2.21."""
    with tempfile.TemporaryFile() as messages:
        standard_error = os.dup(_STANDARD_ERROR)
        os.dup2(messages.fileno(), _STANDARD_ERROR)
        try:
            yield
        finally:
            os.dup2(standard_error, _STANDARD_ERROR)
            os.close(standard_error)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Say that something is going on; what it gives is told how far it has come.

    Who listens to progress is told of it. Where nobody does, it shows on a terminal, and in a pipe
    nothing does; inside another one it takes its line for a while: rich shows one at a time.
    """
    if listener() is not None:
        with task(what) as under_way:
            yield under_way.say
        return
    status = _shown[-1] if _shown else _progress.status("")
    outer = status.status
    with nullcontext() if _shown else status:
        _shown.append(status)
        status.update(f"{what} ...")
        try:
            yield lambda line: status.update(f"{what}: {line} ...")
        finally:
            _shown.pop()
            status.update(outer)
