"""The command for the largest batch: parsing and printing only."""

from __future__ import annotations

import json

import click

from memopt.cli.options import COSTS, REPORT, SEED, usage
from memopt.cli.printing import write_report, writing_refusal
from memopt.console import start_tensorflow, terminal, working


@click.command()
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
@click.option("-o", "--output", help="Where the rewritten graph for the size that is found goes.")
@COSTS
@click.option("--run/--no-run", default=True, show_default=True, help="Prove it by real steps.")
@SEED
@click.option("--fetch", multiple=True, help="A tensor or operation that the caller asks for.")
@click.option("--feed", multiple=True, help="A tensor that the caller gives.")
@REPORT
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def fit(
    *,
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
    report: str | None,
    as_json: bool,
) -> None:
    """Find the largest batch of MODEL, a graph file, whose rewritten step fits into memory.

    The step has to be saved with its batch left open. Nothing is run for the search; then real
    steps prove it. What is written with -o is for the size that was found and no other.
    """
    from memopt.fitting.dimensions import Dimension
    from memopt.fitting.fit import fit as fit_graph
    from memopt.fitting.fit import parse_memory, parse_overhead
    from memopt.io import read_graph, write_graph
    from memopt.report.fits import fit_remarks, fit_table

    with usage("--memory"):
        memory_bytes = parse_memory(memory)
    with usage("--max-overhead"):
        allowed = parse_overhead(max_overhead)
    with usage("--dimension"):
        named = [Dimension.parse(text) for text in dimensions]
    start_tensorflow()
    file = read_graph(model)
    with writing_refusal(report), working(f"fitting {model}") as say:
        found = fit_graph(
            file.message,
            memory_bytes,
            max_overhead=allowed,
            dimensions=named,
            multiple_of=multiple_of,
            costs=costs,
            run=run,
            seed=seed,
            fetch=fetch or None,
            feed=feed or None,
            progress=say,
        )
    if output is not None:
        write_graph(file.with_graph(found.graph_def), output)
    write_report(report, found)
    if as_json:
        click.echo(json.dumps(found.to_json()))
        return
    terminal.print(fit_table(found))
    for line in fit_remarks(found):
        click.echo(line)
    if output is not None:
        click.echo(f"{output}: the step at size {found.size} only, for which it was planned")
