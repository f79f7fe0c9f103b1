"""What several loops keep at the same moment: side by side, or one pair after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from memopt.context import Context
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.loops.kept_at_once import kept_at_once_bytes
from memopt.optimization.best_attempt import Attempts
from memopt.optimization.prepared import Prepared
from memopt.optimizer import MemoryOptimizer
from memopt.passes import CheckpointLoops, Rematerialization
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, TURNS = 64, 20
PAIR_BYTES = TURNS * 4 * ROWS * ROWS
"""Each turn keeps a square of numbers; what is multiplied by is the same in all."""


def chain(start: tf.Tensor, weight: tf.Variable) -> tf.Tensor:
    """A loop that multiplies again and again."""
    given = tf.convert_to_tensor(weight)

    def turn(number: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return number + 1, tf.tanh(state @ given)

    _, state = tf.while_loop(lambda number, _: number < TURNS, turn, (0, start))
    return state


def beside(start: tf.Tensor, weights: list[tf.Variable]) -> list[Any]:
    """The gradient of each loop needs what all of them have computed."""
    with tf.GradientTape() as tape:
        loss = tf.square(tf.add_n([tf.reduce_sum(chain(start, weight)) for weight in weights]))
    return list(tape.gradient(loss, weights))


def behind(start: tf.Tensor, weights: list[tf.Variable]) -> list[Any]:
    with tf.GradientTape() as tape:
        state = start
        for weight in weights:
            state = chain(state, weight)
        loss = tf.reduce_sum(state)
    return list(tape.gradient(loss, weights))


def summed(start: tf.Tensor, weights: list[tf.Variable]) -> list[Any]:
    """The gradient of a sum needs none of its terms."""
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(chain(start, weight)) for weight in weights])
    return list(tape.gradient(loss, weights))


def apart(start: tf.Tensor, weights: list[tf.Variable]) -> list[Any]:
    gradients = []
    for weight in weights:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(chain(start, weight))
        gradients.append(tape.gradient(loss, weight))
    return gradients


def item_of(step: Callable[..., list[Any]], weights: int) -> GrapplerItem:
    variables = [tf.Variable(tf.ones((ROWS, ROWS))) for _ in range(weights)]
    function = tf.function(lambda start: step(start, variables), autograph=False)
    concrete = function.get_concrete_function(tf.TensorSpec((ROWS, ROWS)))
    return GrapplerItem.from_concrete_function(concrete)


@pytest.mark.parametrize(
    ("step", "at_once"),
    [(beside, 3), (behind, 3), (summed, 1), (apart, 1)],
    ids=["beside", "behind", "summed", "apart"],
)
def test_pairs_count_together_where_no_order_keeps_them_apart(
    step: Callable[..., list[Any]], at_once: int
) -> None:
    item = item_of(step, 3)
    properties = Properties.of(item)
    named = Context.of_item(item, properties).named
    kept = kept_at_once_bytes(from_graph_def(item.graph_def), named, properties)
    assert kept == at_once * PAIR_BYTES


def test_a_graph_without_loops_keeps_nothing() -> None:
    item = item_of(lambda start, weights: [start @ weights[0]], 1)
    properties = Properties.of(item)
    assert kept_at_once_bytes(from_graph_def(item.graph_def), {"x"}, properties) == 0


@pytest.mark.parametrize(("less_bytes", "are_first"), [(1, False), (PAIR_BYTES, True)])
def test_what_no_order_can_keep_is_not_planned_before_loops_run_in_segments(
    less_bytes: int, are_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    best_of = Attempts._best_of

    def recorded(self: Attempts, prepared: Prepared, *args: Any, **options: Any) -> Any:
        tried.append(prepared.source.edits)
        return best_of(self, prepared, *args, **options)

    monkeypatch.setattr(Attempts, "_best_of", recorded)
    item = item_of(beside, 3)
    before = MemoryOptimizer("ordered").optimize(None, item).report.runtime
    assert before is not None
    tried.clear()
    budget_bytes = before.after.peak_bytes - less_bytes
    result = MemoryOptimizer("ordered", budget=budget_bytes).optimize(None, item)
    assert result.report.runtime is not None
    assert result.report.runtime.keeps_budget
    assert bool(tried[0]) == are_first


def test_where_time_is_over_only_as_many_turns_run_again_as_seem_enough() -> None:
    """It takes no longer to write, and less time in each step, than all turns of all loops."""
    item = item_of(beside, 3)
    before = MemoryOptimizer("ordered").optimize(None, item).report.runtime
    assert before is not None
    budget_bytes = before.after.peak_bytes - PAIR_BYTES // 4
    hurried = Rematerialization(planning_seconds=1e-9)
    optimizer = MemoryOptimizer("ordered", budget=budget_bytes, rematerialization=hurried)
    report = optimizer.optimize(None, item).report
    assert report.runtime is not None
    assert report.runtime.keeps_budget
    (done,) = (
        each for each in report.graphs[0].passes if each.name.startswith(CheckpointLoops.name)
    )
    assert len(done.edits) == 1


@pytest.mark.parametrize("is_much_missing", [True, False])
def test_no_more_turns_run_again_than_have_to(
    is_much_missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though much is missing as the step is: it may need less for another reason, as its order."""
    if is_much_missing:
        monkeypatch.setattr(Prepared, "over_bytes", property(lambda _: 2 * PAIR_BYTES))
    item = item_of(beside, 1)
    report = MemoryOptimizer("ordered", budget=PAIR_BYTES).optimize(None, item).report
    assert report.runtime is not None
    assert report.runtime.keeps_budget
    (reason,) = (
        edit.reason
        for each in report.graphs[0].passes
        if each.name.startswith(CheckpointLoops.name)
        for edit in each.edits
    )
    assert 0 < int(reason.partition(" ")[0]) <= TURNS // 2
