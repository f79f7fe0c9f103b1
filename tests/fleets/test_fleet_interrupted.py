"""A fleet that is interrupted leaves at once, with what is done and with no process behind it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import memopt
from memopt.fleets.manifest import JOURNAL
from memopt.workers.process import resident_bytes

pytestmark = pytest.mark.slow

TASKS = 80
"""Done in 4 seconds: more than it takes a busy machine to come back here after the first ones."""
BUDGETS = ",".join(f"{100 - number / 4}%" for number in range(TASKS))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_what_is_done_is_kept(models: Path, tmp_path: Path, how: signal.Signals) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "memopt", "fleet", str(models / "step.pb"), "-o", str(out)]
    command += ["--budget", BUDGETS, "--jobs", "1", "--algorithm", "standard"]
    # Who runs tests in the background of a shell has them ignore SIGINT, and all that they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    signal.signal(signal.SIGINT, before)
    children = _children_once_busy(driver.pid, out / JOURNAL)
    begun_s = time.monotonic()
    driver.send_signal(how)
    _, said = driver.communicate(timeout=60)
    assert time.monotonic() - begun_s < 5
    if how is signal.SIGINT:
        assert driver.returncode == 130
        told = rf"memopt: interrupted; so far: \d+ of {TASKS} tasks are done, and kept in "
        assert re.fullmatch(told + r"[^\n]*/out\n", said.decode())
    assert children
    _wait_for_end(children)
    again = memopt.fleet([models / "step.pb"], out, budgets=BUDGETS, algorithm="standard", jobs=1)
    assert again.all_done
    assert not all(task.is_new for task in again.tasks)
    assert sorted(path.name for path in out.iterdir()) == [JOURNAL, "step"]


def _children_once_busy(pid: int, journal: Path) -> list[int]:
    for _ in range(1200):
        if journal.exists() and journal.read_bytes().count(b"\n") > 2:
            break
        time.sleep(0.05)
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _wait_for_end(pids: list[int]) -> None:
    for _ in range(400):
        if not any(_runs(pid) for pid in pids):
            return
        time.sleep(0.05)
    raise AssertionError(f"{pids} run on")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return resident_bytes(pid) > 0
