"""What several commands share: options, and what is wrong with their values."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from memopt.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterator

COSTS = click.option(
    "--costs",
    default="grappler",
    show_default=True,
    help='Times of operations: "grappler", "native", a table (.json) or a profile (RunMetadata).',
)
MODE = click.option(
    "--mode", type=click.Choice(["exact", "as-is"]), default="exact", show_default=True
)
INPUTS = click.option("--inputs", help="An .npz file with values of what is fed, by tensor name.")
VARIABLES = click.option("--variables", help="An .npz file with values of variables, by node name.")
SEED = click.option("--seed", type=int, default=0, show_default=True, help="For values made up.")


@contextmanager
def usage(option: str) -> Iterator[None]:
    """Turn what is wrong with the value of an option into wrong usage: exit status 2."""
    try:
        yield
    except OptionsError as error:
        raise click.BadParameter(str(error), param_hint=f"'{option}'") from error
