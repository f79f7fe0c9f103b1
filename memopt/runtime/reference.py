"""What a step computes as it is: found once, in the background too, for all that is compared."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.runtime.comparison import compare_values
from memopt.runtime.process import step_process
from memopt.runtime.values import load_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    import numpy.typing as npt

    from memopt.runtime.comparison import Difference
    from memopt.runtime.process import StepProcess
    from memopt.runtime.program import Program
    from memopt.runtime.settings import Settings


@dataclass(frozen=True)
class Results:
    """What a program computed: files with the outputs of each step, variables at the end."""

    outputs: tuple[Path, ...]
    variables: Mapping[str, npt.NDArray[Any]]

    def differences(self, others: Results) -> list[Difference]:
        """What others are not equal in, to the bit."""
        found: list[Difference] = []
        pairs = zip(self.outputs, others.outputs, strict=True)
        for step, (before, after) in enumerate(pairs):
            found += compare_values("output", step, load_values(before), load_values(after))
        steps = len(self.outputs)
        return found + compare_values("variable", steps, self.variables, others.variables)


class Runs(NamedTuple):
    """The steps that are run of all that is compared.

    Attributes:
        steps: How many.
        first_inputs: With which one more is run before them; `None` for none.
        inputs: With which they are run.
    """

    steps: int
    first_inputs: Mapping[str, npt.NDArray[Any]] | None
    inputs: Mapping[str, npt.NDArray[Any]]

    def results(self, process: StepProcess) -> Results:
        """What they compute in a process."""
        first: tuple[Path, ...] = ()
        if self.first_inputs is not None:
            process.feed(self.first_inputs)
            first = process.run(1)
            process.feed(self.inputs)
        return Results((*first, *process.run(self.steps)), process.variables())


class Reference:
    """A step as it is, in a process of its own. Made by `reference`.

    Attributes:
        program: The step, and the values that all run with that is compared with it.
        settings: How it runs.
        runs: What is run of it.
        process: Where it runs.
    """

    def __init__(
        self,
        program: Program,
        settings: Settings,
        runs: Runs,
        process: StepProcess,
        thread: ThreadPoolExecutor,
    ) -> None:
        self.program = program
        self.settings = settings
        self.runs = runs
        self.process = process
        self._thread = thread
        self._results: Future[Results] | None = None

    def begin(self) -> Future[Results]:
        """Run it in the background, unless it runs there already."""
        if self._results is None:
            self._results = self._thread.submit(self.runs.results, self.process)
        return self._results

    def results(self) -> Results:
        """What it computes; the first who asks waits for it.

        Raises:
            ExecutionError: A run failed; `OutOfMemoryError` if memory was short.
        """
        return self.begin().result()

    def abandon(self) -> None:
        """End the process where it still runs, and nobody waits for it any longer."""
        if self._results is not None and not self._results.done():
            self.process.kill()


@contextmanager
def reference(program: Program, settings: Settings, runs: Runs) -> Iterator[Reference]:
    """Start a process for a step as it is; it ends with the context, done or not.

    Raises:
        FileError: The program cannot be written to a temporary directory.
    """
    with step_process(program, settings) as process, ThreadPoolExecutor(1) as thread:
        original = Reference(program, settings, runs, process, thread)
        try:
            yield original
        finally:
            original.abandon()
