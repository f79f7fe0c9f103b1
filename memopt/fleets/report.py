"""What a fleet did: a row for each task, for people and as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.display import Displayed, Overview, Table, bytes_text, change_text, count_text

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 1
"""Of the JSON file; a number that rises when fields change their meaning."""
COLUMNS = ("model", "budget", "shapes", "predicted peak", "overhead", "floor", "outcome")


@dataclass(frozen=True, repr=False)
class FleetTask(Displayed):
    """What became of one model within one budget.

    Attributes:
        model: The model's path, as it was given; that of this machine's files is absolute.
        budget: The budget, such as "60%" or a number of bytes.
        shapes: Shapes to plan with, such as "x=64,16"; "" for the model's own.
        status: "done" or "failed".
        kind: What failed: "budget" (it cannot be kept), "refused" (model or option), "differs"
            (verification), "memory" or "time" (of the task), "crash", "lost" (with its machine),
            "versions" (of another machine), "error"; "" where it is done.
        reason: Why, in a sentence; "" where it is done.
        output: The file or folder of the result; "" where there is none.
        is_new: Whether it was done now; else an earlier run's result is still right.
        functions: The figures of each function, or of the graph; see docs/fleets.md.
        seconds: How long it took, where it ran.
        where: The machine; "" for this one.
    """

    model: str
    budget: str
    shapes: str
    status: str
    kind: str = ""
    reason: str = ""
    output: str = ""
    is_new: bool = True
    functions: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    seconds: float = 0.0
    where: str = ""

    @property
    def is_done(self) -> bool:
        """Whether there is a result."""
        return self.status == "done"

    @property
    def largest(self) -> Mapping[str, Any]:
        """The figures of the function that needs most unchanged; empty where none are known."""
        known = [one for one in self.functions if one.get("peak_before_bytes")]
        return max(known, key=lambda one: int(one["peak_before_bytes"]), default={})

    @property
    def keeps_budget(self) -> bool:
        """Whether there is a result and all of its functions keep the budget."""
        return self.is_done and all(one.get("keeps_budget", True) for one in self.functions)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return vars(self) | {
            "keeps_budget": self.keeps_budget,
            "functions": [dict(one) for one in self.functions],
        }

    def row(self) -> tuple[str, ...]:
        """The cells of a table with the columns `COLUMNS`."""
        found = self.largest
        peak = change_text(found["peak_before_bytes"], found["peak_after_bytes"]) if found else ""
        floor = bytes_text(found["floor_bytes"]) if "floor_bytes" in found else ""
        overhead = f"{found['overhead']:.1%}" if "overhead" in found else ""
        name = Path(self.model.rstrip("/")).name
        return name, self.budget_text, self.shapes, peak, overhead, floor, self.outcome

    @property
    def budget_text(self) -> str:
        """The budget for people."""
        return bytes_text(int(self.budget)) if self.budget.isdecimal() else self.budget

    @property
    def outcome(self) -> str:
        """What became of it, in a few words."""
        if not self.is_done:
            return f"FAILED: {self.kind}"
        outcome = "done" if self.is_new else "was done"
        over = [one["function"] for one in self.functions if not one.get("keeps_budget", True)]
        return f"{outcome}, OVER the budget: {', '.join(over) or 'the graph'}" if over else outcome

    def _overview(self) -> Overview:
        return Overview("FleetTask", self.outcome, (Table(COLUMNS, (self.row(),)),))


@dataclass(frozen=True, repr=False)
class FleetReport(Displayed):
    """What a fleet did.

    Attributes:
        out: The fleet's folder.
        tasks: What became of each task, in the order of models, budgets and shapes.
        seconds: How long it took.
        workers: How many tasks ran at a time.
        versions: Of memopt's sources, as a digest, and of the packages that plans depend on.
    """

    out: str
    tasks: tuple[FleetTask, ...]
    seconds: float
    workers: int
    versions: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def failed(self) -> tuple[FleetTask, ...]:
        """The tasks without a result."""
        return tuple(task for task in self.tasks if not task.is_done)

    @property
    def all_done(self) -> bool:
        """Whether every task has a result."""
        return not self.failed

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "format": FORMAT,
            "out": self.out,
            "seconds": self.seconds,
            "workers": self.workers,
            "versions": dict(self.versions),
            "done": len(self.tasks) - len(self.failed),
            "failed": len(self.failed),
            "tasks": [task.to_json() for task in self.tasks],
        }

    def summary(self) -> str:
        """What came out, in a sentence."""
        new = sum(task.is_new and task.is_done for task in self.tasks)
        before = len(self.tasks) - len(self.failed) - new
        parts = [f"{count_text(new, 'task')} done"]
        if before:
            parts.append(f"{before:,} were done before")
        parts.append(f"{len(self.failed):,} FAILED" if self.failed else "none failed")
        workers = count_text(self.workers, "worker")
        return f"{', '.join(parts)}, in {self.seconds:.1f} s by {workers}"

    def to_html(self) -> str:
        """The report page: a row for each task; one file, no network.

        Raises:
            OptionsError: What draws pages is not installed: `pip install memopt[report]`.
        """
        # By name: results stand below their pages.
        page: str = import_module("memopt.fleets.page").fleet_html(self)
        return page

    def _overview(self) -> Overview:
        # What failed is what somebody has to look at.
        rows = (*self.failed, *(task for task in self.tasks if task.is_done))
        table = Table.of(COLUMNS, rows, FleetTask.row)
        reasons = tuple(failure_line(task) for task in self.failed)
        return Overview("FleetReport", f"{self.out}: {self.summary()}", (table,), reasons)


def failure_line(task: FleetTask) -> str:
    """Why a task failed, in a line."""
    return f"{' '.join(filter(None, task.row()[:3]))}: {task.reason}"
