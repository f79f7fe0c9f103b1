"""Tasks in processes of this machine."""

from __future__ import annotations

import select
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from memopt.workers.executor import Finished
from memopt.workers.orders import request_of
from memopt.workers.process import PERIOD_S, Limits, TaskProcess
from memopt.workers.surroundings import versions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.workers.executor import Job


class LocalExecutor:
    """An `Executor` with so many processes, which are used again.

    Args:
        jobs: How many.
        variables: Environment variables of the processes on top of this one's.
        limits: What a task may take.
    """

    def __init__(self, jobs: int, variables: Mapping[str, str], limits: Limits) -> None:
        self._folder = TemporaryDirectory(prefix="memopt-worker-")
        self._processes = [
            TaskProcess(Path(self._folder.name, str(number)), variables, limits)
            for number in range(jobs)
        ]
        self._jobs: dict[TaskProcess, tuple[Job, float]] = {}

    @property
    def width(self) -> int:
        """How many jobs run at a time."""
        return len(self._processes)

    @property
    def running(self) -> int:
        """How many jobs are not finished."""
        return len(self._jobs)

    def has_room(self) -> bool:
        """Whether a process has nothing to do."""
        return self.running < self.width

    def submit(self, job: Job) -> None:
        """Let a process begin that has nothing to do."""
        process = next(one for one in self._processes if one not in self._jobs)
        self._jobs[process] = (job, time.monotonic())
        process.begin(request_of(job.order, versions()))

    def wait(self) -> list[Finished]:
        """What has finished since, or does within a moment."""
        select.select(list(self._jobs), [], [], PERIOD_S)
        finished = []
        for process, (job, begun_s) in list(self._jobs.items()):
            answer = process.poll()
            if answer is not None:
                del self._jobs[process]
                finished.append(Finished(job, answer, time.monotonic() - begun_s))
        return finished

    def close(self) -> None:
        """End all processes at once."""
        for process in self._processes:
            process.close()
        self._folder.cleanup()
