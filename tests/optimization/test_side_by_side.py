"""What functions' bodies have in use because their operations run side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from memopt.buffers.kernel_call import Runtime
from memopt.item import GrapplerItem
from memopt.optimizer import MemoryOptimizer

if TYPE_CHECKING:
    from memopt.result import OptimizationResult
ROW_BYTES = 400_000
"""A tensor of 100,000 numbers; handles and counters together do not come near."""


AMPLE = "99MB"


def with_two_sums(turns_at_once: int, depth: int = 1) -> GrapplerItem:
    """A loop, maybe in others, of which each turn makes two rows that it only adds up."""
    import tensorflow as tf

    def turn(n: Any, x: Any) -> tuple[Any, Any]:
        return n + 1, x + (tf.reduce_sum(tf.exp(x)) + tf.reduce_sum(tf.cos(x)))

    def nested(x: Any, level: int) -> Any:
        def body(n: Any, x: Any) -> tuple[Any, Any]:
            return n + 1, nested(x, level - 1)

        return tf.while_loop(
            lambda n, _: n < 4,
            body if level > 1 else turn,
            (0, x),
            parallel_iterations=turns_at_once,
        )[1]

    function = tf.function(lambda x: nested(x, depth), autograph=False)
    signature = tf.TensorSpec((ROW_BYTES // 4,), tf.float32)
    return GrapplerItem.from_concrete_function(function.get_concrete_function(signature))


def optimized(item: GrapplerItem, threads: int, **options: Any) -> OptimizationResult:
    runtime = Runtime(2, inter_op_threads=threads)
    return MemoryOptimizer("ordered", runtime=runtime, **options).optimize(None, item)


def rows_of(item: GrapplerItem, threads: int, **options: Any) -> int:
    memory = optimized(item, threads, **options).report.runtime
    assert memory is not None
    return memory.after.step_peak_bytes // ROW_BYTES


@pytest.mark.parametrize("depth", [1, 2])
def test_what_a_turn_may_do_at_once_is_there_at_once(depth: int) -> None:
    item = with_two_sums(1, depth)
    assert rows_of(item, 1) == rows_of(item, 2) == 2
    assert rows_of(item, 2, budget=AMPLE) == 3


def test_each_of_turns_that_run_at_once_may_do_so() -> None:
    """Of the second one a row counts anyway."""
    assert rows_of(with_two_sums(10), 2, budget=AMPLE) == 4


@pytest.mark.parametrize("turns_at_once", [1, 10])
def test_a_budget_holds_with_all_that_runs_side_by_side(turns_at_once: int) -> None:
    item = with_two_sums(turns_at_once)
    least = optimized(item, 1).report.runtime
    assert least is not None
    most_bytes = least.after.peak_bytes
    found = optimized(item, 2, budget=str(most_bytes)).report.runtime
    assert found is not None
    assert found.after.peak_bytes <= most_bytes
