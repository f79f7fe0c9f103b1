"""The commands about memopt itself: what is there and missing, shell completion; printing only."""

from __future__ import annotations

import json
import sys

import click
from click.shell_completion import get_completion_class

from memopt.cli.group import FAILED
from memopt.terminal.console import start_tensorflow, terminal, working

SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Look whether memopt can work here.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def doctor(*, as_json: bool) -> None:
    """Look whether memopt can work here: what is there, what is missing, and what mends it.

    Exit status 1 if something keeps it from working.
    """
    from memopt.doctor import diagnose

    try:
        start_tensorflow()
    except Exception as error:  # noqa: BLE001 - that it cannot be started is what is looked for
        click.echo(f"TensorFlow does not start: {' '.join(str(error).split())}", err=True)
    with working("looking around"):
        diagnosis = diagnose()
    if as_json:
        click.echo(json.dumps(diagnosis.to_json()))
    else:
        for line in diagnosis.lines():
            terminal.print(line, highlight=False, markup=False)
    if not diagnosis.is_well:
        sys.exit(FAILED)


@click.command(short_help="Print what makes a shell complete commands.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes SHELL complete memopt's commands and options.

    For bash: `memopt completion bash > ~/.local/share/bash-completion/completions/memopt`.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    name = "memopt"
    click.echo(kind(context.find_root().command, {}, name, "_MEMOPT_COMPLETE").source())
