"""What several commands print: reports and verifications, for people and as JSON."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from memopt.errors import BudgetError
from memopt.terminal.console import terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.kernels.profile import KernelProfile
    from memopt.result import OptimizationReport
    from memopt.runtime.verification import Verification


def write_report(path: str | None, shown: Any, *others: Any) -> None:
    """The report page of a result, if one is asked for.

    Args:
        path: The file; `None` if none is asked for.
        shown: The result.
        others: What belongs to it; `None` for what there is not.
    """
    if path is None:
        return
    from memopt.report.page.entry import write_page

    write_page(path, shown, *others)


@contextmanager
def writing_refusal(path: str | None, *others: Any) -> Iterator[None]:
    """Write the page of a budget that cannot be kept, if a page is asked for; it is raised on.

    The error gets the file for a note.

    Args:
        path: The file; `None` if none is asked for.
        others: What belongs to it, as for `write_report`.
    """
    try:
        yield
    except BudgetError as error:
        if path is not None:
            _write_refusal(path, error, others)
        raise


def _write_refusal(path: str, error: BudgetError, others: tuple[Any, ...]) -> None:
    from memopt.report.page.entry import has_page

    if not has_page(error):
        return
    write_report(path, error, *others)
    error.add_note(path)


def write_trace(path: str | None, shown: Any, *others: Any) -> None:
    """The trace of a result, if one is asked for; arguments as for `write_report`."""
    if path is None:
        return
    from memopt.report import perfetto

    perfetto.write_trace(path, shown, *others)


def print_json(
    report: dict[str, Any] | None,
    verification: Verification | None,
    kernels: KernelProfile | None = None,
) -> None:
    """What is there of a report, of a verification and of kernels, as one object."""
    result = {
        "report": report,
        "verification": None if verification is None else verification.to_json(),
        "kernels": None if kernels is None else kernels.to_json(),
    }
    click.echo(json.dumps({key: value for key, value in result.items() if value is not None}))


def print_report(report: OptimizationReport) -> None:
    """What was done, and why, in lines."""
    from memopt.report import text

    for line in (
        *text.optimization_lines(report),
        *text.iteration_lines(report),
        *text.runtime_lines(report),
        *text.decision_lines(report),
        *text.remarks(report),
    ):
        click.echo(line)


def print_verification(verification: Verification) -> None:
    """What was measured, and whether the results are the same."""
    from memopt.report import text

    terminal.print(text.verification_table(verification))
    for line in text.verdict(verification):
        click.echo(line)


def print_kernels(kernels: KernelProfile, top: int = 10) -> None:
    """Where rules and measurements of kernels differ."""
    from memopt.report.profiles import kernel_lines

    for line in kernel_lines(kernels, top):
        click.echo(line)
