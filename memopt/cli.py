"""The command line: parsing and printing only."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memopt.cli_fitting import fit, profile
from memopt.cli_options import COSTS, INPUTS, MODE, SEED, VARIABLES, usage
from memopt.cli_planning import plan
from memopt.cluster import VirtualCluster
from memopt.console import silence, start_tensorflow, terminal, working
from memopt.costs.ready_nodes import MANAGERS
from memopt.errors import FileError, MemoptError
from memopt.options import DEFAULT_TARGET_SCOPE, Budget, Level, parse_bytes
from memopt.passes.remat.algorithms import ALGORITHMS, BEST
from memopt.sequencing.orders import SEQUENCERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.result import OptimizationReport
    from memopt.runtime.verification import Verification


class _Group(click.Group):
    """Turns memopt's own errors into one line and exit status 1, and runs programs at the end."""

    program: Callable[[], None] | None = None

    def main(self, *args: Any, **extra: Any) -> Any:
        """Do what is asked for; a user's program runs outside, so that its errors are its own."""
        self.program = None
        ended: SystemExit | None = None
        try:
            super().main(*args, **extra)
        except SystemExit as error:
            ended = error
        if self.program is not None:
            self.program()
        elif ended is not None:
            raise ended

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MemoptError as error:
            # TensorFlow's own messages, which some of these carry, have several lines.
            click.echo(f"memopt: {' '.join(str(error).split())}", err=True)
            ctx.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="memopt")
@click.pass_context
def main(context: click.Context) -> None:
    """TensorFlow graphs that need less memory, with the same results to the last bit."""
    if context.invoked_subcommand == "run":
        # A program gets TensorFlow's messages as it would without memopt.
        return
    # TensorFlow reads them when it is imported; its start-up messages are nothing for a person.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")


