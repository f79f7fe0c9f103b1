"""Where orders are done: what those who give them out know of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.workers.inputs import Input
    from memopt.workers.orders import Order


@dataclass(frozen=True)
class Job:
    """Something that is to be done.

    Attributes:
        input: What it works on, on this machine.
        order: What is to be done with it.
    """

    input: Input
    order: Order

    @property
    def folder(self) -> Path:
        """An empty folder of this machine for what comes out, if files do."""
        return Path(self.order.folder)


class Finished(NamedTuple):
    """A job that has come to its end.

    Attributes:
        job: The job, with its output in its folder.
        answer: As `memopt.workers.worker.answer_to` gives it.
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


def give_out(executor: Executor, jobs: Iterator[Job]) -> Iterator[Finished]:
    """Have jobs done, as many at a time as there is room for, and tell what comes of them.

    Args:
        executor: Does them.
        jobs: Asked for one by one, when there is room.

    Yields:
        Each job as it comes to its end.
    """
    is_over = False
    while not is_over or executor.running:
        while not is_over and executor.has_room():
            job = next(jobs, None)
            if job is None:
                is_over = True
            else:
                executor.submit(job)
        if executor.running:
            yield from executor.wait()
