"""A process that does tasks, watched: it is ended when it takes too much memory or time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from memopt.display import bytes_text
from memopt.runtime import worker_process
from memopt.runtime.settings import Settings
from memopt.workers.worker import failed

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping

MEMORY, TIME, CRASH = "memory", "time", "crash"
PERIOD_S = 0.1
"""How often memory and time are looked at."""
_MODULE = "memopt.workers.worker"
_START_S = 600.0
"""How long a process may take to start: TensorFlow from a cold disk, on a busy machine."""
_MOST_TASKS = 100
"""After that many tasks a process is replaced, whatever it has left behind."""
_LAST_LINES = 3
_LOG_BYTES = 4096
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Limits:
    """What one task may take.

    Attributes:
        memory_bytes: Resident memory of its process, and of those that this one started.
        timeout_s: Seconds from the order to the answer; the start of a process does not count.
    """

    memory_bytes: int
    timeout_s: float


class TaskProcess:
    """One process after another that does tasks, each in a fresh one if the last was ended.

    A process is used again: TensorFlow takes seconds to start. What ends a process that did tasks
    before is tried once more in a fresh one: it may have been the others' leftovers.

    Args:
        folder: Where it logs.
        variables: Environment variables on top of this process's.
        limits: What a task may take.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str], limits: Limits) -> None:
        self._log_path = folder / "log.txt"
        self._environment = Settings("as-is").environment() | dict(variables)
        self._folder = folder
        self._limits = limits
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None
        self._request: dict[str, Any] | None = None
        self._received = b""
        self._is_ready = False
        self._served = 0
        self._bare_bytes = 0
        self._deadline_s = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether an answer is waited for."""
        return self._request is not None

    @property
    def served(self) -> int:
        """Tasks that the present process has answered."""
        return self._served

    def fileno(self) -> int:
        """What becomes readable when there is an answer."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def begin(self, request: dict[str, Any]) -> None:
        """Ask for a task; `poll` gives the answer."""
        self._request = request
        if self._process is not None and self._is_worn():
            self.close()
        if self._process is None:
            self._start()
        self._send()

    def poll(self) -> dict[str, Any] | None:
        """The answer, if there is one; ends a process that takes too much."""
        if self._process is None or self._request is None:
            return None
        while select.select([self.fileno()], [], [], 0)[0]:
            data = os.read(self.fileno(), _READ_BYTES)
            if not data:
                return self._ended(CRASH, self._last_words())
            self._received += data
        answer = self._answer()
        return answer if answer is not None else self._watched()

    def close(self) -> None:
        """End the process, and all that it started, at once."""
        process, self._process = self._process, None
        if process is None:
            return
        # Not the group of this process, where it has not yet made its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.communicate()
        if self._log is not None:
            self._log.close()
        self._received, self._is_ready, self._served = b"", False, 0

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._log = self._log_path.open("w", encoding="utf-8", errors="replace")
        self._process = worker_process.start_worker(
            _MODULE, str(self._folder), self._environment, self._log
        )
        self._deadline_s = time.monotonic() + _START_S

    def _send(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        if self._is_ready:
            self._deadline_s = time.monotonic() + self._limits.timeout_s
        # One that has died meanwhile is found by the next poll.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(self._request) + "\n")
            self._process.stdin.flush()

    def _answer(self) -> dict[str, Any] | None:
        """The first whole line that is an answer."""
        while b"\n" in self._received:
            line, _, self._received = self._received.partition(b"\n")
            answer: dict[str, Any] = json.loads(line)
            if "ready" in answer:
                self._is_ready = True
                assert self._process is not None
                self._bare_bytes = resident_bytes(self._process.pid)
                self._deadline_s = time.monotonic() + self._limits.timeout_s
                continue
            self._served += 1
            self._request = None
            return answer
        return None

    def _watched(self) -> dict[str, Any] | None:
        """The answer for a task that takes too much, whose process is then ended."""
        assert self._process is not None
        used_bytes = resident_bytes(self._process.pid)
        if used_bytes > self._limits.memory_bytes:
            limit = bytes_text(self._limits.memory_bytes)
            return self._ended(MEMORY, f"it took {bytes_text(used_bytes)}, more than {limit}")
        if time.monotonic() > self._deadline_s:
            if not self._is_ready:
                return self._ended(TIME, f"its process did not start within {_START_S:g} s")
            return self._ended(TIME, f"no answer within {self._limits.timeout_s:g} s")
        return None

    def _ended(self, kind: str, reason: str) -> dict[str, Any] | None:
        """The answer for a task whose process is ended; none if it gets a fresh one."""
        request, is_fresh = self._request, self._served == 0
        self.close()
        if kind != TIME and not is_fresh:
            assert request is not None
            self.begin(request)
            return None
        self._request = None
        return failed(kind, reason)

    def _is_worn(self) -> bool:
        """Whether a fresh process is to be had for the next task.

        So it is where half of what a task may take on top of a bare process is gone.
        """
        assert self._process is not None
        if self._served >= _MOST_TASKS:
            return True
        left_behind = resident_bytes(self._process.pid) - self._bare_bytes
        return left_behind > (self._limits.memory_bytes - self._bare_bytes) // 2

    def _last_words(self) -> str:
        assert self._process is not None
        status = self._process.wait()
        how = f"status {status}"
        if status < 0:
            how = f"signal {signal.Signals(-status).name}"
        with self._log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_BYTES))
            lines = log.read().decode(errors="replace").splitlines()[-_LAST_LINES:]
        said = f"; it last wrote: {' | '.join(line.strip() for line in lines)}" if lines else ""
        return f"its process ended with {how}{said}"


def resident_bytes(pid: int) -> int:
    """The resident memory of a process and of what it started, pages that they share each time.

    0 where the system does not tell.
    """
    total, pending = 0, [pid]
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    while pending:
        number = pending.pop()
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{number}/statm").read_text().split()[1]) * page_bytes
            # What a process starts, its first thread starts.
            children = Path(f"/proc/{number}/task/{number}/children").read_text()
            pending += map(int, children.split())
    return total
