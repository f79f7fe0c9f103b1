"""What was done to a SavedModel, function by function."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from memopt.display import Displayed, Overview, Paged, Table, change_text, count_text

if TYPE_CHECKING:
    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.result import OptimizationReport

Outcome = Literal["rewritten", "unchanged", "left alone"]


@dataclass(frozen=True, repr=False)
class FunctionReport(Displayed):
    """What was done to one function of a SavedModel.

    Attributes:
        name: The function's name in the library.
        called_as: What the program that saved it called it.
        signatures: Keys of the signatures that run it.
        tags: Those of the graph that it belongs to.
        outcome: "rewritten"; "unchanged", where nothing better was found; or "left alone", where
            it was not tried or failed.
        reason: What was done, or why not.
        nodes: How many it has.
        nodes_after: How many it has now; as before where it is as before.
        held_bytes: What is held before it runs, as predicted: variables, constants, inputs.
        peak_before_bytes: The predicted peak, everything included; 0 where nothing was predicted.
        peak_after_bytes: The same of what it is now.
        budget_bytes: What was asked for; 0 for no budget.
        after_grappler: Whether it runs what Grappler made of it here, with Grappler off.
        report: What each pass did; `None` where none ran.
    """

    name: str
    called_as: str
    signatures: tuple[str, ...]
    tags: tuple[str, ...]
    outcome: Outcome
    reason: str
    nodes: int = 0
    nodes_after: int = 0
    held_bytes: int = 0
    peak_before_bytes: int = 0
    peak_after_bytes: int = 0
    budget_bytes: int = 0
    after_grappler: bool = False
    report: OptimizationReport | None = field(default=None, repr=False, compare=False)

    @property
    def keeps_budget(self) -> bool:
        """Whether it is predicted to keep to the budget, if there is one."""
        return not self.budget_bytes or 0 < self.peak_after_bytes <= self.budget_bytes

    def to_json(self) -> dict[str, Any]:
        """Plain data, with what each pass did."""
        plain = {key: value for key, value in vars(self).items() if key != "report"}
        plain |= {"signatures": list(self.signatures), "tags": list(self.tags)}
        if self.report is not None:
            plain["report"] = self.report.to_json()
        return plain

    def row(self) -> tuple[str, ...]:
        """The cells of a table with the columns `COLUMNS`."""
        peak = ""
        if self.peak_before_bytes:
            peak = change_text(self.peak_before_bytes, self.peak_after_bytes)
        if self.budget_bytes and not self.keeps_budget:
            peak += f", OVER the budget of {self.budget_bytes:,} bytes"
        return self.called_as, ", ".join(self.signatures), self.outcome, peak, self.reason

    def _overview(self) -> Overview:
        return Overview("FunctionReport", self.name, (Table(COLUMNS, (self.row(),)),))


COLUMNS = ("function", "signatures", "outcome", "predicted peak", "what was done, or why not")


@dataclass(frozen=True, repr=False)
class SavedModelReport(Paged):
    """What was done to a SavedModel.

    Attributes:
        path: The SavedModel.
        out: The rewritten one.
        functions: What was done to each function that does work, in the order of graphs and names.
        notes: What else is to be known, a sentence each.
    """

    path: str
    out: str
    functions: tuple[FunctionReport, ...]
    notes: tuple[str, ...] = ()

    @property
    def rewritten(self) -> tuple[FunctionReport, ...]:
        """The functions that are others now."""
        return tuple(one for one in self.functions if one.outcome == "rewritten")

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "path": self.path,
            "out": self.out,
            "functions": [one.to_json() for one in self.functions],
            "notes": list(self.notes),
        }

    def _overview(self) -> Overview:
        done = len(self.rewritten)
        outcome = f"{self.out}, {done} of {count_text(len(self.functions), 'function')} rewritten"
        table = Table.of(COLUMNS, self.functions, FunctionReport.row)
        return Overview("SavedModelReport", outcome, (table,), self.notes)


@dataclass(frozen=True, repr=False)
class FunctionAnalysis(Displayed):
    """What one function of a SavedModel is, and what it needs.

    Attributes:
        name: Its name in the library.
        called_as: What the program that saved it called it.
        signatures: Keys of the signatures that run it.
        tags: Those of the graph that it belongs to.
        kind: "training" if it computes gradients, else "inference".
        nodes: How many it has.
        arguments: What callers give, by the names that they know.
        held_bytes: What is held before it runs, as predicted: variables, constants, inputs.
        peak_bytes: The predicted peak, everything included; 0 where it is not known.
        reason: Why it is not known, or why the function cannot be rewritten; "" for neither.
        memory: What is in use at each moment, as predicted; `None` where it is not known.
    """

    name: str
    called_as: str
    signatures: tuple[str, ...]
    tags: tuple[str, ...]
    kind: str
    nodes: int
    arguments: tuple[str, ...]
    held_bytes: int = 0
    peak_bytes: int = 0
    reason: str = ""
    memory: MemoryTimeline | None = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        plain = {key: value for key, value in vars(self).items() if key != "memory"}
        for key in ("signatures", "tags", "arguments"):
            plain[key] = list(plain[key])
        return plain
