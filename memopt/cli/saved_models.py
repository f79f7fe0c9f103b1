"""What commands do with SavedModels: parsing and printing only."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from memopt.cli.options import usage
from memopt.cli.printing import write_report, write_trace, writing_refusal
from memopt.errors import MemoptError
from memopt.terminal.console import start_tensorflow, terminal, working

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from memopt.fitting.result import Fit
    from memopt.runtime.profile import Profile
    from memopt.saved_model.report import SavedModelReport
    from memopt.saved_model.verification import SavedModelVerification

OF_SAVED_MODELS = (
    *("function", "functions", "signature", "signatures", "every", "shapes", "fix_shapes"),
)
_NOT_OF_STEPS = ("fetch", "feed")
_NOT_OF_REWRITING = (
    *("devices", "costs", "rule", "all_ports", "as_grappler", "fetch", "feed", "keep"),
    *("dump_dot", "dump_memlog"),
)
_NOT_OF_VERIFICATION = ("memory_limit_bytes", "kernels", "variables", "fetch", "feed")
_NOT_OF_ANALYSIS = (
    *("devices", "costs", "top", "ready_nodes", "transfer_times", "fetch", "feed", "step_stats"),
)
_OPTIONAL = ("target_scope", "algorithm", "scheduler", "small_node_limit", "kernels")


class Pages(NamedTuple):
    """Files that show a result, `None` for those that are not asked for.

    Attributes:
        report: The report page.
        trace: The trace.
    """

    report: str | None
    trace: str | None

    def write(self, shown: Any, *others: Any) -> None:
        """Write those that are asked for."""
        write_report(self.report, shown, *others)
        write_trace(self.trace, shown, *others)


def refuse_given(context: click.Context, names: Iterable[str], what: str) -> None:
    """Refuse options that have no effect here, if they are given.

    Raises:
        UsageError: One is.
    """
    for parameter in context.command.params:
        if parameter.name in names and _is_given(context, parameter.name):
            raise click.UsageError(f"{parameter.opts[-1]} is an option for {what}")


def optimize_model(
    context: click.Context,
    path: str,
    output: str,
    *,
    verifies: bool,
    pages: Pages,
    as_json: bool,
    **options: Any,
) -> None:
    """Rewrite functions of a SavedModel."""
    from memopt.saved_model.entry import make_wish
    from memopt.saved_model.rewriting import rewrite_saved_model

    refuse_given(context, _NOT_OF_REWRITING, "a graph, and this is a SavedModel")
    given = {name: context.params[name] for name in _OPTIONAL if _is_given(context, name)}
    with usage("--level"):
        make_wish(**options | {"pass_options": ()})
    with usage("--pass"):
        wish = make_wish(**options, **given)
    start_tensorflow()
    verifications: list[SavedModelVerification] = []

    def check(folder: Path, report: SavedModelReport) -> None:
        keys = sorted({key for one in report.rewritten for key in one.signatures})
        if keys:
            verifications.append(_checked(path, folder, output, keys, options["shapes"]))

    with working(f"rewriting {path}"), writing_refusal(pages.report):
        report = rewrite_saved_model(path, output, wish, check if verifies else None)
    verification = next(iter(verifications), None)
    pages.write(report, verification)
    if as_json:
        plain: dict[str, Any] = {"report": report.to_json()}
        if verification is not None:
            plain["verification"] = verification.to_json()
        click.echo(json.dumps(plain))
        return
    _print_report(report)
    if verification is not None:
        _print_verification(verification)


def verify_models(
    context: click.Context,
    original: str,
    rewritten: str,
    *,
    pages: Pages,
    as_json: bool,
    **options: Any,
) -> None:
    """Run two SavedModels and compare them; exit status 1 if they do not compute the same."""
    from memopt.saved_model.verification import verify_saved_models

    refuse_given(context, _NOT_OF_VERIFICATION, "graphs, and these are SavedModels")
    start_tensorflow()
    with working("running both"):
        verification = verify_saved_models(original, rewritten, **options)
    pages.write(verification)
    if as_json:
        click.echo(json.dumps({"verification": verification.to_json()}))
    else:
        _print_verification(verification)
    if not verification.equal:
        sys.exit(1)


def analyze_model(
    context: click.Context,
    path: str,
    *,
    shapes: dict[str, tuple[int, ...]],
    pages: Pages,
    as_json: bool,
) -> None:
    """Print what the functions of a SavedModel are and need."""
    from memopt.report import saved_models
    from memopt.saved_model.analysis import analyze_saved_model

    refuse_given(context, _NOT_OF_ANALYSIS, "a graph, and this is a SavedModel")
    start_tensorflow()
    with working(f"reading {path}"):
        analysis = analyze_saved_model(path, shapes=shapes)
    pages.write(analysis)
    if as_json:
        click.echo(json.dumps(analysis.to_json()))
        return
    terminal.print(saved_models.analysis_table(analysis))
    for note in analysis.notes:
        click.echo(note)


def fit_model(
    context: click.Context, path: str, memory: int, output: str | None, **options: Any
) -> Fit:
    """Find the largest batch of a function of a SavedModel."""
    from memopt.saved_model.fitting import fit_saved_model

    refuse_given(context, _NOT_OF_STEPS, "a graph, and this is a SavedModel")
    start_tensorflow()
    with working(f"fitting {path}") as say:
        return fit_saved_model(path, memory, out=output, progress=say, **options)


def profile_model(context: click.Context, path: str, **options: Any) -> Profile:
    """Time a function of a SavedModel."""
    from memopt.saved_model.profiling import profile_saved_model

    refuse_given(context, _NOT_OF_STEPS, "a graph, and this is a SavedModel")
    start_tensorflow()
    with working(f"running a function of {path}"):
        return profile_saved_model(path, **options)


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _checked(
    path: str, folder: Path, output: str, keys: list[str], shapes: dict[str, tuple[int, ...]]
) -> SavedModelVerification:
    """Run the signatures of both.

    Raises:
        MemoptError: They do not compute the same.
    """
    from memopt.saved_model.verification import verify_saved_models

    with working("running both"):
        verification = verify_saved_models(path, folder, signatures=keys, shapes=shapes)
    if not verification.equal:
        for one in verification.signatures:
            for difference in one.verification.differences:
                click.echo(f"{one.signature} ({one.loader}): {difference}", err=True)
        raise MemoptError(f"the rewritten SavedModel computes something else; {output} not written")
    return verification


def _print_report(report: SavedModelReport) -> None:
    from memopt.report import saved_models

    for line in saved_models.report_lines(report):
        click.echo(line)


def _print_verification(verification: SavedModelVerification) -> None:
    from memopt.report import saved_models

    terminal.print(saved_models.verification_table(verification))
    for line in saved_models.verdict(verification):
        click.echo(line)
