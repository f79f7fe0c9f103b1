"""A step in a fresh process, seen from the process that wants it run."""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.runtime.replay import Measurement
from memopt.runtime.settings import SETTINGS_FILE, Settings
from memopt.runtime.values import load_values, save_values
from memopt.runtime.worker_process import WorkerProcess, ending

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt
    from tensorflow.core.protobuf.config_pb2 import RunMetadata

    from memopt.runtime.program import Program

_WORKER = "memopt.runtime.worker"


class StepProcess(WorkerProcess):
    """A step in a process of its own. Made by `step_process`.

    The process sets itself up in the background; the first request waits for it and raises what
    went wrong: `ExecutionError`, `OutOfMemoryError` if the variables and inputs alone are too
    large, `InvalidGraphError` if the graph cannot be run, `OptionsError` if a value is missing.
    """

    def run(self, steps: int) -> tuple[Path, ...]:
        """Run steps and keep the outputs of each.

        Returns:
            For each step a file for `load_values`: outputs by tensor name.

        Raises:
            ExecutionError: TensorFlow refused; `OutOfMemoryError` if memory was short.
        """
        outputs = Path(tempfile.mkdtemp(prefix="outputs-", dir=self._directory))
        return tuple(Path(p) for p in self.ask("run", steps=steps, directory=str(outputs)))

    def feed(self, inputs: Mapping[str, npt.NDArray[Any]]) -> None:
        """Have steps from now on run with other values of the inputs.

        Args:
            inputs: One for each input, by tensor name.

        Raises:
            FileError: They cannot be written to a temporary directory.
            ExecutionError: TensorFlow refused; `OutOfMemoryError` if memory was short.
        """
        path = self._directory / "fed.npz"
        save_values(path, inputs)
        self.ask("feed", path=str(path))

    def measure(self) -> Measurement:
        """The memory of the last step that `run` ran. Later runs are not recorded.

        Raises:
            ExecutionError: No step was run, or the record is not complete.
        """
        return Measurement.from_json(self.ask("measure"))

    def time(self, steps: int) -> tuple[int, ...]:
        """Run steps without recording and return how long each took, in nanoseconds.

        Raises:
            ExecutionError: TensorFlow refused; `OutOfMemoryError` if memory was short.
        """
        return tuple(self.ask("time", steps=steps))

    def variables(self) -> dict[str, npt.NDArray[Any]]:
        """The variables' values now, by node name.

        Raises:
            ExecutionError: They cannot be read.
        """
        return load_values(Path(self.ask("variables", path=str(self._directory / "now.npz"))))

    def profile(self, steps: int) -> tuple[RunMetadata, ...]:
        """TensorFlow's statistics of steps, from a process that runs `profile_worker`.

        Raises:
            ExecutionError: TensorFlow refused; `OutOfMemoryError` if memory was short.
        """
        from tensorflow.core.protobuf.config_pb2 import RunMetadata

        directory = tempfile.mkdtemp(prefix="profiles-", dir=self._directory)
        paths = self.ask("profile", steps=steps, directory=directory)
        return tuple(RunMetadata.FromString(Path(path).read_bytes()) for path in paths)


@contextmanager
def step_process(
    program: Program, settings: Settings | None = None, module: str = _WORKER
) -> Iterator[StepProcess]:
    """Start a process for a program; it ends, and its files go, with the context.

    Args:
        program: The step and its values.
        settings: How to run it; the default compares bit for bit.
        module: What the process runs; what it does not answer to must not be asked of it.

    Raises:
        FileError: The program cannot be written to a temporary directory.
    """
    settings = settings or Settings()
    with tempfile.TemporaryDirectory(prefix="memopt-step-") as name:
        directory = Path(name)
        program.save(directory)
        (directory / SETTINGS_FILE).write_text(json.dumps(settings.to_json()), encoding="utf-8")
        with ending(StepProcess(directory, settings, module)) as process:
            yield process
