"""The planner's command: parsing and printing only."""

from __future__ import annotations

import json

import click

from memopt.console import terminal, working
from memopt.errors import OptionsError


@click.command()
@click.argument("cost_graph")
@click.option(
    "--budget", required=True, help="Bytes, such as 6GiB, or a share of what the order needs: 0.8."
)
@click.option("-o", "--output", help="Where the plan goes, as JSON.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--time-limit", type=click.FloatRange(min=0), help="Seconds after which to stop.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(
    *,
    cost_graph: str,
    budget: str,
    output: str | None,
    seed: int,
    time_limit: float | None,
    as_json: bool,
) -> None:
    """Plan COST_GRAPH, a JSON file: order, recomputation and swaps within a budget."""
    from memopt.api import plan as plan_cost_graph
    from memopt.io import write_bytes
    from memopt.options import PlanBudget
    from memopt.report.plans import plan_lines

    try:
        limit = PlanBudget.parse(budget)
    except OptionsError as error:
        raise click.BadParameter(str(error), param_hint="--budget") from error
    with working(f"planning {cost_graph}"):
        found = plan_cost_graph(cost_graph, limit, seed=seed, time_limit_s=time_limit)
    text = json.dumps(found.to_json())
    if output is not None:
        write_bytes(output, f"{text}\n".encode())
    if as_json:
        click.echo(text)
        return
    for line in plan_lines(found):
        terminal.print(line, highlight=False)
