"""Tries whether kernels give the same bits part by part as at once, in processes of their own.

Which kernel runs, how its work is shared among threads and what it does at the end of a row differ
with sizes, with the machine and with oneDNN. No table says that; running it does. TensorFlow is
started anew for it, since oneDNN is chosen when it is loaded, and since this process may be inside
of TensorFlow already.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import subprocess
from typing import IO, TYPE_CHECKING, Any, Self

from memopt.fission.trial_records import Outcome, Setting, Trial, recall, remember
from memopt.flags import VARIABLE
from memopt.graph.kernels import ONEDNN_VARIABLE
from memopt.interpreter import command_for, finding_memopt
from memopt.time_limit import TimeLimit

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST_S = 60.0
"""Seconds that a kernel may take to be tried, and TensorFlow to start for it."""
_MOST_ENDED = 3
"""After so many processes that ended early or were stopped, none is started any more."""
_TICK_S = 0.2
"""How often a wait for an answer is interrupted, so that what ends it from outside can."""


class Trials:
    """Tries kernels under some settings; what was tried is remembered.

    Args:
        settings: All under which the bits have to be the same.
        seconds: How long all trials together may take, from the first that is made, once TensorFlow
            has started for it; 0: as long as they take, though none longer than a minute.
    """

    def __init__(self, settings: Iterable[Setting], seconds: float = 0.0) -> None:
        self._settings = tuple(settings)
        self._seconds = seconds
        self._time_limit: TimeLimit | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ended = 0
        self._known: dict[Trial, Outcome] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def outcome(self, trial: Trial) -> Outcome:
        """What a trial gave in parts, compared with what it gave at once.

        What was found out before on this machine is taken from the cache folder. A kernel that
        takes too long, or with which the process ends, is not tried again by this object.
        """
        if trial not in self._known:
            self._known[trial] = recall(trial, self._settings) or self._try(trial)
        return self._known[trial]

    def _try(self, trial: Trial) -> Outcome:
        if self._time_limit is not None and self._time_limit.is_over:
            return Outcome.NO_TIME
        if self._ended >= _MOST_ENDED:
            return Outcome.ENDED
        outcome = self._ask(trial)
        if outcome in (Outcome.EQUAL, Outcome.OTHER):
            remember(trial, self._settings, outcome)
        else:
            self._ended += 1
            self._stop()
        return outcome

    def _ask(self, trial: Trial) -> Outcome:
        """The answer of all processes, which work at the same time."""
        try:
            self._make_ready()
            time_limit = self._time_for_one()
            for process in self._processes:
                assert process.stdin is not None
                pickle.dump(trial, process.stdin)
                process.stdin.flush()
            answers = [_answer(process, time_limit) for process in self._processes]
        except TimeoutError:
            return Outcome.NO_TIME
        except (OSError, EOFError, pickle.UnpicklingError):
            return Outcome.ENDED
        return Outcome.EQUAL if all(answers) else Outcome.OTHER

    def _make_ready(self) -> None:
        """Start the processes and wait for TensorFlow, which may take longer than all trials."""
        if self._processes:
            return
        self._processes = [_start(setting) for setting in self._settings]
        time_limit = TimeLimit.after(_LONGEST_S)
        for process in self._processes:
            _answer(process, time_limit)

    def _time_for_one(self) -> TimeLimit:
        if self._time_limit is None:
            self._time_limit = TimeLimit.after(self._seconds)
        return min(self._time_limit, TimeLimit.after(_LONGEST_S))

    def _stop(self) -> None:
        for process in self._processes:
            # It has nothing to put away, and TensorFlow takes long to end.
            process.kill()
            with contextlib.suppress(OSError):
                # What could not be written to it goes with it.
                process.communicate()
        self._processes = []


def _start(setting: Setting) -> subprocess.Popen[bytes]:
    # Not rewritten itself, and without a word: its output is its answer.
    inherited = {key: value for key, value in os.environ.items() if key != VARIABLE}
    environment = finding_memopt(inherited) | {
        ONEDNN_VARIABLE: str(int(setting.onednn)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
    }
    return subprocess.Popen(  # noqa: S603 - this interpreter and a module of our own
        command_for(f"{__package__}.trial_worker", str(setting.threads)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def _answer(process: subprocess.Popen[bytes], time_limit: TimeLimit) -> bool:
    """What a process says: that it is ready, and then whether the bits were equal.

    Raises:
        TimeoutError: The time was up before it answered.
    """
    stream: IO[Any] | None = process.stdout
    assert stream is not None
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while not selector.select(_TICK_S):
            if time_limit.is_over:
                raise TimeoutError
    # What it wrote is an answer of our own to our own question.
    is_equal: bool = pickle.load(stream)  # noqa: S301
    return is_equal
