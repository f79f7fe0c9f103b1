"""What was done to graphs inside TensorFlow: the last of it in memory, and reports in a folder."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import Counter, deque
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from memopt.display import (
    Displayed,
    DisplayedTuple,
    Overview,
    Table,
    budget_text,
    bytes_text,
    change_text,
    count_text,
)
from memopt.errors import MemoptError
from memopt.files.file_systems import file_system_of
from memopt.files.whole_files import write_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.result import OptimizationReport

    Outcome = Literal["rewritten", "unchanged", "passed over", "failed"]

_log = logging.getLogger("memopt")

_MEBIBYTE = 1 << 20

MOST_RECORDS = 1000
"""So many are kept; the oldest go first."""


@dataclass(frozen=True, repr=False)
class GraphRecord(Displayed):
    """What was done to one graph.

    Attributes:
        fingerprint: The same for the same graph, in every process.
        kind: "function", "session", or "compiled" for a function that XLA compiles.
        outcome: "rewritten"; "unchanged" if there was nothing to do; "passed over" if the graph
            was not looked at; "failed" if something went wrong, and the graph is as it was.
        reason: Why, or what was done.
        level: The level that was asked for; "" if the graph was not looked at.
        nodes: Nodes before.
        nodes_after: Nodes after.
        held_bytes: What TensorFlow's allocator has in use before the step, as predicted.
        peak_before_bytes: The step's memory in TensorFlow's allocator as predicted, everything
            included; 0 at a level that does not look at it.
        peak_after_bytes: The same after.
        budget_bytes: What was to be kept; 0 without a budget.
        milliseconds: Time taken.
        error: The type and message of what went wrong, or "".
        report_file: The report, if one was written.
        measured_peak_bytes: The most that TensorFlow's allocator had in use while the step ran,
            everything included; 0 where nobody has looked: `memopt.keras.MemoryReport` does.
    """

    fingerprint: str
    kind: Literal["function", "session", "compiled"]
    outcome: Outcome
    reason: str
    level: str = ""
    nodes: int = 0
    nodes_after: int = 0
    held_bytes: int = 0
    peak_before_bytes: int = 0
    peak_after_bytes: int = 0
    budget_bytes: int = 0
    milliseconds: float = 0.0
    error: str = ""
    report_file: str = ""
    measured_peak_bytes: int = 0

    def _overview(self) -> Overview:
        level = f", level {self.level}" if self.level else ""
        parts = [f"{self.kind} of {count_text(self.nodes, 'node')}{level}: {self.outcome}"]
        parts += [part for part in (_peak_text(self), self.error, self.reason) if part]
        if self.report_file:
            parts.append(f"report {self.report_file}")
        return Overview("GraphRecord", ", ".join((*parts, f"{self.milliseconds:.0f} ms")))


class GraphRecords(DisplayedTuple[GraphRecord]):
    """Records of graphs, the oldest first."""

    __slots__ = ()

    def _overview(self) -> Overview:
        outcomes = Counter(record.outcome for record in self)
        outcome = ", ".join(f"{number:,} {name}" for name, number in outcomes.most_common())
        table = Table.of(_COLUMNS, self[::-1], _record_row).without_empty_columns()
        return Overview("GraphRecords", outcome or "none", (table,), tuple(self._reasons()))

    def _reasons(self) -> Iterator[str]:
        """Why graphs came out as they did, the latest first, each reason once."""
        reasons = Counter((one.outcome, one.error or one.reason) for one in self[::-1])
        for (outcome, reason), number in reasons.items():
            times = f" ({number:,} times)" if number > 1 else ""
            if reason:
                yield f"{outcome}{times}: {reason}"


_COLUMNS = ("latest", "nodes", "outcome", "MiB before", "after", "measured", "budget")


def _record_row(record: GraphRecord) -> tuple[str, ...]:
    sizes = (record.peak_before_bytes, record.peak_after_bytes, record.measured_peak_bytes)
    cells = (f"{size / _MEBIBYTE:.2f}" if size else "" for size in sizes)
    budget = ""
    if record.budget_bytes and record.peak_after_bytes:
        is_kept = record.peak_after_bytes <= record.budget_bytes
        budget = f"{record.budget_bytes / _MEBIBYTE:.2f} {'kept' if is_kept else 'OVER'}"
    return record.kind, f"{record.nodes:,}", record.outcome, *cells, budget


def _peak_text(record: GraphRecord) -> str:
    """The predicted peak before and after, and whether it keeps to the budget, if there is one."""
    if not record.peak_before_bytes:
        return ""
    text = change_text(record.peak_before_bytes, record.peak_after_bytes)
    if record.measured_peak_bytes:
        text = f"{text}, {bytes_text(record.measured_peak_bytes)} measured"
    if not record.budget_bytes:
        return text
    return f"{text}, {budget_text(record.peak_after_bytes, record.budget_bytes)}"


class Records:
    """The last records of this process, the oldest first; safe to use from all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: deque[GraphRecord] = deque(maxlen=MOST_RECORDS)
        self._said: set[str] = set()

    def add(self, record: GraphRecord) -> None:
        """Keep a record; not again one of a graph that is passed over in each turn of Grappler."""
        with self._lock:
            if record.outcome == "passed over":
                key = (record.fingerprint, record.reason)
                if any((old.fingerprint, old.reason) == key for old in self._records):
                    return
            self._records.append(record)

    def note_measured(self, record: GraphRecord, peak_bytes: int) -> GraphRecord:
        """Add to a record what was measured, if that is more than what was before.

        Returns:
            The record that is kept in the place of the given one.
        """
        if peak_bytes <= record.measured_peak_bytes:
            return record
        measured = replace(record, measured_peak_bytes=peak_bytes)
        with self._lock:
            for place, known in enumerate(self._records):
                if known is record:
                    self._records[place] = measured
        return measured

    def last(self) -> GraphRecords:
        """All that are kept."""
        with self._lock:
            return GraphRecords(self._records)

    def clear(self) -> None:
        """Forget them, and what was said."""
        with self._lock:
            self._records.clear()
            self._said.clear()

    def say_once(self, message: str, error: BaseException | None = None) -> None:
        """Log a warning, the first time."""
        with self._lock:
            if message in self._said:
                return
            self._said.add(message)
        is_ours = error is None or isinstance(error, MemoptError)
        _log.warning("%s", message, exc_info=None if is_ours else error)


