"""What a fleet did as a table for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from memopt.display import clip
from memopt.fleets.report import COLUMNS, failure_line

if TYPE_CHECKING:
    from memopt.fleets.report import FleetReport

_NAME_LENGTH = 60
_REASON_LENGTH = 600


def fleet_table(report: FleetReport) -> Table:
    """A row for each task."""
    table = Table(*COLUMNS)
    for task in report.tasks:
        table.add_row(*(escape(clip(cell, _NAME_LENGTH)) for cell in task.row()))
    return table


def fleet_lines(report: FleetReport) -> list[str]:
    """Why tasks failed, and what came out of all."""
    failures = [f"FAILED {clip(failure_line(task), _REASON_LENGTH)}" for task in report.failed]
    return [*failures, f"{report.out}: {report.summary()}"]
