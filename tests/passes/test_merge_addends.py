"""Equal addends made one: each case a text before and after, and a step run for real."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.one_pass import run_case, run_pass
from support.text_cases import read_cases

import memopt
from memopt.item import GrapplerItem
from memopt.passes.merge_addends import MergeAddends
from memopt.runtime.function import build_function

if TYPE_CHECKING:
    from support.text_cases import TextCase

CASES = read_cases(Path(__file__).parent / "cases" / "merge_addends.txt")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    done = run_case(case, MergeAddends.parse(case.spec))
    assert done.text == case.after
    assert done.reasons == case.declined


def test_the_pass_has_nothing_to_do_a_second_time() -> None:
    for case in CASES:
        once = run_case(case, MergeAddends())
        item = GrapplerItem(
            once.graph_def,
            feed=tuple(sorted(case.settings["fed"])),
            fetch=tuple(sorted(case.settings["fetched"])),
        )
        assert not run_pass(item, MergeAddends()).edits, case.name


def test_tensorflow_makes_one_of_the_same_operations_and_an_order_keeps_the_sum() -> None:
    """The step itself shows it: its sum has not the bits that it has from left to right."""
    import tensorflow as tf

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def step(x: Any, y: Any) -> Any:
        first, second = tf.raw_ops.Neg(x=x), tf.raw_ops.Neg(x=x)
        later = tf.raw_ops.Cumsum(x=y, axis=0)
        return tf.raw_ops.AddN(inputs=[first, second, later]), tf.exp(later[0])

    random = np.random.default_rng(5)
    given = [tf.constant(random.standard_normal((64, 16)).astype(np.float32)) for _ in range(2)]
    function = step.get_concrete_function(*given)
    added, _ = function(*given)
    opposite = -given[0].numpy()
    cumulated = tf.cumsum(given[1]).numpy()
    assert not np.array_equal(added, (opposite + opposite) + cumulated)
    result = memopt.optimize(function, level="ordered")
    assert [done.edits for done in result.report.passes if done.name == "merge-addends"]
    again, _ = build_function(result.graph_def, function)(*given)
    assert np.array_equal(added, again)
