"""Ends a process that cannot answer any more: its time is up, or its step is out of memory."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path
    from types import TracebackType

_FAILED_ALLOCATION = b"RESOURCE_EXHAUSTED: "
_GRACE_S = 3.0
"""A step that is out of memory answers at once, or after many waits."""
_PERIOD_S = 0.2


class Watch:
    """A context in which an answer of a process is waited for.

    A step in which an allocation failed is lost, but TensorFlow still starts every operation that
    was ready, and its allocator lets each of them wait for 10 seconds (`RetryHelper` in
    bfc_allocator.cc): ResNet50 takes ten minutes to say that it ran out of memory. So the process
    is ended a moment after the first failure, which is in its log.

    Attributes:
        timed_out: Whether the process was ended because its time was up.
        failed_allocation: What TensorFlow said of the first allocation that failed, "" if none
            failed or the process answered by itself.
    """

    timed_out: bool
    failed_allocation: str

    def __init__(self, process: subprocess.Popen[str], log: Path, timeout_ns: int) -> None:
        self.timed_out = False
        self.failed_allocation = ""
        self._process = process
        self._log = log
        self._deadline_s = time.monotonic() + timeout_ns / 1e9
        self._answered = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memopt-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._answered.set()
        self._thread.join()

    def _watch(self) -> None:
        """Look at the clock and at what was logged since, until there is an answer."""
        with self._log.open("rb") as log:
            while not self._answered.wait(_PERIOD_S):
                if time.monotonic() > self._deadline_s:
                    self.timed_out = True
                    self._process.kill()
                    return
                failure = _failure_in(log.readlines())
                if failure and not self._answered.wait(_GRACE_S):
                    self.failed_allocation = failure
                    self._process.kill()
                    return


def _failure_in(lines: list[bytes]) -> str:
    """What the first line that tells of a failed allocation says."""
    for line in lines:
        _, mark, message = line.partition(_FAILED_ALLOCATION)
        if mark:
            return message.decode(errors="replace").strip()
    return ""
