"""Tries whether kernels give the same bits part by part as at once, in processes of their own.

Which kernel runs, how its work is shared among threads and what it does at the end of a row differ
with sizes, with the machine and with oneDNN. No table says that; running it does. TensorFlow is
started anew for it, since oneDNN is chosen when it is loaded, and since this process may be inside
of TensorFlow already.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from memopt.errors import MemoptError
from memopt.fission.trial_records import Setting, Trial, recall, remember

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Trials:
    """Tries kernels under some settings; what was tried is remembered.

    Args:
        settings: All under which the bits have to be the same.
    """

    def __init__(self, settings: Iterable[Setting]) -> None:
        self._settings = tuple(settings)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._known: dict[Trial, bool] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            # It has nothing to put away, and TensorFlow takes long to end.
            process.kill()
            process.communicate()

    def are_equal(self, trials: Sequence[Trial]) -> list[bool]:
        """Whether each trial gives the same bits in parts as at once, under every setting.

        What was found out before on this machine is taken from the cache folder.

        Raises:
            MemoptError: A process ended early.
        """
        for trial in trials:
            if trial not in self._known and (before := recall(trial, self._settings)) is not None:
                self._known[trial] = before
        new = [trial for trial in dict.fromkeys(trials) if trial not in self._known]
        if new:
            answers = self._ask(new)
            for trial, *equal in zip(new, *answers, strict=True):
                self._known[trial] = all(equal)
                remember(trial, self._settings, is_equal=all(equal))
        return [self._known[trial] for trial in trials]

    def _ask(self, trials: Sequence[Trial]) -> list[list[bool]]:
        if not self._processes:
            self._processes = [_start(setting) for setting in self._settings]
        try:
            for process in self._processes:
                assert process.stdin is not None
                pickle.dump(list(trials), process.stdin)
                process.stdin.flush()
            return [_answer(process) for process in self._processes]
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise MemoptError(f"the process that tries kernels ended early: {error}") from error


def _start(setting: Setting) -> subprocess.Popen[bytes]:
    # Not rewritten itself, and without a word: its output is its answer.
    inherited = {key: value for key, value in os.environ.items() if key != "MEMOPT_FLAGS"}
    paths = [str(Path(__file__).parents[2]), inherited.get("PYTHONPATH", "")]
    environment = inherited | {
        "TF_ENABLE_ONEDNN_OPTS": str(int(setting.onednn)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
    return subprocess.Popen(  # noqa: S603 - this interpreter and a module of our own
        [sys.executable, "-P", "-m", f"{__package__}.trial_worker", str(setting.threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def _answer(process: subprocess.Popen[bytes]) -> list[bool]:
    stream: IO[Any] | None = process.stdout
    assert stream is not None
    # What it wrote is an answer of our own to our own question.
    answer: list[bool] = pickle.load(stream)  # noqa: S301
    return answer
