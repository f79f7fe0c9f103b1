"""To recompute in: of orders with the same peak that in which no gradient waits for its update."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tensorflow as tf
from support.plain_training import plain_training

from memopt.buffers.buffer_graph import check_sequence, simulate
from memopt.context import Context
from memopt.graph.backward import find_backward_nodes
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.optimizer import MemoryOptimizer
from memopt.sequencing.backward_needs import backward_need_bytes, fit_to_recompute
from memopt.sequencing.orders import LATE_UPDATES
from memopt.sequencing.step import Step
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.graph.graph import Graph, Node

WIDTH = 128
LAYERS = 24
SQUARE_BYTES = 4 * WIDTH * WIDTH


@cache
def item() -> GrapplerItem:
    """Layers whose results, weights and gradients are all of one size."""
    rng = np.random.default_rng(0)
    weights = [
        tf.Variable(rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) * 0.1)
        for _ in range(LAYERS)
    ]

    def loss_of(rows: tf.Tensor) -> tf.Tensor:
        for weight in weights:
            rows = tf.nn.relu(tf.matmul(rows, weight))
        return tf.reduce_mean(rows * rows)

    rows = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
    return GrapplerItem.from_concrete_function(
        plain_training("layers", loss_of, weights, rows).function
    )


def with_late_updates(step: Step, order: MemoryTimeline) -> MemoryTimeline:
    """The same order, but what takes gradients into weights comes last."""
    nodes = step.buffer_graph.nodes
    place = {number: position for position, number in enumerate(order.sequence)}
    is_update = [node.op == "Mul" and _is_taken_off(node) for node in nodes]
    keys = [(is_update[number], place.get(number, 0)) for number in range(len(nodes))]
    late = step.precedence.sorted_by(keys)
    check_sequence(step.buffer_graph, late)
    return simulate(step.buffer_graph, late)


def _is_taken_off(node: Node) -> bool:
    return any(user.op == "AssignSubVariableOp" for user in node.users)


def orders() -> tuple[Step, MemoryTimeline, MemoryTimeline]:
    graph = from_graph_def(item().graph_def)
    step = Step.in_context(graph, Context.of_item(item(), Properties.of(item())))
    early = simulate(step.buffer_graph, step.sequence(LATE_UPDATES))
    return step, early, with_late_updates(step, early)


def test_gradients_that_wait_are_what_a_backward_part_needs() -> None:
    step, early, late = orders()
    backward = step.graph.derived(find_backward_nodes)
    waiting_bytes = backward_need_bytes(late, backward) - backward_need_bytes(early, backward)
    # All gradients but that of the last layer and of the first, which are there in either order.
    assert waiting_bytes >= (LAYERS - 2) * SQUARE_BYTES
    assert backward_need_bytes(early, backward) <= 4 * SQUARE_BYTES


def test_of_orders_with_one_peak_that_without_waiting_gradients_is_taken() -> None:
    step, early, late = orders()
    assert late.peak_bytes == early.peak_bytes
    assert fit_to_recompute(step.graph, [late, early]) is early


@pytest.mark.parametrize(("above", "is_taken"), [(0.04, True), (0.06, False)])
def test_an_order_is_taken_that_is_a_little_higher_and_none_that_is_more(
    above: float, is_taken: bool
) -> None:
    step, early, late = orders()
    higher = replace(early, peak_bytes=early.peak_bytes + int(above * early.step_peak_bytes))
    assert (fit_to_recompute(step.graph, [late, higher]) is higher) is is_taken


@pytest.mark.parametrize("is_out_of_reach", [True, False])
def test_results_are_computed_again_in_an_order_that_is_fit_and_no_others(
    is_out_of_reach: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the lowest order keeps the limit there is nothing to compute again."""
    chosen: list[MemoryTimeline] = []

    def noted(graph: Graph, found: list[MemoryTimeline]) -> MemoryTimeline:
        chosen.append(fit_to_recompute(graph, found))
        return chosen[-1]

    monkeypatch.setattr("memopt.passes.rematerialization.fit_to_recompute", noted)
    _, early, _ = orders()
    share = 0.6 if is_out_of_reach else 1.0
    budget = early.held_bytes + int(early.step_peak_bytes * share)
    result = MemoryOptimizer("ordered", budget=budget).optimize(None, item())
    assert result.report.runtime is not None
    assert result.report.runtime.after.peak_bytes <= budget
    assert bool(chosen) is is_out_of_reach
