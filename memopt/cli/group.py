"""The group of all commands: errors and Ctrl-C on one line, progress, programs at the end."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from memopt.display import clip
from memopt.errors import MemoptError
from memopt.progress import listening
from memopt.terminal.progress_display import MODES, Silent, display_for

if TYPE_CHECKING:
    from collections.abc import Callable

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
"""Exit statuses besides 0. 130 is what a shell says of a program that Ctrl-C ended."""

LONGEST_LINE = 300
"""Characters of an error on the standard error; what is longer goes to a file as well."""


class Group(click.Group):
    """Turns memopt's own errors into one line and exit status 1, and runs programs at the end."""

    program: Callable[[], None] | None = None

    def __call__(self, *args: Any, **extra: Any) -> Any:
        """What the installed program does: as `main`, but Ctrl-C ends the process there and then.

        Python and TensorFlow take seconds to take themselves down when there is nothing left to do.
        """
        try:
            return super().__call__(*args, **extra)
        except SystemExit as error:
            if error.code == INTERRUPTED and self.program is None:
                _leave()
            raise

    def main(self, *args: Any, **extra: Any) -> Any:
        """Do what is asked for; a user's program runs outside, so that its errors are its own."""
        self.program = None
        ended: SystemExit | None = None
        handler = signal.getsignal(signal.SIGINT)
        try:
            super().main(*args, **extra)
        except SystemExit as error:
            ended = error
        finally:
            with suppress(ValueError):
                signal.signal(signal.SIGINT, handler)
        if self.program is not None:
            self.program()
        elif ended is not None:
            raise ended

    def invoke(self, ctx: click.Context) -> Any:
        """Do a command; an error of memopt's own, or Ctrl-C, ends it with one line."""
        shown = ctx.obj = Shown()
        try:
            with listening(shown):
                return super().invoke(ctx)
        except MemoptError as error:
            shown.close()
            # TensorFlow's own messages, which some of these carry, have several lines.
            click.echo(error_line(str(error), *getattr(error, "__notes__", ())), err=True)
            ctx.exit(FAILED)
        except KeyboardInterrupt:
            with suppress(ValueError):  # not in the main thread
                # Who presses twice does not want less to be said, or more.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            shown.close()
            have = f"; so far: {shown.last_found}" if shown.last_found else ""
            click.echo(clip(f"memopt: interrupted{have}", LONGEST_LINE), err=True)
            ctx.exit(INTERRUPTED)
        finally:
            shown.close()


def _leave() -> None:
    """End the process without taking it down, once what is to be done at its end is done."""
    # Temporary folders go, and what was logged is written.
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no other way to have it done without the rest
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(INTERRUPTED)


class Shown(Silent):
    """What shows progress in the way that options ask for, which are known after it is there."""

    def __init__(self) -> None:
        self._mode = "auto"
        self._display: Silent | None = None

    def choose(self, mode: Any) -> None:
        """Show it in one of `MODES` from now on."""
        self._mode = mode
        self._display = None

    def began(self, task: Any) -> None:
        """A task has begun."""
        if self._display is None:
            self._display = display_for(self._mode)  # type: ignore[arg-type]  # one of MODES
        self._display.began(task)

    def changed(self, task: Any) -> None:
        """A task has come further."""
        if self._display is not None:
            self._display.changed(task)

    def ended(self, task: Any) -> None:
        """A task has ended."""
        if self._display is not None:
            self._display.ended(task)

    def close(self) -> None:
        """Leave nothing behind on a terminal."""
        if self._display is not None:
            self._display.close()


def error_line(message: str, written: str = "") -> str:
    """An error on one line of at most `LONGEST_LINE` characters.

    What is longer ends with the name of a file that has all of it.

    Args:
        message: What is wrong.
        written: A file that has all of it already; "" if there is none.
    """
    line = f"memopt: {' '.join(message.split())}"
    if len(line) <= LONGEST_LINE and not written:
        return line
    path = written or _write_log(message)
    end = f" ... (all of it: {path})" if path else " ..."
    return line[: max(0, LONGEST_LINE - len(end))] + end


def _write_log(message: str) -> str:
    """The name of a new file with a message; "" if none can be written."""
    try:
        handle, path = tempfile.mkstemp(prefix="memopt-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{message}\n")
    except OSError:
        return ""
    return path


def _choose_mode(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    del parameter
    shown = context.find_root().obj
    if value is not None and isinstance(shown, Shown):
        shown.choose(value)


def with_progress(command: click.Command) -> click.Command:
    """A command with the options that say how its progress is shown."""
    command.params += [
        click.Option(
            ["--progress"],
            type=click.Choice(MODES),
            expose_value=False,
            callback=_choose_mode,
            help="How progress is shown on the standard error: bars on a terminal and nothing in a "
            "pipe (auto, the default), bars, plain lines, or none.",
        ),
        click.Option(
            ["-q", "--quiet", "quiet"],
            flag_value="none",
            expose_value=False,
            callback=_choose_mode,
            help="Show no progress.",
        ),
    ]
    return command