RECORDS = Records()


def say_rewritten(record: GraphRecord, overhead: float | None = None) -> None:
    """Log one line about a step that was rewritten.

    It is seen where nobody has set up `logging`, too.

    Args:
        record: What was done.
        overhead: The share of its estimated time that the step takes longer, if that is known.
    """
    if not _log.isEnabledFor(logging.INFO):
        _log.setLevel(logging.INFO)
    if not _log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("memopt: %(message)s"))
        _log.addHandler(handler)
    kind = {"compiled": "step compiled by XLA", "session": "session step"}.get(record.kind, "step")
    parts = [f"{kind} of {count_text(record.nodes, 'node')}: {record.outcome}"]
    if record.peak_before_bytes:
        before, after = (
            f"{size_bytes / _MEBIBYTE:.1f}"
            for size_bytes in (record.peak_before_bytes, record.peak_after_bytes)
        )
        nodes = count_text(record.nodes, "node")
        parts[0] = f"{kind} of {nodes}: {before} -> {after} MiB predicted"
    if overhead is not None:
        parts.append(f"x{1 + overhead:.2f} of the time as estimated")
    if record.budget_bytes:
        parts.append(budget_text(record.peak_after_bytes, record.budget_bytes))
    parts.append(f"{record.milliseconds / 1000:.1f} s")
    _log.info("%s", ", ".join(parts))


def fingerprint(graph_def: GraphDef) -> str:
    """Sixteen digits that are the same for graphs of the same nodes, in every process."""
    # The order of nodes, and that of attributes in a message, differ from process to process.
    names = sorted(f"{node.name}\n{node.op}" for node in graph_def.node)
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


def write_report(folder: str, record: GraphRecord, report: OptimizationReport) -> str:
    """Write what was done to a graph, whole or not at all.

    Nothing of the graph is part of the path: only its fingerprint and the level.

    Returns:
        The path.

    Raises:
        FileError: It cannot be written.
    """
    content: dict[str, Any] = {"graph": asdict(record), "report": report.to_json()}
    path = f"{folder.rstrip('/')}/{record.fingerprint}-{report.level.value}.json"
    with file_system_of(folder, "made") as files:
        files.make_folders(folder)
    write_bytes(path, json.dumps(content, indent=1).encode())
    return path
