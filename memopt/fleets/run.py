"""A fleet from its first task to its last: what is done is left, what is not is given out."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from memopt.errors import FileError
from memopt.fleets.inputs import find_input
from memopt.fleets.manifest import fingerprint
from memopt.fleets.publishing import WRITTEN, publish
from memopt.fleets.report import FleetTask
from memopt.fleets.work import BUDGET, FleetJob
from memopt.workers.executor import give_out
from memopt.workers.orders import REFUSED
from memopt.workers.worker import failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from memopt.fleets.manifest import Manifest
    from memopt.fleets.progress import Progress
    from memopt.fleets.tasks import FleetOptions, Task
    from memopt.workers.executor import Executor, Finished
    from memopt.workers.inputs import Input


@dataclass
class Run:
    """The tasks of a fleet, given out one after another.

    Attributes:
        manifest: What was done before.
        executor: Where tasks run.
        options: What holds for all of them.
        variables: Environment variables of their processes.
        copy_limit_bytes: What the copy of a model may have.
        progress: Is told of each task.
    """

    manifest: Manifest
    executor: Executor
    options: FleetOptions
    variables: Mapping[str, str]
    copy_limit_bytes: int
    progress: Progress
    _results: dict[Task, FleetTask] = field(default_factory=dict)
    _users: dict[Input, int] = field(default_factory=dict)

    def do(self, tasks: Sequence[Task]) -> tuple[FleetTask, ...]:
        """Do all tasks; whatever becomes of one, the others are done.

        Models are read when their turn comes, so that no more copies of them are on this machine
        than there are workers.
        """
        for finished in give_out(self.executor, self._jobs(tasks)):
            self._finish(finished)
        return tuple(self._results[task] for task in tasks)

    def _jobs(self, tasks: Sequence[Task]) -> Iterator[FleetJob]:
        """What is to be done; what is done already is noted on the way."""
        for model, group in groupby(tasks, key=lambda task: task.model):
            wanted = list(group)
            try:
                source = find_input(model, self.copy_limit_bytes)
            except FileError as error:
                for task in wanted:
                    self._note(task, failed(REFUSED, str(error))["failed"])
                continue
            yield from self._jobs_of(source, wanted)

    def _jobs_of(self, source: Input, tasks: Iterable[Task]) -> Iterator[FleetJob]:
        jobs = []
        for task in tasks:
            folder = self.manifest.parts / uuid.uuid4().hex
            job = FleetJob.of(task, source, self.options, folder)
            record = self.manifest.find(task.name, fingerprint(job, self.variables))
            if record is None:
                jobs.append(job)
            else:
                self._note(task, record["answer"], self._place(record["files"], job), is_new=False)
        self._users[source] = len(jobs)
        if not jobs:
            source.forget()
        for job in jobs:
            job.folder.mkdir()
            yield job

    def _finish(self, finished: Finished) -> None:
        job, answer = cast("FleetJob", finished.job), finished.answer
        if "done" in answer:
            answer = self._published(job, answer)
        elif answer["failed"]["kind"] == BUDGET:
            # It follows from model and budget: to try again would find the same.
            self._write_down(job, answer["failed"], [])
        output = answer.get("output", "")
        plain = answer.get("done") or _in_words_of_the_user(answer["failed"], job)
        shutil.rmtree(job.folder, ignore_errors=True)
        self._users[job.input] -= 1
        if not self._users[job.input]:
            job.input.forget()
        self._note(job.task, plain, output, seconds=finished.seconds, where=finished.where)

    def _published(self, job: FleetJob, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer of a task whose result has its name now, or why it has not."""
        if job.input.has_changed():
            return failed(REFUSED, f"{job.task.model.path}: has changed while it was rewritten")
        try:
            target = publish(job, self.manifest.folder, self.manifest.parts)
            self._write_down(job, answer["done"], self.manifest.describe(target, WRITTEN))
        except (FileError, OSError) as error:
            return failed(REFUSED, str(error))
        return answer | {"output": str(target)}

    def _write_down(self, job: FleetJob, answer: Mapping[str, Any], files: Any) -> None:
        self.manifest.add(job.task.name, fingerprint(job, self.variables), answer, files)

    def _place(self, files: Sequence[Sequence[Any]], job: FleetJob) -> str:
        if not files:
            return ""
        name = job.task.name if job.input.is_folder else files[0][0]
        return str(self.manifest.folder / name)

    def _note(
        self,
        task: Task,
        answer: Mapping[str, Any],
        output: str = "",
        *,
        is_new: bool = True,
        seconds: float = 0.0,
        where: str = "",
    ) -> None:
        kind = answer.get("kind", "")
        result = FleetTask(
            task.model.path,
            str(task.budget),
            task.shapes_text,
            "failed" if kind else "done",
            kind,
            answer.get("reason", ""),
            output,
            is_new,
            tuple(answer.get("functions", ())),
            round(seconds, 3),
            where,
        )
        self._results[task] = result
        self.progress.count(result)


def _in_words_of_the_user(failure: Mapping[str, Any], job: FleetJob) -> dict[str, Any]:
    """A failure that calls the model what the user calls it, not what its copy is called."""
    reason = str(failure["reason"]).replace(str(job.input.path), job.task.model.path)
    return dict(failure) | {"reason": reason}
