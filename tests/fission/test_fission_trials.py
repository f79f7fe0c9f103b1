"""Trials of kernels that do not come to their end: the kernel stays whole, and nobody waits."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from support.one_pass import run_pass

from memopt.fission import kernel_trials, trials
from memopt.fission.trial_records import Outcome, Setting, Trial, recall, remember
from memopt.fission.trials import Trials
from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.item import GrapplerItem
from memopt.passes.fission import Fission

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTINGS = (Setting(onednn=False, threads=1), Setting(onednn=True, threads=1))
READY = """
import pickle, sys, time
def say():
    sys.stdout.buffer.write(pickle.dumps(True))
    sys.stdout.buffer.flush()
"""
HANGS = f"{READY}say(); sys.stdin.buffer.read(1); time.sleep(600)"
DIES = f"{READY}say(); sys.stdin.buffer.read(1)"
STARTS_SLOWLY = f"{READY}time.sleep(1.5); say(); sys.stdin.buffer.read(1); say(); time.sleep(600)"
PRODUCT = """
x = Placeholder() {dtype=float, shape=[64,16]}
w = Placeholder() {dtype=float, shape=[16,4096]}
p = MatMul(x, w) {T=float}
e = Exp(p) {T=float}
a = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 tensor_shape { dim { size: 1 } } int_val: 1 }>}
s = Sum(e, a) {T=float, Tidx=int32}
n = Neg(s) {T=float}
"""  # noqa: E501 - constants


def trial(number: int = 0) -> Trial:
    return Trial(((2, b""), (1, b"")), (), (f"op{number}:0",), (1, 1))


def item() -> GrapplerItem:
    return GrapplerItem(to_graph_def(parse_graph(PRODUCT)), feed=("x", "w"), fetch=("n",))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[subprocess.Popen[bytes]]]:
    """Lets processes that run some code stand in for those that try kernels."""
    started: list[subprocess.Popen[bytes]] = []

    def use(code: str) -> list[subprocess.Popen[bytes]]:
        def stand_in(_: Setting) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            started.append(process)
            return process

        monkeypatch.setattr(trials, "_start", stand_in)
        return started

    return use


def test_a_kernel_that_hangs_ends_with_the_time(
    start: Callable[[str], list[subprocess.Popen[bytes]]],
) -> None:
    processes = start(HANGS)
    started_s = time.monotonic()
    with Trials(SETTINGS, seconds=0.5) as tried:
        assert tried.outcome(trial()) is Outcome.NO_TIME
        assert tried.outcome(trial(1)) is Outcome.NO_TIME
    assert time.monotonic() - started_s < 30
    assert len(processes) == len(SETTINGS)
    assert all(process.poll() is not None for process in processes)


def test_a_kernel_that_ends_its_process_is_not_tried_again(
    start: Callable[[str], list[subprocess.Popen[bytes]]],
) -> None:
    processes = start(DIES)
    with Trials(SETTINGS) as tried:
        outcomes = [tried.outcome(trial(number)) for number in (0, 0, 1, 2, 3, 4, 5)]
    assert set(outcomes) == {Outcome.ENDED}
    assert len(processes) == 3 * len(SETTINGS)


def test_to_start_tensorflow_is_no_trial(
    start: Callable[[str], list[subprocess.Popen[bytes]]],
) -> None:
    """A machine on which that takes longer than the time for trials could try nothing, ever."""
    start(STARTS_SLOWLY)
    with Trials(SETTINGS, seconds=1.0) as tried:
        assert tried.outcome(trial()) is Outcome.EQUAL


def test_a_process_that_never_starts_is_not_waited_for(
    start: Callable[[str], list[subprocess.Popen[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_LONGEST_S", 0.3)
    processes = start("import time; time.sleep(600)")
    with Trials(SETTINGS) as tried:
        assert tried.outcome(trial()) is Outcome.NO_TIME
    assert all(process.poll() is not None for process in processes)


def test_only_what_was_found_out_is_remembered(
    start: Callable[[str], list[subprocess.Popen[bytes]]],
) -> None:
    start(DIES)
    with Trials(SETTINGS) as tried:
        tried.outcome(trial())
    assert recall(trial(), SETTINGS) is None
    for outcome in (Outcome.EQUAL, Outcome.OTHER):
        remember(trial(1), SETTINGS, outcome)
        assert recall(trial(1), SETTINGS) is outcome


def test_what_cannot_be_tried_stays_whole_and_says_why(
    start: Callable[[str], list[subprocess.Popen[bytes]]],
) -> None:
    start(HANGS)
    # Without the product, what reads it can be split.
    done = run_pass(item(), Fission(trial_seconds=0.3))
    assert done.graph.find("p") is not None
    assert "could not be tried in the time there was" in done.reasons


def test_what_is_too_large_for_this_machine_is_not_tried(
    start: Callable[[str], list[subprocess.Popen[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = start(DIES)
    monkeypatch.setattr(kernel_trials, "system_memory_bytes", lambda: 1 << 20)
    done = run_pass(item(), Fission())
    assert not processes
    assert "needs too much of this machine's memory" in done.reasons


def test_nothing_is_split_when_the_time_is_up() -> None:
    done = run_pass(item(), Fission(try_kernels=False, planning_seconds=1e-9))
    assert not done.edits
    assert "the time for planning was up" in done.reasons
    assert run_pass(item(), Fission(try_kernels=False)).edits
