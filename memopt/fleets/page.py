"""What a fleet did as a page: the peaks of its tasks, and tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from memopt.files.whole_files import write_bytes
from memopt.fleets.report import COLUMNS
from memopt.report.page.model import Fact, Grid, Page, Peaks, shown
from memopt.report.page.rendering import render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.fleets.report import FleetReport, FleetTask

_MOST_BARS = 200
"""How many tasks are drawn; the table has all of them."""
_PREDICTED = (
    "Peaks, floors and overheads are predicted: of the function that needs most, where a model has "
    "several."
)


def fleet_html(report: FleetReport) -> str:
    """The page of a fleet, a text that refers to nothing outside.

    Raises:
        OptionsError: What draws pages is not installed.
    """
    return render(page_of_fleet(report))


def write_fleet_page(path: str, report: FleetReport) -> None:
    """Write the page of a fleet, whole or not at all.

    Raises:
        OptionsError: What draws pages is not installed.
        FileError: The place cannot be written to.
    """
    write_bytes(path, fleet_html(report).encode())


def page_of_fleet(report: FleetReport) -> Page:
    """What the page of a fleet shows: failures first, then all tasks."""
    grids = [Grid("Tasks", COLUMNS, tuple(map(_row, report.tasks)))]
    if report.failed:
        columns = ("model", "budget", "shapes", "kind", "reason", "where")
        rows = tuple(tuple(map(shown, _failure(task))) for task in report.failed)
        grids.insert(0, Grid("Failures", columns, rows))
    return Page(
        "Fleet",
        report.summary(),
        tuple(_facts(report)),
        peaks=_peaks(report),
        grids=tuple(grids),
        notes=tuple(_notes(report)),
    )


def _peaks(report: FleetReport) -> Peaks | None:
    """Of each task with figures, the function that needs most unchanged."""
    known = [(task, found) for task in report.tasks[:_MOST_BARS] if (found := task.largest)]
    if not known:
        return None
    return Peaks(
        tuple(shown(" ".join(filter(None, task.row()[:3]))) for task, _ in known),
        tuple(int(found["peak_before_bytes"]) for _, found in known),
        tuple(int(found["peak_after_bytes"]) for _, found in known),
        tuple(int(found.get("budget_bytes") or 0) for _, found in known),
    )


def _notes(report: FleetReport) -> Iterator[str]:
    yield _PREDICTED
    if len(report.tasks) > _MOST_BARS:
        yield f"Of the {len(report.tasks):,} tasks the first {_MOST_BARS:,} are drawn."
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield f"Made with {versions}."


def _row(task: FleetTask) -> tuple[str, ...]:
    return tuple(map(shown, task.row()))


def _failure(task: FleetTask) -> tuple[str, ...]:
    return task.model, task.budget, task.shapes, task.kind, task.reason, task.where


def _facts(report: FleetReport) -> Iterator[Fact]:
    failed = len(report.failed)
    done = len(report.tasks) - failed
    yield Fact("done", f"{done:,}", f"of {len(report.tasks):,}", "bad" if failed else "good")
    if failed:
        kinds = Counter(task.kind for task in report.failed)
        yield Fact("failed", f"{failed:,}", ", ".join(f"{n} {kind}" for kind, n in kinds.items()))
    kept = sum(task.keeps_budget for task in report.tasks)
    yield Fact("within the budget", f"{kept:,}")
    yield Fact("workers", f"{report.workers:,}")
