"""The command that times a step's operations: parsing and printing only."""

from __future__ import annotations

import json

import click

from memopt.cli.options import MODE, arrays_of, values
from memopt.console import start_tensorflow, terminal, working


@click.command()
@click.argument("graph")
@click.option("-o", "--output", required=True, help="Where the profile goes.")
@click.option("--steps", type=click.IntRange(min=1), default=5, show_default=True)
@MODE
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True, help="Ops shown.")
@values
@click.option("--fetch", multiple=True, help="A tensor or operation to run.")
@click.option("--feed", multiple=True, help="A tensor to feed.")
@click.option("--json", "as_json", is_flag=True, help="Print the times of ops as JSON.")
def profile(
    *,
    graph: str,
    output: str,
    steps: int,
    mode: str,
    top: int,
    inputs: str | None,
    variables: str | None,
    seed: int,
    fetch: tuple[str, ...],
    feed: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a few steps of GRAPH for real and write how long its operations take, for --costs.

    The profile is a RunMetadata message, or a table of nanoseconds if OUTPUT ends in .json.
    """
    from memopt.report.profiles import profile_table
    from memopt.runtime.profile import profile as profile_graph

    start_tensorflow()
    with working(f"running {steps} steps of {graph}"):
        found = profile_graph(
            graph,
            steps=steps,
            mode="exact" if mode == "exact" else "as-is",
            inputs=arrays_of(inputs),
            variables=arrays_of(variables),
            seed=seed,
            fetch=fetch or None,
            feed=feed or None,
        )
    found.save(output)
    if as_json:
        click.echo(json.dumps(found.to_json()))
        return
    if top:
        terminal.print(profile_table(found, top))
    click.echo(f"{len(found.times_ns)} operations, median of {steps} steps: {output}")
