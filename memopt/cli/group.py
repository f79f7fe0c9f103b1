"""The group of all commands: memopt's errors on one line, programs at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from memopt.errors import MemoptError

if TYPE_CHECKING:
    from collections.abc import Callable


class Group(click.Group):
    """Turns memopt's own errors into one line and exit status 1, and runs programs at the end."""

    program: Callable[[], None] | None = None

    def main(self, *args: Any, **extra: Any) -> Any:
        """Do what is asked for; a user's program runs outside, so that its errors are its own."""
        self.program = None
        ended: SystemExit | None = None
        try:
            super().main(*args, **extra)
        except SystemExit as error:
            ended = error
        if self.program is not None:
            self.program()
        elif ended is not None:
            raise ended

    def invoke(self, ctx: click.Context) -> Any:
        """Do a command; an error of memopt's own ends it."""
        try:
            return super().invoke(ctx)
        except MemoptError as error:
            # TensorFlow's own messages, which some of these carry, have several lines.
            click.echo(f"memopt: {' '.join(str(error).split())}", err=True)
            ctx.exit(1)
