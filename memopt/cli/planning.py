"""The planner's command: parsing and printing only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memopt.cli.options import JOBS, ON, REPORT
from memopt.cli.printing import write_report, writing_refusal
from memopt.console import terminal, working
from memopt.errors import OptionsError

if TYPE_CHECKING:
    from memopt.planning.cost_graph import CostGraph
    from memopt.planning.plan import Plan


@click.command(short_help="Plan a cost graph within a budget.")
@click.argument("cost_graph")
@click.option("--budget", help="Bytes, such as 6GiB, or a share of what the order needs: 0.8.")
@click.option("--sweep", "sweeps", is_flag=True, help="Plan 20 budgets, from the lowest peak on.")
@click.option("-o", "--output", help="Where the plan goes, or all of a sweep's, as JSON.")
@click.option("--svg", help="Where the curve of a sweep goes, as a picture.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--time-limit", type=click.FloatRange(min=0), help="Seconds after which to stop.")
@JOBS
@ON
@click.option("--exact", is_flag=True, help="Let OR-Tools go on where the search ends.")
@REPORT
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def plan(
    *,
    cost_graph: str,
    budget: str | None,
    sweeps: bool,
    output: str | None,
    svg: str | None,
    seed: int,
    time_limit: float | None,
    exact: bool,
    jobs: int | None,
    on: str | None,
    report: str | None,
    as_json: bool,
) -> None:
    """Plan COST_GRAPH, a JSON file: order, recomputation and swaps within a budget."""
    if (budget is None) == (not sweeps):
        raise click.UsageError("give either --budget or --sweep")
    if svg is not None and not sweeps:
        raise click.UsageError("--svg is the curve of a --sweep")
    if not sweeps and (jobs, on) != (None, None):
        raise click.UsageError("--jobs and --on are for the budgets of a --sweep")
    if budget is not None:
        graph = _loaded(cost_graph, report)
        with writing_refusal(report, graph):
            found = _plan_one(cost_graph, budget, seed, time_limit, exact=exact)
        _write(json.dumps(found.to_json()), output, as_json=as_json)
        write_report(report, found, graph)
        _print_plan(found, as_json=as_json)
        return
    curve = _sweep(cost_graph, seed=seed, time_limit_s=time_limit, exact=exact, jobs=jobs, on=on)
    _write(json.dumps([each.to_json() for each in curve]), output, as_json=as_json)
    write_report(report, curve)
    _print_curve(curve, Path(cost_graph).stem, svg, as_json=as_json)


def _plan_one(
    cost_graph: str, budget: str, seed: int, time_limit: float | None, *, exact: bool
) -> Plan:
    from memopt.api import plan as plan_cost_graph
    from memopt.options import PlanBudget

    try:
        limit = PlanBudget.parse(budget)
    except OptionsError as error:
        raise click.BadParameter(str(error), param_hint="--budget") from error
    with working(f"planning {cost_graph}"):
        return plan_cost_graph(cost_graph, limit, seed=seed, time_limit_s=time_limit, exact=exact)


def _loaded(cost_graph: str, report: str | None) -> CostGraph | None:
    """The cost graph, if its plan is to be shown."""
    from memopt.planning.cost_graph import CostGraph

    return None if report is None else CostGraph.load(Path(cost_graph))


def _sweep(cost_graph: str, **options: Any) -> tuple[Plan, ...]:
    from memopt.api import sweep

    with working(f"planning {cost_graph} at every budget"):
        return sweep(cost_graph, **options)


def _write(text: str, output: str | None, *, as_json: bool) -> None:
    from memopt.io import write_local

    if output is not None:
        write_local(output, f"{text}\n".encode())
    if as_json:
        click.echo(text)


def _print_plan(found: Plan, *, as_json: bool) -> None:
    from memopt.report.plans import plan_lines

    if as_json:
        return
    for line in plan_lines(found):
        terminal.print(line, highlight=False)


def _print_curve(curve: tuple[Plan, ...], name: str, svg: str | None, *, as_json: bool) -> None:
    from memopt.io import write_local
    from memopt.report.curve import curve_svg
    from memopt.report.plans import sweep_table

    if svg is not None:
        write_local(svg, curve_svg(curve, name).encode())
    if not as_json:
        terminal.print(sweep_table(curve))
