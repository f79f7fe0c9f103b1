"""The command for the largest batch: parsing and printing only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from memopt.cli.options import COSTS, FUNCTION, JOBS, ON, REPORT, SEED, SIGNATURE, usage
from memopt.cli.printing import write_report, writing_refusal
from memopt.cli.saved_models import OF_SAVED_MODELS, fit_model, refuse_given
from memopt.saved_model.files import is_saved_model
from memopt.terminal.console import start_tensorflow, terminal, working

if TYPE_CHECKING:
    from memopt.fitting.result import Fit


@click.command(short_help="Find the largest batch that fits into memory.")
@click.argument("model")
@click.option(
    "--memory",
    required=True,
    help='What the step may use at any moment, everything included, such as "4GiB".',
)
@click.option(
    "--max-overhead",
    default="20%",
    show_default=True,
    help="The share of its estimated time that the step may take longer.",
)
@click.option(
    "--dimension",
    "dimensions",
    multiple=True,
    help='What has the size that is looked for, "images:0", or a known one, "tokens:1=64"; the '
    "first open dimension of everything that is fed if not given.",
)
@click.option(
    "--multiple-of",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Sizes are multiples of this.",
)
@click.option("-o", "--output", help="Where what is rewritten for the size that is found goes.")
@COSTS
@click.option("--run/--no-run", default=True, show_default=True, help="Prove it by real steps.")
@SEED
@click.option("--fetch", multiple=True, help="A tensor or operation that the caller asks for.")
@click.option("--feed", multiple=True, help="A tensor that the caller gives.")
@FUNCTION
@SIGNATURE
@JOBS
@ON
@REPORT
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def fit(
    context: click.Context,
    /,
    model: str,
    memory: str,
    max_overhead: str,
    dimensions: tuple[str, ...],
    multiple_of: int,
    output: str | None,
    costs: str,
    run: bool,
    seed: int,
    fetch: tuple[str, ...],
    feed: tuple[str, ...],
    function: str | None,
    signature: str | None,
    jobs: int | None,
    on: str | None,
    report: str | None,
    as_json: bool,
) -> None:
    """Find the largest batch of MODEL whose rewritten step fits into memory.

    MODEL is a graph file or the folder of a SavedModel, of which the function that trains counts.
    The step has to be saved with its batch left open. Nothing is run for the search; then real
    steps prove it. A graph that is written with -o is for the size that was found and no other; a
    SavedModel takes others as well where that can be.
    """
    from memopt.fitting.dimensions import Dimension
    from memopt.fitting.fit import fit as fit_graph
    from memopt.fitting.fit import parse_memory, parse_overhead
    from memopt.io import read_graph, write_graph

    with usage("--memory"):
        memory_bytes = parse_memory(memory)
    with usage("--max-overhead"):
        allowed = parse_overhead(max_overhead)
    with usage("--dimension"):
        named = [Dimension.parse(text) for text in dimensions]
    shared: dict[str, Any] = {
        "max_overhead": allowed,
        "dimensions": named,
        "multiple_of": multiple_of,
        "costs": costs,
        "run": run,
        "seed": seed,
        "jobs": jobs,
        "on": on,
    }
    if is_saved_model(model):
        with writing_refusal(report):
            found = fit_model(
                context,
                model,
                memory_bytes,
                output,
                function=function,
                signature=signature,
                **shared,
            )
        _print(found, output, report, as_json=as_json)
        return
    refuse_given(context, OF_SAVED_MODELS, "a SavedModel, and this is none")
    start_tensorflow()
    file = read_graph(model)
    with writing_refusal(report), working(f"fitting {model}") as say:
        found = fit_graph(
            file.message,
            memory_bytes,
            **shared,
            fetch=fetch or None,
            feed=feed or None,
            progress=say,
        )
    if output is not None:
        write_graph(file.with_graph(found.graph_def), output)
    _print(found, output, report, as_json=as_json)


def _print(found: Fit, output: str | None, report: str | None, *, as_json: bool) -> None:
    """Print what was found, and write the page."""
    from memopt.report.fits import fit_remarks, fit_table

    write_report(report, found)
    if as_json:
        click.echo(json.dumps(found.to_json()))
        return
    terminal.print(fit_table(found))
    for line in fit_remarks(found):
        click.echo(line)
    if output is not None:
        only = "only, for" if found.only_size else "and others; it is size"
        end = "which it was planned" if found.only_size else f"{found.size} that it was planned for"
        click.echo(f"{output}: the step at size {found.size} {only} {end}")
