"""What a step computes is found once, in the background, and nobody has to wait for it."""

from __future__ import annotations

import time

import pytest
import tensorflow as tf

from memopt.errors import ExecutionError
from memopt.runtime.program import Program
from memopt.runtime.reference import Runs, reference
from memopt.runtime.settings import Settings
from memopt.runtime.verification import verify_against

_LONG_ENOUGH_S = 60


@pytest.fixture(scope="module")
def counter() -> Program:
    variable = tf.Variable(0.0)

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step() -> tf.Tensor:
        return variable.assign_add(1.0).read_value()

    concrete = step.get_concrete_function()
    concrete.keep_alive = variable
    return Program.from_concrete_function(concrete)


def test_it_runs_once_for_all_that_is_compared(counter: Program) -> None:
    with reference(counter, Settings(), Runs(2, None, counter.inputs)) as original:
        assert original.begin() is original.begin()
        results = original.results()
        for _ in range(2):
            compared = verify_against(original, counter)
            assert compared.equal
            assert compared.steps == len(results.outputs)
        # Had it run again, it had counted on.
        assert original.results() is results
        assert list(original.process.variables().values()) == [2.0]


def test_who_leaves_does_not_wait_for_it(counter: Program) -> None:
    steps = 100_000_000
    started = time.monotonic()
    with reference(counter, Settings(), Runs(steps, None, counter.inputs)) as original:
        results = original.begin()
        assert not results.done()
    assert time.monotonic() - started < _LONG_ENOUGH_S
    with pytest.raises(ExecutionError, match="SIGKILL"):
        results.result()
