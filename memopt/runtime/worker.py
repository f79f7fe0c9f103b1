"""The process that runs a step: `python -m memopt.runtime.worker DIRECTORY`.

The directory holds a program and `settings.json`. Requests come as lines of JSON on the standard
input: {"command": ..., parameters}. Each is answered by one line on the standard output, either
{"result": ...} or {"error": {"kind": ..., "message": ...}}, after which the process ends. A first
answer says that the step is ready.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.errors import (
    ExecutionError,
    InvalidGraphError,
    MemoptError,
    OptionsError,
    OutOfMemoryError,
)
from memopt.runtime.program import Program
from memopt.runtime.replay import replay
from memopt.runtime.runners import FunctionRunner, SessionRunner, as_arrays
from memopt.runtime.settings import SETTINGS_FILE, Settings
from memopt.runtime.trace import TraceRecorder, step_marker
from memopt.runtime.values import load_values, save_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TextIO

    from memopt.runtime.runners import Runner
    from memopt.runtime.trace import Trace

_LONGEST_MESSAGE = 1000
_BOILERPLATE = ("Graph execution error:", "Detected at node", "<stack traces", "Hint:", 'File "')
_STACK_TRACE = "Original stack trace"


class Worker:
    """A step in this process, recorded from before its variables exist.

    Args:
        directory: Where the program and the settings are.
    """

    def __init__(self, directory: Path) -> None:
        settings = Settings.from_json(json.loads((directory / SETTINGS_FILE).read_text("utf-8")))
        settings.configure_tensorflow()
        self._trace: Trace | None = None
        self._recorder = TraceRecorder(directory / "trace")
        self._recorder.start()
        self._names, self._runner = self.prepare(directory, settings)

    @staticmethod
    def prepare(directory: Path, settings: Settings) -> tuple[Sequence[str], Runner]:
        """What runs the step, and the names of its outputs."""
        program = Program.load(directory)
        return program.item.fetched_tensors, _runner_of(program, settings)

    def run(self, steps: int, directory: str) -> list[str]:
        """Run steps; the outputs of each go to a file of its own in `directory`."""
        return [self._run_one(number, Path(directory)) for number in range(steps)]

    def feed(self, path: str) -> str:
        """Have steps from now on run with the inputs of a file, by tensor name."""
        self._runner.feed(load_values(Path(path)))
        return path

    def measure(self) -> dict[str, Any]:
        """The memory of the last recorded step. Ends the recording."""
        trace = self._stop_trace()
        if not trace.steps:
            raise ExecutionError("no step was run before the measurement")
        outside = self._runner.outside
        return replay(trace.events, trace.steps[-1], outside).to_json(timeline=True)

    def time(self, steps: int) -> list[int]:
        """Run steps and return how long each took, in nanoseconds. Ends the recording."""
        self._stop_trace()
        durations_ns = []
        for _ in range(steps):
            start_ns = time.perf_counter_ns()
            self._runner.step()
            durations_ns.append(time.perf_counter_ns() - start_ns)
        return durations_ns

    def variables(self, path: str) -> str:
        """Write the variables' values to a file."""
        save_values(Path(path), self._runner.variables())
        return path

    def _run_one(self, number: int, directory: Path) -> str:
        # What earlier steps left for the collector must not count as held.
        gc.collect()
        if self._trace is None:
            with step_marker(number):
                outputs = self._runner.step()
        else:
            outputs = self._runner.step()
        path = directory / f"{number}.npz"
        save_values(path, as_arrays(self._names, outputs))
        return str(path)

    def _stop_trace(self) -> Trace:
        if self._trace is None:
            self._trace = self._recorder.stop()
        return self._trace


def serve(
    directory: Path,
    requests: Iterable[str],
    answers: TextIO,
    make_worker: Callable[[Path], Any] = Worker,
) -> None:
    """Answer requests until there are no more, one says to quit, or one fails."""
    try:
        worker = make_worker(directory)
        _answer(answers, {"result": "ready"})
        for line in requests:
            request = json.loads(line)
            command = request.pop("command")
            if command == "quit":
                return
            _answer(answers, {"result": getattr(worker, command)(**request)})
    except Exception as error:  # noqa: BLE001 - whatever fails, the parent must hear of it
        _answer(answers, {"error": {"kind": _kind_of(error), "message": message_of(error)}})


def main(make_worker: Callable[[Path], Any] = Worker) -> None:
    """Serve the directory that the command line names."""
    # TensorFlow prints to the standard output too; the answers get a channel of their own.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with answers:
        serve(Path(sys.argv[1]), sys.stdin, answers, make_worker)
    # Everything is said: to take TensorFlow apart would take another second.
    os._exit(0)


def _runner_of(program: Program, settings: Settings) -> Runner:
    if program.in_session:
        return SessionRunner(program, settings.session_config())
    return FunctionRunner(program)


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _kind_of(error: Exception) -> str:
    import tensorflow as tf

    kinds = (
        (tf.errors.ResourceExhaustedError, "out_of_memory"),
        (OutOfMemoryError, "out_of_memory"),
        (InvalidGraphError, "invalid_graph"),
        (OptionsError, "options"),
    )
    return next((kind for type_, kind in kinds if isinstance(error, type_)), "execution")


def message_of(error: Exception) -> str:
    """The error's own words, without TensorFlow's frame around them."""
    text = str(getattr(error, "message", None) or error)
    lines = [line.strip() for line in text.partition(_STACK_TRACE)[0].splitlines()]
    kept = [line for line in lines if line and not line.startswith(_BOILERPLATE)]
    name = "" if isinstance(error, MemoptError) else f"{type(error).__name__}: "
    return (name + " ".join(kept))[:_LONGEST_MESSAGE]


if __name__ == "__main__":
    main()
