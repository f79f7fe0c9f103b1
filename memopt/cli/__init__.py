"""The command line: parsing and printing only, a file for what is done to a graph."""

from __future__ import annotations

import os

import click

from memopt.cli.analysis import analyze
from memopt.cli.checkup import completion, doctor
from memopt.cli.fitting import fit
from memopt.cli.fleets import fleet
from memopt.cli.group import Group, with_progress
from memopt.cli.planning import plan
from memopt.cli.profiling import profile, profile_kernels
from memopt.cli.rewriting import optimize, passes
from memopt.cli.running import demo, run
from memopt.cli.verification import verify


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
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


for _command in (
    *(optimize, verify, analyze, fleet, demo, plan, fit, profile, profile_kernels, doctor),
):
    main.add_command(with_progress(_command))
for _command in (passes, completion, run):
    # Two are done at once, and of the last everything is the program's.
    main.add_command(_command)
