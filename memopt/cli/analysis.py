"""The command that says where memory goes: parsing and printing only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from memopt.cli.options import COSTS, DEVICES, REPORT, SHAPES, TRACE, listed
from memopt.cli.printing import write_report, write_trace
from memopt.cli.saved_models import OF_SAVED_MODELS, Pages, analyze_model, refuse_given
from memopt.saved_model.files import is_saved_model
from memopt.simulation.ready_nodes import MANAGERS
from memopt.terminal.console import start_tensorflow, terminal, working

if TYPE_CHECKING:
    from memopt.cluster import VirtualCluster


@click.command(short_help="Simulate a step and print where its memory goes.")
@click.argument("graph")
@DEVICES
@COSTS
@click.option("--top", type=click.IntRange(min=0), default=15, show_default=True, help="Tensors.")
@click.option("--ready-nodes", type=click.Choice(MANAGERS), default=MANAGERS[0], show_default=True)
@click.option("--transfer-times", is_flag=True, help="Let transfers take the time of the links.")
@click.option("--fetch", multiple=True, help="A tensor or operation that the caller asks for.")
@click.option("--feed", multiple=True, help="A tensor that the caller gives.")
@click.option("--step-stats", help="Where the timeline goes, as a RunMetadata message.")
@SHAPES
@REPORT
@TRACE
@click.option("--json", "as_json", is_flag=True, help="Print the analysis as JSON.")
@click.pass_context
def analyze(
    context: click.Context,
    graph: str,
    devices: VirtualCluster | None,
    costs: str,
    top: int,
    ready_nodes: str,
    transfer_times: bool,
    fetch: tuple[str, ...],
    feed: tuple[str, ...],
    step_stats: str | None,
    shapes: dict[str, tuple[int, ...]],
    report: str | None,
    trace: str | None,
    as_json: bool,
) -> None:
    """Simulate one step of GRAPH and print where the memory of each device goes.

    Of the folder of a SavedModel, print for each function what it is and its predicted peak.
    """
    if is_saved_model(graph):
        analyze_model(context, graph, shapes=shapes, pages=Pages(report, trace), as_json=as_json)
        return
    refuse_given(context, OF_SAVED_MODELS, "a SavedModel, and this is none")
    from memopt.analysis import analyze as analyze_graph
    from memopt.files.whole_files import write_bytes
    from memopt.report import memory
    from memopt.simulation.virtual_scheduler import SchedulerOptions

    start_tensorflow()
    machine = listed(devices)
    with working(f"simulating {graph}"):
        analysis = analyze_graph(
            graph,
            devices=machine,
            costs=costs,
            scheduler=SchedulerOptions(
                ready_nodes=ready_nodes, transfer_times=transfer_times, host_memory=True
            ),
            fetch=fetch or None,
            feed=feed or None,
        )
    if step_stats is not None:
        write_bytes(step_stats, analysis.run_metadata().SerializeToString(deterministic=True))
    write_report(report, analysis)
    write_trace(trace, analysis)
    if as_json:
        click.echo(json.dumps(analysis.to_json()))
        return
    for part in memory.analysis_parts(analysis, top):
        terminal.print(part)
