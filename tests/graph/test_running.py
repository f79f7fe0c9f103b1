"""What runs in a function although nobody asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import tensorflow as tf

from memopt.graph.graphdef import from_graph_def
from memopt.graph.running import roots_of
from memopt.item import GrapplerItem

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[tf.Tensor], tf.Tensor]


def branch(x: tf.Tensor) -> tf.Tensor:
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.tanh(x), lambda: tf.sigmoid(x))


def loop(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda v: tf.reduce_sum(v) > 0, lambda v: (v - 1,), (x,))[0]


def draw(x: tf.Tensor) -> tf.Tensor:
    return x + tf.random.normal(x.shape, seed=1)


def plain(x: tf.Tensor) -> tf.Tensor:
    return tf.tanh(x) * 2


def called(step: Step) -> Step:
    function: Step = tf.function(step, autograph=False)
    return function


def unasked_ops(step: Step, *, in_function: bool = True) -> list[str]:
    """The ops of what runs in a function that computes the step and gives something else."""

    def whole(x: tf.Tensor) -> tf.Tensor:
        step(tf.sin(x))
        return tf.cos(x)

    function = tf.function(whole, autograph=False).get_concrete_function(tf.TensorSpec((4,)))
    item = GrapplerItem.from_concrete_function(function)
    graph = from_graph_def(item.graph_def)
    fetched = frozenset(name.partition(":")[0] for name in item.fetch)
    roots = roots_of(graph, fetched, (), in_function=in_function)
    return [graph[name].op for name in sorted(roots - fetched)]


@pytest.mark.parametrize(
    ("step", "ops"),
    [
        (plain, []),
        (branch, ["StatelessIf"]),
        (loop, ["StatelessWhile"]),
        (draw, ["RandomStandardNormal"]),
        (called(plain), []),
        (called(branch), ["PartitionedCall"]),
        (called(called(loop)), ["PartitionedCall"]),
        (called(called(plain)), []),
    ],
)
def test_control_flow_and_effects_run_though_nobody_needs_them(step: Step, ops: list[str]) -> None:
    assert unasked_ops(step) == ops


def test_who_runs_a_graph_for_its_fetches_leaves_them_out() -> None:
    assert unasked_ops(branch, in_function=False) == []