def _as_cluster(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> VirtualCluster | None:
    del context, parameter
    with usage("--device"):
        return VirtualCluster(values) if values else None


def _as_bytes(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    del context
    with usage(parameter.opts[0]):
        return None if value is None else parse_bytes(value)


def _as_budget(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> Budget | None:
    del context
    with usage(parameter.opts[0]):
        return None if value is None else Budget.parse(value)


_DEVICES = click.option(
    "--device",
    "devices",
    multiple=True,
    callback=_as_cluster,
    help='A device, such as "GPU:0=GPU:16GiB"; this machine\'s if none is given.',
)


@main.command()
@click.argument("graph")
@click.option("-o", "--output", required=True, help="Where the rewritten graph goes.")
@click.option(
    "--level",
    type=click.Choice([level.value for level in Level], case_sensitive=False),
    help=f"How much is done; {Level.HEURISTICS}, or {Level.ORDERED} with a budget, if not given.",
)
@click.option(
    "--budget",
    "--memory-limit",
    callback=_as_budget,
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
    help="MiB: what makes no more is not computed again for its own sake.",
)
@click.option("--dump-dot", "--dot", help="Where the large tensors before and after go, as DOT.")
@click.option("--dump-memlog", "--memlog", help="Where the memory at each operation goes.")
@_DEVICES
@COSTS
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
@click.option("--fetch", multiple=True, help="A tensor or operation that the caller asks for.")
@click.option("--feed", multiple=True, help="A tensor that the caller gives.")
@click.option("--keep", multiple=True, help="A further node that must stay as it is called.")
@click.option("--verify", "verifies", is_flag=True, help="Run both for real before writing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def optimize(
    graph: str,
    output: str,
    level: str | None,
    budget: Budget | None,
    algorithm: str | None,
    scheduler: str | None,
    small_node_limit: int | None,
    dump_dot: str | None,
    dump_memlog: str | None,
    devices: VirtualCluster | None,
    costs: str,
    pass_options: tuple[str, ...],
    target_scope: str,
    rule: str,
    all_ports: bool,
    as_grappler: bool,
    fetch: tuple[str, ...],
    feed: tuple[str, ...],
    keep: tuple[str, ...],
    verifies: bool,
    as_json: bool,
) -> None:
    """Rewrite GRAPH, a GraphDef or MetaGraphDef file, so that a step needs less memory."""
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
    machine = _listed(devices) if optimizer.pipeline().repeated else devices
    with working(f"reading {graph}"):
        file = read_graph(graph)
    fetches, feeds = fetch or None, feed or None
    with working("optimizing"):
        result = optimize_graph(
            file.message,
            level=level,
            devices=machine,
            costs=costs,
            pass_options=pass_options,
            target_scope=target_scope,
            rule=rule,
            all_ports=all_ports,
            as_grappler=as_grappler,
            budget=budget,
            algorithm=algorithm,
            scheduler=scheduler,
            small_node_limit=small_node_limit,
            dump_dot=dump_dot,
            dump_memlog=dump_memlog,
            fetch=fetches,
            feed=feeds,
            keep=keep,
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
    write_graph(file.with_graph(result.graph_def), output)
    if as_json:
        _print_json(result.report.to_json(), verification)
        return
    _print_report(result.report)
    if verification is not None:
        _print_verification(verification)
    click.echo(f"{result.report.nodes_before} nodes in, {result.report.nodes_after} out: {output}")


@main.command()
@click.argument("original")
@click.argument("rewritten")
@click.option("--steps", type=click.IntRange(min=1), default=3, show_default=True)
@MODE
@click.option("--rounds", type=click.IntRange(min=0), default=5, show_default=True, help="Timings.")
@click.option(
    "--memory-limit",
    "memory_limit_bytes",
    callback=_as_bytes,
    help='What the rewritten step may use, such as "512MiB".',
)
@INPUTS
@VARIABLES
@SEED
@click.option("--fetch", multiple=True, help="A tensor or operation to run and compare.")
@click.option("--feed", multiple=True, help="A tensor to feed.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def verify(
    original: str,
    rewritten: str,
    steps: int,
    mode: Any,
    rounds: int,
    memory_limit_bytes: int | None,
    inputs: str | None,
    variables: str | None,
    seed: int,
    fetch: tuple[str, ...],
    feed: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run ORIGINAL and REWRITTEN for real and compare results, memory and time.

    Exit status 1 if they do not compute the same.
    """
    from memopt.io import read_arrays
    from memopt.runtime.entry import verify as verify_graphs

    start_tensorflow()
    with working("running both"):
        verification = verify_graphs(
            original,
            rewritten,
            inputs=None if inputs is None else read_arrays(inputs),
            variables=None if variables is None else read_arrays(variables),
            steps=steps,
            mode=mode,
            timing_rounds=rounds,
            memory_limit_bytes=memory_limit_bytes,
            seed=seed,
            fetch=fetch or None,
            feed=feed or None,
        )
    if as_json:
        _print_json(None, verification)
    else:
        _print_verification(verification)
    if not verification.within_tolerance:
        sys.exit(1)


@main.command()
@click.argument("graph")
@_DEVICES
@COSTS
@click.option("--top", type=click.IntRange(min=0), default=15, show_default=True, help="Tensors.")
@click.option("--ready-nodes", type=click.Choice(MANAGERS), default=MANAGERS[0], show_default=True)
@click.option("--transfer-times", is_flag=True, help="Let transfers take the time of the links.")
@click.option("--fetch", multiple=True, help="A tensor or operation that the caller asks for.")
@click.option("--feed", multiple=True, help="A tensor that the caller gives.")
@click.option("--step-stats", help="Where the timeline goes, as a RunMetadata message.")
@click.option("--json", "as_json", is_flag=True, help="Print the analysis as JSON.")
def analyze(
    graph: str,
    devices: VirtualCluster | None,
    costs: str,
    top: int,
    ready_nodes: str,
    transfer_times: bool,
    fetch: tuple[str, ...],
    feed: tuple[str, ...],
    step_stats: str | None,
    as_json: bool,
) -> None:
    """Simulate one step of GRAPH and print where the memory of each device goes."""
    from memopt.analysis import analyze as analyze_graph
    from memopt.costs.virtual_scheduler import SchedulerOptions
    from memopt.io import write_bytes
    from memopt.report import memory

    start_tensorflow()
    machine = _listed(devices)
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
    if as_json:
        click.echo(json.dumps(analysis.to_json()))
        return
    for part in memory.analysis_parts(analysis, top):
        terminal.print(part)


@main.command()
def passes() -> None:
    """List the passes with their options."""
    from memopt.passes import PASSES
    from memopt.report import text

    terminal.print(text.passes_table(PASSES))


@main.command()
@click.option("--model", default="resnet50", show_default=True, help="Which training step.")
@click.option("--budget", default="40%", show_default=True, help="What the rewritten step may use.")
@click.option("--steps", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def demo(model: str, budget: str, steps: int, as_json: bool) -> None:
    """Train a model in less memory than its step needs: it fails; rewritten, it runs."""
    import memopt.demo

    with usage("--budget"):
        Budget.parse(budget)
    start_tensorflow()
    with working(f"building {model}, rewriting it, and training it before and after"):
        outcome = memopt.demo.run(model, budget, steps)
    report = outcome.report
    if as_json:
        _print_json(report.to_json(), outcome.verification)
        return
    click.echo(f"{model}: a training step of {report.nodes_before} nodes, real variables and data")
    _print_report(report)
    click.echo(f"{report.nodes_after - report.nodes_before} nodes added")
    for line in outcome.lines():
        click.echo(line)
    _print_verification(outcome.verification)


main.add_command(plan)
main.add_command(fit)
main.add_command(profile)


@main.command(context_settings={"allow_interspersed_args": False})
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is a module, as for `python -m`.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(is_module: bool, program: str, arguments: tuple[str, ...]) -> None:
    """Run PROGRAM, a Python file, with every training step in it rewritten.

    What is done MEMOPT_FLAGS says, such as "--budget=60% --report_dir=reports". At the end a
    summary goes to the standard error.
    """
    from memopt.flags import Flags
    from memopt.plugin.policy import Policy
    from memopt.plugin.run import run_module, run_script

    # A mistake in the flags is told before the program starts.
    Policy.from_flags(Flags.from_environment())
    if not is_module and not Path(program).is_file():
        raise FileError(f"{program}: there is no such file")
    main.program = partial(run_module if is_module else run_script, program, arguments)


def _listed(devices: VirtualCluster | None) -> VirtualCluster:
    """The devices that were named, or those that TensorFlow finds here when it has started."""
    if devices is not None:
        return devices
    with silence():
        return VirtualCluster.of_this_machine()


def _print_json(report: dict[str, Any] | None, verification: Verification | None) -> None:
    result = {
        "report": report,
        "verification": None if verification is None else verification.to_json(),
    }
    click.echo(json.dumps({key: value for key, value in result.items() if value is not None}))


def _print_report(report: OptimizationReport) -> None:
    from memopt.report import text

    for line in (
        *text.optimization_lines(report),
        *text.iteration_lines(report),
        *text.runtime_lines(report),
        *text.decision_lines(report),
        *text.remarks(report),
    ):
        click.echo(line)


def _print_verification(verification: Verification) -> None:
    from memopt.report import text

    terminal.print(text.verification_table(verification))
    for line in text.verdict(verification):
        click.echo(line)
