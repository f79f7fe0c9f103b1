"""Kernels measured in fresh processes; one that brings its process down takes no other with it."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from memopt.errors import ExecutionError
from memopt.kernels.cases import save_cases
from memopt.kernels.table import MeasuredKernel
from memopt.progress import task
from memopt.runtime.settings import Settings
from memopt.runtime.worker_process import WorkerProcess, ending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memopt.kernels.survey import SurveyedKernel
    from memopt.kernels.table import Environment

_WORKER = "memopt.kernels.worker"
_BATCH = 32
"""Kernels that are run under one record: if one of them brings the process down, the others are
run again."""

_MOST_FAILURES = 4
_TIMEOUT_NS = 300 * 10**9


def measure(
    kernels: Mapping[str, SurveyedKernel],
    environment: Environment,
    progress: Callable[[int], None] | None = None,
) -> dict[str, MeasuredKernel]:
    """Run kernels alone.

    Args:
        kernels: The kernels, by key.
        environment: What to run them in; its release must be this one.
        progress: Is told how many kernels are done.

    Raises:
        ExecutionError: No process with TensorFlow starts here.
    """
    keys, found = list(kernels), dict[str, MeasuredKernel]()
    if not keys:
        return found
    settings = Settings(mode="as-is" if environment.onednn else "exact", timeout_ns=_TIMEOUT_NS)
    with (
        tempfile.TemporaryDirectory(prefix="memopt-kernels-") as name,
        task("kernels", len(keys)) as under_way,
    ):
        cases = [kernels[key].case for key in keys]
        save_cases(Path(name), environment.threads, cases)
        for numbers, answers in _answers(Path(name), settings, len(keys)):
            for number, measured in zip(numbers, answers, strict=True):
                text = str(kernels[keys[number]].signature)
                found[keys[number]] = dataclasses.replace(measured, kernel=text)
            under_way.update(len(found))
            if progress is not None:
                progress(len(found))
    return found


def _answers(
    directory: Path, settings: Settings, count: int
) -> Iterator[tuple[Sequence[int], list[MeasuredKernel]]]:
    """What batches of cases do; a batch that fails is run one by one, each in its own process.

    Raises:
        ExecutionError: Several processes have failed, and none before: TensorFlow does not start.
    """
    answered = failures = 0
    pending = [range(start, min(start + _BATCH, count)) for start in range(0, count, _BATCH)]
    while pending:
        failed: Sequence[int] = ()
        error: ExecutionError | None = None
        try:
            with ending(WorkerProcess(directory, settings, _WORKER)) as process:
                while pending:
                    failed = pending[0]
                    answer = process.ask("measure", numbers=list(pending[0]))
                    answered += 1
                    yield pending.pop(0), [MeasuredKernel.from_json(each) for each in answer]
        except ExecutionError as caught:
            error = caught
        if error is None:
            return
        failures += 1
        if not answered and failures > _MOST_FAILURES:
            raise error
        pending.pop(0)
        if len(failed) > 1:
            pending = [*(range(number, number + 1) for number in failed), *pending]
        else:
            yield failed, [MeasuredKernel("", failure=f"its process failed: {error}"[:300])]
