"""A process of our own that answers requests, seen from the process that asks."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import contextmanager
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, TypeVar

from memopt.errors import ExecutionError, InvalidGraphError, OptionsError, OutOfMemoryError
from memopt.interpreter import command_for
from memopt.runtime.watch import Watch, dump_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from memopt.runtime.settings import Settings

_ERRORS: dict[str, type[Exception]] = {
    "execution": ExecutionError,
    "out_of_memory": OutOfMemoryError,
    "invalid_graph": InvalidGraphError,
    "options": OptionsError,
}
_QUIT_TIMEOUT_S = 10
_LAST_LINES = 5
_LOG_FILE = "log.txt"

_Process = TypeVar("_Process", bound="WorkerProcess")


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
        command_for(module, directory),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment,
        text=True,
        encoding="utf-8",
    )


class WorkerProcess:
    """A process that runs a module whose `main` is `memopt.runtime.worker.main`.

    It sets itself up in the background; the first request waits for it and raises what went wrong.

    Args:
        directory: Where the module finds what it works on.
        settings: What the process runs with.
        module: What it runs.
        variables: Environment variables on top of those of the settings.
    """

    def __init__(
        self,
        directory: Path,
        settings: Settings,
        module: str,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._log = (directory / _LOG_FILE).open("w+", encoding="utf-8", errors="replace")
        self._ready = False
        environment = settings.environment() | dump_environment(directory) | dict(variables)
        self._process = start_worker(module, str(directory), environment, self._log)

    def ask(self, command: str, **parameters: Any) -> Any:
        """The answer to a request, which is a method of the module's worker and its arguments.

        Raises:
            ExecutionError: The worker failed or the process died.
            OutOfMemoryError: Memory was short.
            InvalidGraphError: The worker found the graph to be broken.
            OptionsError: Or an option.
        """
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

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        log = self._directory / _LOG_FILE
        with Watch(self._process, log, self._settings.timeout_ns, self._directory) as watch:
            line = self._process.stdout.readline()
        if not line or watch.has_ended_it:
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
def ending(process: _Process) -> Iterator[_Process]:
    """A process that ends with the context."""
    try:
        yield process
    except BaseException:
        # A process that failed, or that nobody waits for any longer, is not asked politely.
        process.kill()
        raise
    finally:
        process.close()
