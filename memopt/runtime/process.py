"""A step in a fresh process, seen from the process that wants it run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from memopt.errors import ExecutionError, InvalidGraphError, OptionsError, OutOfMemoryError
from memopt.runtime.replay import Measurement
from memopt.runtime.settings import SETTINGS_FILE, Settings
from memopt.runtime.values import load_values
from memopt.runtime.watch import Watch, dump_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt
    from tensorflow.core.protobuf.config_pb2 import RunMetadata

    from memopt.runtime.program import Program

_ERRORS: dict[str, type[Exception]] = {
    "execution": ExecutionError,
    "out_of_memory": OutOfMemoryError,
    "invalid_graph": InvalidGraphError,
    "options": OptionsError,
}
_QUIT_TIMEOUT_S = 10
_LAST_LINES = 5
_LOG_FILE = "log.txt"
_WORKER = "memopt.runtime.worker"


def start_worker(
    module: str, directory: str, environment: Mapping[str, str], log: IO[str]
) -> subprocess.Popen[str]:
    """Start `python -m module directory` in a fresh process.

    Args:
        module: What it runs.
        directory: Where it finds the program.
        environment: All of its environment.
        log: The file that it logs to.
    """
    return subprocess.Popen(  # noqa: S603 - this interpreter, our own module
        # -P: the current directory must not hide installed packages.
        [sys.executable, "-P", "-m", module, directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment,
        text=True,
        encoding="utf-8",
    )


class StepProcess:
    """A step in a process of its own. Made by `step_process`.

    The process sets itself up in the background; the first request waits for it and raises what
    went wrong: `ExecutionError`, `OutOfMemoryError` if the variables and inputs alone are too
    large, `InvalidGraphError` if the graph cannot be run, `OptionsError` if a value is missing.
    """

    def __init__(self, directory: Path, settings: Settings, module: str = _WORKER) -> None:
        self._directory = directory
        self._settings = settings
        self._log = (directory / _LOG_FILE).open("w+", encoding="utf-8", errors="replace")
        self._ready = False
        environment = settings.environment() | dump_environment(directory)
        self._process = start_worker(module, str(directory), environment, self._log)

    def run(self, steps: int) -> tuple[Path, ...]:
        """Run steps and keep the outputs of each.

        Returns:
            For each step a file for `load_values`: outputs by tensor name.

        Raises:
            ExecutionError: TensorFlow refused; `OutOfMemoryError` if memory was short.
        """
        outputs = Path(tempfile.mkdtemp(prefix="outputs-", dir=self._directory))
        return tuple(Path(p) for p in self._ask("run", steps=steps, directory=str(outputs)))

    def measure(self) -> Measurement:
        """The memory of the last step that `run` ran. Later runs are not recorded.

        Raises:
            ExecutionError: No step was run, or the record is not complete.
        """
        return Measurement.from_json(self._ask("measure"))

    def time(self, steps: int) -> tuple[int, ...]:
        """Run steps without recording and return how long each took, in nanoseconds.

        Raises:
            ExecutionError: TensorFlow refused; `OutOfMemoryError` if memory was short.
        """
        return tuple(self._ask("time", steps=steps))

    def variables(self) -> dict[str, npt.NDArray[Any]]:
        """The variables' values now, by node name.

        Raises:
            ExecutionError: They cannot be read.
        """
        return load_values(Path(self._ask("variables", path=str(self._directory / "now.npz"))))

    def profile(self, steps: int) -> tuple[RunMetadata, ...]:
        """TensorFlow's statistics of steps, from a process that runs `profile_worker`.

        Raises:
            ExecutionError: TensorFlow refused; `OutOfMemoryError` if memory was short.
        """
        from tensorflow.core.protobuf.config_pb2 import RunMetadata

        directory = tempfile.mkdtemp(prefix="profiles-", dir=self._directory)
        paths = self._ask("profile", steps=steps, directory=directory)
        return tuple(RunMetadata.FromString(Path(path).read_bytes()) for path in paths)

    def close(self) -> None:
        """End the process, by force if it does not end by itself."""
        try:
            self._process.communicate('{"command": "quit"}\n', timeout=_QUIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._log.close()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def _ask(self, command: str, **parameters: Any) -> Any:
        if not self._ready:
            self._receive()
            self._ready = True
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"command": command, **parameters}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._death() from error
        return self._receive()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        log = self._directory / _LOG_FILE
        with Watch(self._process, log, self._settings.timeout_ns, self._directory) as watch:
            line = self._process.stdout.readline()
        if not line:
            raise self._death(watch)
        answer = json.loads(line)
        if "error" in answer:
            raise _ERRORS[answer["error"]["kind"]](answer["error"]["message"])
        return answer["result"]

    def _death(self, watch: Watch | None = None) -> ExecutionError:
        """Why there is no answer."""
        if watch and watch.timed_out:
            seconds = self._settings.timeout_ns / 1e9
            return ExecutionError(f"the step gave no answer within {seconds:g} seconds")
        if watch and watch.failed_allocation:
            return OutOfMemoryError(watch.failed_allocation)
        status = self._process.wait()
        how = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        self._log.seek(0)
        last = " | ".join(line.strip() for line in self._log.readlines()[-_LAST_LINES:])
        return ExecutionError(
            f"the process that ran the step ended with {how}; it last wrote: {last}"
        )


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
        process = StepProcess(directory, settings, module)
        try:
            yield process
        except BaseException:
            # A process that failed, or that nobody waits for any longer, is not asked politely.
            process.kill()
            raise
        finally:
            process.close()
