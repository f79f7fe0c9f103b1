"""The planner's command: parsing and printing only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memopt.cli.options import JOBS, ON, REPORT
from memopt.cli.printing import write_report, writing_refusal
from memopt.errors import OptionsError
from memopt.terminal.console import start_tensorflow, terminal, working

if TYPE_CHECKING:
    from memopt.options import PlanBudget
    from memopt.planning.cost_graph import CostGraph
    from memopt.planning.plan import Plan


@click.command(short_help="Plan a cost graph within a budget.")
@click.argument("cost_graph")
@click.option("--budget", help="Bytes, such as 6GiB, or a share of what the order needs: 0.8.")
@click.option("--sweep", "sweeps", is_flag=True, help="Plan 20 budgets, from the lowest peak on.")
@click.option("--export", help="Where the cost graph goes, as JSON; by itself nothing is planned.")
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
    export: str | None,
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
    """Plan COST_GRAPH: order, recomputation and swaps within a budget.

    COST_GRAPH is a JSON file of costs and sizes, or the graph file of a training step (.pb, .pbtxt,
    .meta), of which one is made.
    """
    if budget is not None and sweeps:
        raise click.UsageError("give either --budget or --sweep")
    if budget is None and not sweeps and export is None:
        raise click.UsageError("give --budget, --sweep or --export")
    if not sweeps:
        _refuse_of_sweeps(svg, jobs, on)
    from memopt.plans import plan as plan_cost_graph
    from memopt.plans import sweep

    limit = None if budget is None else _parsed(budget)
    graph = _loaded(cost_graph)
    if export is not None:
        _write(json.dumps(graph.to_json()), export, as_json=False)
    options: dict[str, Any] = {"seed": seed, "time_limit_s": time_limit, "exact": exact}
    if limit is not None:
        with writing_refusal(report, graph), working(f"planning {cost_graph}"):
            found = plan_cost_graph(graph, limit, **options)
        _write(json.dumps(found.to_json()), output, as_json=as_json)
        write_report(report, found, graph)
        _print_plan(found, as_json=as_json)
        return
    if not sweeps:
        return
    with working(f"planning {cost_graph} at every budget"):
        curve = sweep(graph, **options, jobs=jobs, on=on)
    _write(json.dumps([each.to_json() for each in curve]), output, as_json=as_json)
    write_report(report, curve)
    _print_curve(curve, Path(cost_graph).stem, svg, as_json=as_json)


def _refuse_of_sweeps(svg: str | None, jobs: int | None, on: str | None) -> None:
    if svg is not None:
        raise click.UsageError("--svg is the curve of a --sweep")
    if jobs is not None or on is not None:
        raise click.UsageError("--jobs and --on are for the budgets of a --sweep")


def _parsed(budget: str) -> PlanBudget:
    from memopt.options import PlanBudget

    try:
        return PlanBudget.parse(budget)
    except OptionsError as error:
        raise click.BadParameter(str(error), param_hint="--budget") from error


def _loaded(path: str) -> CostGraph:
    from memopt.io import is_graph_file
    from memopt.plans import as_cost_graph

    if not is_graph_file(path):
        return as_cost_graph(path)
    start_tensorflow()
    with working(f"reading {path}"):
        return as_cost_graph(path)


def _write(text: str, output: str | None, *, as_json: bool) -> None:
    from memopt.files.whole_files import write_local

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
    from memopt.files.whole_files import write_local
    from memopt.report.curve import curve_svg
    from memopt.report.plans import sweep_table

    if svg is not None:
        write_local(svg, curve_svg(curve, name).encode())
    if not as_json:
        terminal.print(sweep_table(curve))
