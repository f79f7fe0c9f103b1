"""The command for many models at once: parsing and printing only."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from memopt.cli.options import ON, REPORT, as_bytes, usage
from memopt.rematerialization.algorithms import ALGORITHMS, BEST
from memopt.terminal.console import start_tensorflow, terminal

SOME_FAILED = 3
"""The exit status if some tasks have no result."""


def _as_shape_sets(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> list[dict[str, tuple[int, ...]]]:
    from memopt.fleets.tasks import parse_shape_set

    del context, parameter
    with usage("--shape"):
        return [parse_shape_set(value) for value in values]


@click.command(short_help="Rewrite many models within many budgets.")
@click.argument("models", nargs=-1, required=True)
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    required=True,
    help='What may be in use at any moment, everything included; several as in "50%,70%,6GiB". '
    "May be given again.",
)
@click.option(
    "-o", "--output", required=True, help="The folder for results: new, or an earlier fleet's."
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    callback=_as_shape_sets,
    help='Shapes to go by where they are open, "x=64,16;y=64"; given again, a task for each.',
)
@click.option("--verify", is_flag=True, help="Run original and result before writing.")
@click.option("--algorithm", type=click.Choice([*ALGORITHMS, BEST]), help="How budgets are kept.")
@click.option("--pass", "pass_options", multiple=True, help="Options of a pass.")
@click.option("--all", "every", is_flag=True, help="Of SavedModels: also what does not train.")
@click.option("--fix-shapes", is_flag=True, help="Accept functions that take these shapes alone.")
@click.option(
    "--after-grappler/--before-grappler",
    default=None,
    help="Rewrite what Grappler makes of a step, as for `memopt optimize`.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Tasks at a time; one for each core, or CPU of the cluster, if not given.",
)
@click.option(
    "--memory-limit",
    callback=as_bytes,
    help="Resident memory that a task may take; an equal share of the machine's if not given.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=3600.0,
    show_default=True,
    help="Seconds that a task may take.",
)
@click.option(
    "--copy-limit",
    default="16GiB",
    show_default=True,
    callback=as_bytes,
    help="What may be copied here of a model that lies in another file system.",
)
@ON
@REPORT
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def fleet(
    models: tuple[str, ...],
    *,
    output: str,
    report: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Rewrite MODELS, SavedModels and graph files, each within each budget.

    What was done before in the same folder is not done again. Exit status: 0 if every task has a
    result, 3 if some failed, 130 if interrupted; what was done is kept.
    """
    from memopt.fleets.entry import fleet as run_fleet
    from memopt.fleets.page import write_fleet_page
    from memopt.fleets.text import fleet_lines, fleet_table

    start_tensorflow()
    done = run_fleet(models, output, **options)
    if report is not None:
        write_fleet_page(report, done)
    if as_json:
        click.echo(json.dumps(done.to_json()))
    else:
        terminal.print(fleet_table(done))
        for line in fleet_lines(done):
            click.echo(line)
    if not done.all_done:
        sys.exit(SOME_FAILED)
