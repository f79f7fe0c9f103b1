"""The command that runs two graphs and compares them: parsing and printing only."""

from __future__ import annotations

import sys
from typing import Any

import click

from memopt.cli.options import (
    REPORT,
    SHAPES,
    SIGNATURES,
    TRACE,
    VERIFICATION_MODE,
    arrays_of,
    as_bytes,
    values,
)
from memopt.cli.printing import (
    print_json,
    print_kernels,
    print_verification,
    write_report,
    write_trace,
)
from memopt.cli.saved_models import OF_SAVED_MODELS, Pages, refuse_given, verify_models
from memopt.saved_model.files import is_saved_model
from memopt.terminal.console import start_tensorflow, working


@click.command(short_help="Compare real steps of two graphs bit for bit.")
@click.argument("original")
@click.argument("rewritten")
@click.option("--steps", type=click.IntRange(min=1), default=3, show_default=True)
@VERIFICATION_MODE
@click.option("--rounds", type=click.IntRange(min=0), default=5, show_default=True, help="Timings.")
@click.option(
    "--memory-limit",
    "memory_limit_bytes",
    callback=as_bytes,
    help='What the rewritten step may use, such as "512MiB".',
)
@click.option(
    "--kernels",
    help='"measured", or a file of `memopt profile-kernels`: also tell where the kernels of '
    "REWRITTEN do something else with memory than the rules of predictions say.",
)
@values
@click.option("--fetch", multiple=True, help="A tensor or operation to run and compare.")
@click.option("--feed", multiple=True, help="A tensor to feed.")
@SIGNATURES
@SHAPES
@REPORT
@TRACE
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def verify(
    context: click.Context,
    original: str,
    rewritten: str,
    steps: int,
    mode: Any,
    rounds: int,
    memory_limit_bytes: int | None,
    kernels: str | None,
    inputs: str | None,
    variables: str | None,
    seed: int,
    fetch: tuple[str, ...],
    feed: tuple[str, ...],
    signatures: tuple[str, ...],
    shapes: dict[str, tuple[int, ...]],
    report: str | None,
    trace: str | None,
    as_json: bool,
) -> None:
    """Run ORIGINAL and REWRITTEN for real and compare results, memory and time.

    Of two SavedModels each signature runs, by Python's loader and by TensorFlow's C++ loader.

    Exit status 1 if they do not compute the same.
    """
    if is_saved_model(original):
        verify_models(
            context,
            original,
            rewritten,
            signatures=signatures,
            inputs=arrays_of(inputs),
            shapes=shapes,
            steps=steps,
            mode=mode or "as-is",
            timing_rounds=rounds,
            seed=seed,
            pages=Pages(report, trace),
            as_json=as_json,
        )
        return
    refuse_given(context, OF_SAVED_MODELS, "SavedModels, and these are none")
    from memopt.kernels.choice import MEASURED
    from memopt.kernels.profile import profile_kernels
    from memopt.runtime.entry import verify as verify_graphs

    start_tensorflow()
    with working("running both"):
        verification = verify_graphs(
            original,
            rewritten,
            inputs=arrays_of(inputs),
            variables=arrays_of(variables),
            steps=steps,
            mode=mode,
            timing_rounds=rounds,
            memory_limit_bytes=memory_limit_bytes,
            seed=seed,
            fetch=fetch or None,
            feed=feed or None,
        )
    write_report(report, verification)
    write_trace(trace, verification)
    profile = None
    if kernels is not None:
        with working("running kernels"):
            profile = profile_kernels(
                rewritten,
                path=None if kernels == MEASURED else kernels,
                mode=verification.mode,
                fetch=fetch or None,
                feed=feed or None,
            )
    if as_json:
        print_json(None, verification, profile)
    else:
        print_verification(verification)
        if profile is not None:
            print_kernels(profile)
    if not verification.within_tolerance:
        sys.exit(1)
