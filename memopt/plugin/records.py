"""What was done to graphs inside TensorFlow: the last of it in memory, and reports in a folder."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from memopt.errors import FileError, MemoptError
from memopt.io import write_bytes

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.result import OptimizationReport

    Outcome = Literal["rewritten", "unchanged", "passed over", "failed"]

_log = logging.getLogger("memopt")

MOST_RECORDS = 1000
"""So many are kept; the oldest go first."""


@dataclass(frozen=True)
class GraphRecord:
    """What was done to one graph.

    Attributes:
        fingerprint: The same for the same graph, in every process.
        kind: "function" or "session".
        outcome: "rewritten"; "unchanged" if there was nothing to do; "passed over" if the graph
            was not looked at; "failed" if something went wrong, and the graph is as it was.
        reason: Why, or what was done.
        level: The level that was asked for; "" if the graph was not looked at.
        nodes: Nodes before.
        nodes_after: Nodes after.
        peak_before_bytes: The step's memory in TensorFlow's allocator as predicted, everything
            included; 0 at a level that does not look at it.
        peak_after_bytes: The same after.
        budget_bytes: What was to be kept; 0 without a budget.
        milliseconds: Time taken.
        error: The type and message of what went wrong, or "".
        report_file: The report, if one was written.
    """

    fingerprint: str
    kind: Literal["function", "session"]
    outcome: Outcome
    reason: str
    level: str = ""
    nodes: int = 0
    nodes_after: int = 0
    peak_before_bytes: int = 0
    peak_after_bytes: int = 0
    budget_bytes: int = 0
    milliseconds: float = 0.0
    error: str = ""
    report_file: str = ""


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

    def last(self) -> tuple[GraphRecord, ...]:
        """All that are kept."""
        with self._lock:
            return tuple(self._records)

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
    import tensorflow as tf

    content: dict[str, Any] = {"graph": asdict(record), "report": report.to_json()}
    path = f"{folder.rstrip('/')}/{record.fingerprint}-{report.level.value}.json"
    try:
        tf.io.gfile.makedirs(folder)
    except tf.errors.OpError as error:
        raise FileError(f"{folder}: cannot be made: {error.message}") from error
    write_bytes(path, json.dumps(content, indent=1).encode())
    return path
