"""The commands that train: the demonstration, and programs of the user's."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from memopt.cli.group import Group
from memopt.cli.options import REPORT, as_budget, usage
from memopt.cli.printing import (
    print_json,
    print_report,
    print_verification,
    write_report,
    writing_refusal,
)
from memopt.errors import FileError
from memopt.options import Budget
from memopt.terminal.console import start_tensorflow, working


@click.command(short_help="Train a model in less memory than its step needs.")
@click.option("--model", default="resnet50", show_default=True, help="Which training step.")
@click.option("--budget", default="40%", show_default=True, help="What the rewritten step may use.")
@click.option("--steps", type=click.IntRange(min=1), default=5, show_default=True)
@REPORT
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def demo(model: str, budget: str, steps: int, report: str | None, as_json: bool) -> None:
    """Train a model in less memory than its step needs: it fails; rewritten, it runs."""
    import memopt.demo

    with usage("--budget"):
        Budget.parse(budget)
    start_tensorflow()
    what = f"building {model}, rewriting it, and training it before and after"
    with writing_refusal(report), working(what):
        outcome = memopt.demo.run(model, budget, steps)
    done = outcome.report
    write_report(report, done, outcome.verification)
    if as_json:
        print_json(done.to_json(), outcome.verification)
        return
    click.echo(f"{model}: a training step of {done.nodes_before} nodes, real variables and data")
    print_report(done)
    click.echo(f"{done.nodes_after - done.nodes_before} nodes added")
    for line in outcome.lines():
        click.echo(line)
    print_verification(outcome.verification)


@click.command(
    context_settings={"allow_interspersed_args": False},
    short_help="Run a Python program with its steps rewritten.",
)
@click.option("--budget", callback=as_budget, help='"6GiB", "60%" or "device"; see MEMOPT_FLAGS.')
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is a module, as for `python -m`.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(
    context: click.Context,
    budget: Budget | None,
    is_module: bool,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run PROGRAM, a Python file, with every training step in it rewritten.

    What is done MEMOPT_FLAGS says, such as "--budget=60% --report_dir=reports"; an option comes
    before it. At the end a summary goes to the standard error.
    """
    from memopt.flags import Flags
    from memopt.plugin.policy import Policy
    from memopt.plugin.run import run_module, run_script

    # A mistake in the flags is told before the program starts.
    Policy.from_flags(Flags.from_environment().overridden_by(Flags(budget=budget)))
    if not is_module and not Path(program).is_file():
        raise FileError(f"{program}: there is no such file")
    group = context.find_root().command
    assert isinstance(group, Group)
    group.program = partial(run_module if is_module else run_script, program, arguments, budget)
