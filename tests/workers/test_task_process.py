"""Processes that do tasks: each within its memory and time, whatever others did before."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memopt.workers import process
from memopt.workers.process import Limits, TaskProcess, resident_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TESTS = Path(__file__).resolve().parents[1]
MEBIBYTE = 1 << 20

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="memory is read from /proc"
)


@pytest.fixture
def unruly(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    real_processes: None,  # noqa: ARG001
) -> Iterator[Callable[..., TaskProcess]]:
    """Makes processes that misbehave as they are told."""
    monkeypatch.setattr(process, "_MODULE", "support.unruly_worker")
    made = []

    def make(memory_bytes: int = 200 * MEBIBYTE, timeout_s: float = 30.0) -> TaskProcess:
        variables = {"PYTHONPATH": str(TESTS)}
        made.append(TaskProcess(tmp_path, variables, Limits(memory_bytes, timeout_s)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ask(one: TaskProcess, order: str) -> dict[str, Any]:
    one.begin({"order": order})
    for _ in range(3000):
        answer = one.poll()
        if answer is not None:
            return answer
        time.sleep(0.01)
    raise AssertionError("no answer")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_process_is_used_again(unruly: Callable[..., TaskProcess]) -> None:
    one = unruly()
    assert ask(one, "nothing") == ask(one, "nothing")
    assert one.served == 2


def test_one_that_hangs_is_ended(unruly: Callable[..., TaskProcess]) -> None:
    one = unruly(timeout_s=0.3)
    pid = ask(one, "nothing")["done"]["pid"]
    answer = ask(one, "hang")["failed"]
    assert (answer["kind"], answer["reason"]) == ("time", "no answer within 0.3 s")
    assert not is_alive(pid)
    assert ask(one, "nothing")["done"]["pid"] != pid


@pytest.mark.parametrize("order", ["eat 300", "let 300"])
def test_one_that_takes_too_much_is_ended(unruly: Callable[..., TaskProcess], order: str) -> None:
    answer = ask(unruly(), order)["failed"]
    assert answer["kind"] == "memory"
    assert "more than 200.00 MiB" in answer["reason"]


def test_one_that_dies_says_how(unruly: Callable[..., TaskProcess]) -> None:
    answer = ask(unruly(), "die")["failed"]
    assert answer["kind"] == "crash"
    assert "SIGABRT" in answer["reason"]
    assert "what it last said" in answer["reason"]


def test_what_others_left_behind_is_not_held_against_a_task(
    unruly: Callable[..., TaskProcess],
) -> None:
    """90 MiB stay behind, less than half of what is allowed; with 120 more it is too much."""
    one = unruly(memory_bytes=200 * MEBIBYTE)
    first = ask(one, "keep 90")["done"]["pid"]
    second = ask(one, "keep 120")["done"]["pid"]
    assert first != second


def test_a_process_that_holds_half_of_it_is_replaced(unruly: Callable[..., TaskProcess]) -> None:
    one = unruly()
    first = ask(one, "keep 120")["done"]["pid"]
    assert ask(one, "nothing")["done"]["pid"] != first
    assert not is_alive(first)


def test_the_memory_of_a_process_is_seen() -> None:
    before = resident_bytes(os.getpid())
    held = b"x" * (64 * MEBIBYTE)
    assert resident_bytes(os.getpid()) - before > 48 * MEBIBYTE
    del held
    assert resident_bytes(1 << 30) == 0
