"""Ends a process that cannot answer any more: its time is up, or its step is out of memory."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import subprocess
    from types import TracebackType

DUMP_VARIABLE = "TF_BFC_MEMORY_DUMP"
"""Where TensorFlow's allocators write what they hold whenever an allocation fails."""

_DUMP_NAME = "allocator"
_DUMPS = f"{_DUMP_NAME}_*cpu*"
_FAILED_ALLOCATION = b"RESOURCE_EXHAUSTED: "
_GRACE_S = 3.0
"""A step that is out of memory answers at once, or after many waits."""
_PERIOD_S = 0.1
_IDLE_PERIODS = 5
_MEBIBYTE_BYTES = 2**20


def dump_environment(directory: Path) -> dict[str, str]:
    """The variables that make a process tell a watch of its failed allocations."""
    return {DUMP_VARIABLE: str(directory / _DUMP_NAME)}


class Watch:
    """A context in which an answer of a process is waited for.

    A step in which an allocation failed is lost, but TensorFlow still starts every operation that
    was ready, and its allocator lets each of them wait for 10 seconds (`RetryHelper` in
    bfc_allocator.cc): ResNet50 takes ten minutes to say that it ran out of memory. So the process
    is ended a moment after the first failure. On a CPU that is when the allocator has written what
    it holds, and no thread of the process runs any more that could free something; elsewhere when
    the failure is in its log.

    Args:
        process: Whose answer is waited for.
        log: The file that it logs to.
        timeout_ns: How long it may take.
        directory: Where the allocator writes, as `dump_environment` says.

    Attributes:
        timed_out: Whether the process was ended because its time was up.
        failed_allocation: What TensorFlow said of the first allocation that failed, "" if none
            failed or the process answered by itself.
    """

    timed_out: bool
    failed_allocation: str

    def __init__(
        self, process: subprocess.Popen[str], log: Path, timeout_ns: int, directory: Path
    ) -> None:
        self.timed_out = False
        self.failed_allocation = ""
        self._process = process
        self._log = log
        self._directory = directory
        self._idle_periods = 0
        self._deadline_s = time.monotonic() + timeout_ns / 1e9
        self._answered = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memopt-watch", daemon=True)

    @property
    def has_ended_it(self) -> bool:
        """Whether the process was ended, maybe just when it answered after all."""
        return self.timed_out or bool(self.failed_allocation)

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
        # An allocation that failed, and then the process answered, got its memory later.
        for dump in self._directory.glob(_DUMPS):
            dump.unlink()

    def _watch(self) -> None:
        """Look at the clock, at what was logged since and at what the allocator wrote."""
        with self._log.open("rb") as log:
            while not self._answered.wait(_PERIOD_S):
                if time.monotonic() > self._deadline_s:
                    self.timed_out = True
                    self._process.kill()
                    return
                failure = self._waits_in_vain()
                if not failure:
                    failure = _failure_in(log.readlines())
                    if not failure or self._answered.wait(_GRACE_S):
                        continue
                self.failed_allocation = failure
                self._process.kill()
                return

    def _waits_in_vain(self) -> str:
        """What an allocation waits for that nothing will free any more; "" if none does."""
        dumps = sorted(self._directory.glob(_DUMPS))
        self._idle_periods = self._idle_periods + 1 if dumps and self._is_idle() else 0
        if self._idle_periods < _IDLE_PERIODS:
            return ""
        return _description_of(dumps[0].read_bytes())

    def _is_idle(self) -> bool:
        """Whether all threads of the process sleep; `False` where the system does not tell."""
        states = set()
        for stat in Path(f"/proc/{self._process.pid}/task").glob("*/stat"):
            try:
                # The state follows the name, which is in brackets and may be anything.
                states.add(stat.read_text(errors="replace").rpartition(")")[2].split()[0])
            except OSError:
                continue
        return states == {"S"}


def _description_of(dump: bytes) -> str:
    """What of an allocator's memory was in use when it failed."""
    from tensorflow.core.protobuf.bfc_memory_map_pb2 import MemoryDump

    memory = MemoryDump.FromString(dump)
    size_bytes = sum(chunk.size for chunk in memory.chunk)
    free_bytes = max((chunk.size for chunk in memory.chunk if not chunk.in_use), default=0)
    in_use, size, free = (
        f"{number / _MEBIBYTE_BYTES:.1f} MiB"
        for number in (memory.stats.bytes_in_use, size_bytes, free_bytes)
    )
    return (
        f"OOM when allocating: of the allocator's {size}, {in_use} are in use, and its largest "
        f"free piece of {free} is too small"
    )


def _failure_in(lines: list[bytes]) -> str:
    """What the first line that tells of a failed allocation says."""
    for line in lines:
        _, mark, message = line.partition(_FAILED_ALLOCATION)
        if mark:
            return message.decode(errors="replace").strip()
    return ""
