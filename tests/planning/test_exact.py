"""Exact plans: their cases, in a process without TensorFlow, and beside it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.layered_graphs import layered_graph

import memopt
from memopt.errors import MemoptError
from memopt.planning.exact import solver_process

CASES = Path(__file__).parent / "exact_cases.py"


@pytest.mark.slow
def test_the_cases_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", CASES],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(?P<count>[0-9]+) passed", done.stdout)
    assert passed is not None
    assert int(passed["count"]) > 80


def test_tensorflow_may_be_loaded() -> None:
    import tensorflow as tf

    assert int(tf.constant(1) + 1) == 2
    plan = memopt.plan(layered_graph(20, seed=2), 0.7, exact=True)
    assert (plan.status, plan.gap) == ("optimal", 0)


def test_a_process_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver_process, "__name__", "memopt.no_such_module")
    with pytest.raises(MemoptError, match=r"ended early: .*No module named memopt\.no_such_module"):
        memopt.plan(layered_graph(20, seed=2), 0.7, exact=True)
