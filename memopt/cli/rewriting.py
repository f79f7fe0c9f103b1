"""The command that rewrites, and the list of what it can do: parsing and printing only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from memopt.cli.options import (
    COSTS,
    DEVICES,
    FUNCTIONS,
    KERNELS,
    REPORT,
    SHAPES,
    SIGNATURES,
    TRACE,
    as_budget,
    listed,
    usage,
)
from memopt.cli.printing import (
    print_json,
    print_report,
    print_verification,
    write_report,
    write_trace,
    writing_refusal,
)
from memopt.cli.saved_models import OF_SAVED_MODELS, Pages, optimize_model, refuse_given
from memopt.errors import MemoptError
from memopt.options import DEFAULT_TARGET_SCOPE, Budget, Level
from memopt.rematerialization.algorithms import ALGORITHMS, BEST
from memopt.saved_model.files import is_saved_model
from memopt.sequencing.orders import SEQUENCERS
from memopt.terminal.console import start_tensorflow, terminal, working

if TYPE_CHECKING:
    from memopt.cluster import VirtualCluster


@click.command(short_help="Rewrite a graph or SavedModel to need less memory.")
@click.argument("graph")
@click.option("-o", "--output", required=True, help="Where the rewritten graph or SavedModel goes.")
@click.option(
    "--level",
    type=click.Choice([level.value for level in Level], case_sensitive=False),
    help=f"How much is done; {Level.HEURISTICS}, or {Level.ORDERED} with a budget, if not given.",
)
@click.option(
    "--budget",
    "--memory-limit",
    callback=as_budget,
    help='What may be in use at any moment, everything included: "6GiB", or "60%" of what the step '
    "itself adds at its peak when it runs unchanged.",
)
@click.option(
    "--algorithm",
    type=click.Choice([*ALGORITHMS, BEST]),
    help="How a budget is kept; the best of all if not given.",
)
@click.option(
    "--scheduler",
    type=click.Choice(SEQUENCERS),
    help="How the order is found in which a budget is kept; the best of all if not given.",
)
@click.option(
    "--small-node-limit",
    type=click.IntRange(min=0),
    help="MiB: what makes no more is not recomputed for its own sake.",
)
@click.option("--dump-dot", "--dot", help="Where the large tensors before and after go, as DOT.")
@click.option("--dump-memlog", "--memlog", help="Where the memory at each operation goes.")
@DEVICES
@COSTS
@KERNELS
@click.option(
    "--pass",
    "pass_options",
    multiple=True,
    help='Options of a pass, such as "swapping{improved=true}"; `memopt passes` lists them.',
)
@click.option(
    "--target-scope",
    default=DEFAULT_TARGET_SCOPE,
    show_default=True,
    help='Name scope of gradient operations; "auto" finds them by structure.',
)
@click.option(
    "--rule",
    type=click.Choice(["list", "cost"]),
    default="list",
    show_default=True,
    help="How operations that are cheap to recompute are told.",
)
@click.option("--all-ports", is_flag=True, help="Recompute for readers of every output port.")
@click.option(
    "--as-grappler",
    is_flag=True,
    help="Do exactly what Grappler does; its sums may differ in their last bits.",
)
@click.option(
    "--after-grappler/--before-grappler",
    default=None,
    help="Rewrite what Grappler makes of the step under TensorFlow's defaults. The result has those"
    " bits if it runs with Grappler off (disable_meta_optimizer), as functions of a SavedModel then"
    " do whoever runs them: it is the default for those that compute gradients.",
)
@click.option("--fetch", multiple=True, help="A tensor or operation that the caller asks for.")
@click.option("--feed", multiple=True, help="A tensor that the caller gives.")
@click.option("--keep", multiple=True, help="A further node that must stay as it is called.")
@FUNCTIONS
@SIGNATURES
@click.option("--all", "every", is_flag=True, help="Of a SavedModel: also what does not train.")
@SHAPES
@click.option("--fix-shapes", is_flag=True, help="Accept functions that take these shapes alone.")
@click.option("--verify", "verifies", is_flag=True, help="Run both for real before writing.")
@REPORT
@TRACE
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def optimize(
    context: click.Context,
    /,
    graph: str,
    output: str,
    level: str | None,
    budget: Budget | None,
    devices: VirtualCluster | None,
    pass_options: tuple[str, ...],
    fetch: tuple[str, ...],
    feed: tuple[str, ...],
    after_grappler: bool | None,
    functions: tuple[str, ...],
    signatures: tuple[str, ...],
    every: bool,
    shapes: dict[str, tuple[int, ...]],
    fix_shapes: bool,
    verifies: bool,
    report: str | None,
    trace: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Rewrite GRAPH so that a step needs less memory.

    GRAPH is a GraphDef or MetaGraphDef file, or the folder of a SavedModel, of which the functions
    that train are rewritten, or those that are named.
    """
    if is_saved_model(graph):
        optimize_model(
            context,
            graph,
            output,
            verifies=verifies,
            pages=Pages(report, trace),
            as_json=as_json,
            level=level,
            budget=budget,
            pass_options=pass_options,
            functions=functions,
            signatures=signatures,
            every=every,
            shapes=shapes,
            fix_shapes=fix_shapes,
            after_grappler=after_grappler,
        )
        return
    refuse_given(context, OF_SAVED_MODELS, "a SavedModel, and this is none")
    from memopt.api import level_of
    from memopt.api import optimize as optimize_graph
    from memopt.flags import Flags
    from memopt.io import read_graph, write_graph
    from memopt.optimizer import MemoryOptimizer
    from memopt.report import text
    from memopt.runtime.entry import verify as verify_graphs

    flags = Flags.from_environment().overridden_by(Flags(level, budget))
    with usage("--level"):
        MemoryOptimizer(level_of(flags), budget=flags.budget)
    with usage("--pass"):
        optimizer = MemoryOptimizer(level_of(flags), pass_options=pass_options, budget=flags.budget)
    start_tensorflow()
    machine = listed(devices) if optimizer.pipeline().repeated else devices
    with working(f"reading {graph}"):
        file = read_graph(graph)
    fetches, feeds = fetch or None, feed or None
    with working("optimizing"), writing_refusal(report):
        result = optimize_graph(
            file.message,
            level=level,
            budget=budget,
            devices=machine,
            pass_options=pass_options,
            fetch=fetches,
            feed=feeds,
            after_grappler=bool(after_grappler),
            **options,
        )
        result.report.properties.require()
    verification = None
    if verifies:
        with working("running both"):
            verification = verify_graphs(file.message, result.graph_def, fetch=fetches, feed=feeds)
        if not verification.within_tolerance:
            for line in text.verdict(verification):
                click.echo(line, err=True)
            raise MemoptError(f"the rewritten graph computes something else; {output} not written")
    write_report(report, result, verification)
    write_trace(trace, result, verification)
    write_graph(file.with_graph(result.graph_def), output)
    if as_json:
        print_json(result.report.to_json(), verification)
        return
    print_report(result.report)
    if verification is not None:
        print_verification(verification)
    click.echo(f"{result.report.nodes_before} nodes in, {result.report.nodes_after} out: {output}")


@click.command(short_help="List the passes with their options.")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def passes(*, as_json: bool) -> None:
    """List the passes with their options."""
    from memopt.passes import PASSES
    from memopt.report import text

    if as_json:
        click.echo(json.dumps([text.pass_json(pass_) for pass_ in PASSES]))
        return
    terminal.print(text.passes_table(PASSES))
