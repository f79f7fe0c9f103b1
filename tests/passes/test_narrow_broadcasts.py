"""Broadcasts narrowed: each case a text before and after, and kernels run for real."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.one_pass import run_case, run_pass
from support.text_cases import read_cases

import memopt
from memopt.errors import OptionsError
from memopt.item import GrapplerItem
from memopt.passes.narrow_broadcasts import NarrowBroadcasts
from memopt.runtime.function import build_function

if TYPE_CHECKING:
    from support.text_cases import TextCase

CASES = read_cases(Path(__file__).parent / "cases" / "narrow_broadcasts.txt")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    done = run_case(case, NarrowBroadcasts.parse(case.spec))
    assert done.text == case.after
    assert done.reasons == case.declined


def test_the_pass_has_nothing_to_do_a_second_time() -> None:
    for case in CASES:
        once = run_case(case, NarrowBroadcasts())
        item = GrapplerItem(
            once.graph_def,
            feed=tuple(sorted(case.settings["fed"])),
            fetch=tuple(sorted(case.settings["fetched"])),
        )
        assert not run_pass(item, NarrowBroadcasts()).edits, case.name


@pytest.mark.parametrize("moved", [False, True])
def test_what_another_device_reads_stays(moved: bool) -> None:
    case = CASES[1]
    lines = [f"{line} @/device:CPU:1" for line in case.before.splitlines()]
    if moved:
        lines[-1] = lines[-1].replace("CPU:1", "CPU:0")
    done = run_case(replace(case, before="\n".join(lines)), NarrowBroadcasts())
    assert bool(done.edits) is not moved
    assert done.reasons == ("t: 's' is fed, or on another device" if moved else "")


def test_least_bytes_are_not_negative() -> None:
    with pytest.raises(OptionsError, match="least_bytes is -1"):
        NarrowBroadcasts(least_bytes=-1)


BINARY = ("AddV2", "Maximum", "Minimum", "Mul", "RealDiv", "SquaredDifference", "Sub")
SHAPES = [
    ((1,), (1027,)),
    ((1, 1, 1, 7), (3, 5, 11, 7)),
    ((1, 1, 1, 64), (2, 4, 8, 64)),
    ((5, 13, 1), (5, 13, 67)),
    ((2, 1, 1, 8, 1), (2, 6, 6, 8, 5)),
    ((4, 1, 9), (4, 33, 9)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("narrow", "wide"), SHAPES, ids=str)
def test_kernels_give_the_same_bits_for_what_they_repeat_themselves(
    narrow: tuple[int, ...], wide: tuple[int, ...], dtype: str
) -> None:
    """From either side, after one number for all and one for each that is repeated."""
    import tensorflow as tf

    raw = tf.raw_ops
    multiples = [large // small for small, large in zip(narrow, wide, strict=True)]

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def step(v: Any, w: Any, x: Any) -> Any:
        found = []
        for op in BINARY:
            kernel = getattr(raw, op)
            key = ("x", "y")
            t = raw.Tile(input=v, multiples=multiples)
            by_one = kernel(**dict(zip(key, (t, tf.constant(3.1, dtype)), strict=True)))
            by_each = raw.Neg(x=kernel(**dict(zip(key, (w, t), strict=True))))
            found += [kernel(x=by_one, y=x), kernel(x=x, y=by_each), raw.AddN(inputs=[by_one, x])]
        return found

    random = np.random.default_rng(7)
    given = [
        tf.constant((random.standard_normal(shape) * 10.0 ** random.integers(-20, 20)), dtype)
        for shape in (narrow, narrow, wide)
    ]
    function = step.get_concrete_function(*given)
    item = GrapplerItem.from_concrete_function(function)
    done = run_pass(item, NarrowBroadcasts(least_bytes=0))
    assert not [node for node in done.graph if node.op == "Tile"]
    again = build_function(done.graph_def, function)(*given)
    for one, other in zip(function(*given), again, strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()


def test_the_gradient_of_a_normalization_spreads_no_means() -> None:
    """Batch normalization as Keras has it, rewritten where TensorFlow's own settings run it."""
    import tensorflow as tf

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def step(x: Any, dy: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            mean, variance = tf.nn.moments(x, (0, 1, 2), keepdims=True)
            y = tf.nn.batch_normalization(x, mean, variance, None, None, 1e-3)
        return tape.gradient(y, x, dy)

    random = np.random.default_rng(3)
    given = [tf.constant(random.standard_normal((4, 16, 16, 8)), tf.float32) for _ in range(2)]
    function = step.get_concrete_function(*given)
    result = memopt.optimize(function, level="ordered")
    (done,) = (one for one in result.report.passes if one.name == "narrow-broadcasts")
    assert done.edits
    again = build_function(result.graph_def, function)(*given)
    assert np.array_equal(again, function(*given))
    runtime = result.report.runtime
    assert runtime is not None
    assert runtime.after.step_peak_bytes < runtime.before.step_peak_bytes
