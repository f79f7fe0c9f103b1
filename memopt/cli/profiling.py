"""The commands that run a step's operations, or its kernels alone: parsing and printing only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from memopt.cli.options import FUNCTION, MODE, SHAPES, SIGNATURE, arrays_of, values
from memopt.cli.printing import print_kernels
from memopt.cli.saved_models import OF_SAVED_MODELS, profile_model, refuse_given
from memopt.saved_model.files import is_saved_model
from memopt.terminal.console import start_tensorflow, terminal, working

if TYPE_CHECKING:
    from memopt.runtime.profile import Profile
    from memopt.runtime.settings import Mode


@click.command(short_help="Measure how long each operation of a step takes.")
@click.argument("graph")
@click.option("-o", "--output", required=True, help="Where the profile goes.")
@click.option("--steps", type=click.IntRange(min=1), default=5, show_default=True)
@click.option(
    "--mode",
    type=click.Choice(["exact", "as-is"]),
    show_default="exact; as-is for a SavedModel",
)
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True, help="Ops shown.")
@values
@click.option("--fetch", multiple=True, help="A tensor or operation to run.")
@click.option("--feed", multiple=True, help="A tensor to feed.")
@FUNCTION
@SIGNATURE
@SHAPES
@click.option("--json", "as_json", is_flag=True, help="Print the times of ops as JSON.")
@click.pass_context
def profile(
    context: click.Context,
    /,
    graph: str,
    output: str,
    steps: int,
    mode: Mode | None,
    top: int,
    inputs: str | None,
    variables: str | None,
    seed: int,
    fetch: tuple[str, ...],
    feed: tuple[str, ...],
    function: str | None,
    signature: str | None,
    shapes: dict[str, tuple[int, ...]],
    as_json: bool,
) -> None:
    """Run a few steps of GRAPH for real and write how long its operations take, for --costs.

    GRAPH is a graph file or the folder of a SavedModel, of which the function that trains runs as
    a loader runs it. The profile is a RunMetadata message, or a table of nanoseconds if OUTPUT ends
    in .json.
    """
    from memopt.runtime.profile import profile as profile_graph

    if is_saved_model(graph):
        found = profile_model(
            context,
            graph,
            function=function,
            signature=signature,
            shapes=shapes,
            steps=steps,
            mode=mode or "as-is",
            inputs=arrays_of(inputs),
            variables=arrays_of(variables),
            seed=seed,
        )
        _write(found, output, top, as_json=as_json)
        return
    refuse_given(context, OF_SAVED_MODELS, "a SavedModel, and this is none")
    start_tensorflow()
    with working(f"running {steps} steps of {graph}"):
        found = profile_graph(
            graph,
            steps=steps,
            mode=mode or "exact",
            inputs=arrays_of(inputs),
            variables=arrays_of(variables),
            seed=seed,
            fetch=fetch or None,
            feed=feed or None,
        )
    _write(found, output, top, as_json=as_json)


def _write(found: Profile, output: str, top: int, *, as_json: bool) -> None:
    """Write a profile, and print it."""
    from memopt.report.profiles import profile_table

    found.save(output)
    if as_json:
        click.echo(json.dumps(found.to_json()))
        return
    if top:
        terminal.print(profile_table(found, top))
    click.echo(f"{len(found.times_ns)} operations, median of {found.steps} steps: {output}")


@click.command("profile-kernels", short_help="Measure each kernel of a step alone.")
@click.argument("graph")
@click.option("-o", "--output", help="The file that keeps what is measured; else the cache folder.")
@MODE
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True, help="Shown.")
@click.option("--fetch", multiple=True, help="A tensor or operation to run.")
@click.option("--feed", multiple=True, help="A tensor to feed.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
def profile_kernels(
    *,
    graph: str,
    output: str | None,
    mode: Mode,
    top: int,
    fetch: tuple[str, ...],
    feed: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run each distinct kernel of GRAPH alone: what it does with memory, and for how long it runs.

    What is measured serves `--kernels measured`, or `--kernels OUTPUT`, which can be shared by
    machines of the same kind. Kernels that are in the file already are not run again.
    """
    from memopt.kernels.profile import profile_kernels as measure

    start_tensorflow()
    with working(f"running the kernels of {graph}"):
        found = measure(graph, path=output, mode=mode, fetch=fetch or None, feed=feed or None)
    if as_json:
        click.echo(json.dumps(found.to_json()))
        return
    print_kernels(found, top)
