"""Trainings in processes of their own, which stay alive, take turns, and answer what is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_RESULT = "RESULT "


@contextmanager
def started(
    arguments: Sequence[str], environments: Sequence[Mapping[str, str]]
) -> Iterator[Callable[[str], list[Any]]]:
    """Processes of one training, as a function that asks all of them something.

    Args:
        arguments: Of this interpreter, the file first.
        environments: For each process, what is added to this one's environment.
    """
    processes = [_start(arguments, environment) for environment in environments]

    def ask(question: str) -> list[Any]:
        for process in processes:
            assert process.stdin is not None
            print(question, file=process.stdin, flush=True)
        return [_answer(process, arguments) for process in processes]

    try:
        ask("ready")
        yield ask
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            process.wait()


def answer_questions(answers: Mapping[str, Callable[[], Any]]) -> None:
    """In such a process: answer until nobody asks any more; `None` to what is not known."""
    for line in sys.stdin:
        answer = answers.get(line.strip(), lambda: None)()
        print(_RESULT + json.dumps(answer), flush=True)


def _start(arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    inherited = {key: value for key, value in os.environ.items() if key != "MEMOPT_FLAGS"}
    quiet = {
        "TF_CPU_ALLOCATOR_USE_BFC": "1",
        # They share a GPU, if there is one.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "ABSL_MIN_LOG_LEVEL": "3",
    }
    return subprocess.Popen(  # noqa: S603 - this interpreter, a benchmark
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=inherited | quiet | dict(environment),
        text=True,
    )


def _answer(process: subprocess.Popen[str], arguments: Sequence[str]) -> Any:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(_RESULT):
            return json.loads(line.removeprefix(_RESULT))
    message = f"a training died: {' '.join(arguments)}"
    raise RuntimeError(message)
