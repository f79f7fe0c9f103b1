"""Where tasks run: what the rest of a fleet knows of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memopt.fleets.inputs import Input
    from memopt.fleets.tasks import FleetOptions, Task


@dataclass(frozen=True)
class Job:
    """A task that is to be done.

    Attributes:
        task: The task.
        input: Its model, on this machine.
        options: What holds for all tasks.
        folder: An empty folder of this machine for what comes out.
    """

    task: Task
    input: Input
    options: FleetOptions
    folder: Path


class Finished(NamedTuple):
    """A job that has come to its end.

    Attributes:
        job: The job, with its output in its folder.
        answer: As `memopt.fleets.worker.answer_to` gives it.
        seconds: How long it took, where it ran.
        where: Where that was; "" for this machine.
    """

    job: Job
    answer: dict[str, Any]
    seconds: float
    where: str = ""


class Executor(Protocol):
    """Runs jobs, several at a time, each within its limits.

    Whatever becomes of a job, it comes back finished, once.
    """

    def has_room(self) -> bool:
        """Whether another job would begin soon."""

    def submit(self, job: Job) -> None:
        """Let a job begin, now or soon."""

    def wait(self) -> Sequence[Finished]:
        """What has finished since; waits for a moment if that is nothing."""

    @property
    def running(self) -> int:
        """How many jobs are not finished."""

    @property
    def width(self) -> int:
        """How many jobs run at a time."""

    def close(self) -> None:
        """End everything at once."""
