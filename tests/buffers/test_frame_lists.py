"""Lists that loops of Switch and Merge fill and take apart: predicted as a real run has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import memopt
from memopt.buffers.assignment import buffer_graph_of
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties

SHEET = 64 * 64 * 4


def filled_and_emptied(
    turns: Any, *, keeps_state: bool = False, keeps_more: bool = False
) -> GrapplerItem:
    """A loop that puts sheets into a list, and one that takes them out again and adds them up.

    Args:
        turns: How many turns, or the name of a tensor that says so.
        keeps_state: Whether each turn keeps what it is given, not what it makes.
        keeps_more: Whether it puts something into a list of which nobody takes anything.
    """
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util

    was_on, control_flow_util.ENABLE_CONTROL_FLOW_V2 = (
        control_flow_util.ENABLE_CONTROL_FLOW_V2,
        False,
    )
    try:
        graph = tf.Graph()
        with graph.as_default():
            x = tf.compat.v1.placeholder(tf.float32, (64, 64), name="x")
            last = (
                turns if isinstance(turns, int) else tf.compat.v1.placeholder(tf.int32, (), turns)
            )
            empty = tf.raw_ops.EmptyTensorList(
                element_shape=[64, 64], max_num_elements=-1, element_dtype=tf.float32
            )

            def fill(turn: Any, state: Any, sheets: Any, *unread: Any) -> Any:
                made = tf.sin(state)
                kept = state if keeps_state else made
                pushed = tf.raw_ops.TensorListPushBack(input_handle=sheets, tensor=kept)
                more = [
                    tf.raw_ops.TensorListPushBack(input_handle=each, tensor=tf.exp(made))
                    for each in unread
                ]
                return turn + 1, made, pushed, *more

            unread = [tf.identity(empty)] if keeps_more else []
            turn, _, sheets, *_ = tf.compat.v1.while_loop(
                lambda turn, *_: turn < last, fill, (0, x, empty, *unread), parallel_iterations=1
            )

            def take(turn: Any, total: Any, sheets: Any) -> Any:
                sheets, sheet = tf.raw_ops.TensorListPopBack(
                    input_handle=sheets, element_shape=[64, 64], element_dtype=tf.float32
                )
                return turn + 1, total + tf.cos(tf.reshape(sheet, (64, 64))), sheets

            _, total, _ = tf.compat.v1.while_loop(
                lambda taken, *_: taken < turn, take, (0, x, sheets), parallel_iterations=1
            )
            tf.identity(total, name="total")
    finally:
        control_flow_util.ENABLE_CONTROL_FLOW_V2 = was_on
    feed = ("x:0",) if isinstance(turns, int) else ("x:0", f"{turns}:0")
    return GrapplerItem(graph.as_graph_def(), feed=feed, fetch=("total:0",))


@pytest.mark.parametrize("keeps_state", [False, True])
def test_what_lists_hold_is_that_of_a_real_run(keeps_state: bool) -> None:
    """Forty sheets, and what a turn has in use besides."""
    item = filled_and_emptied(40, keeps_state=keeps_state)
    result = memopt.optimize(item, level="ordered")
    assert result.report.runtime is not None
    predicted = result.report.runtime.after
    assert predicted.buffer_graph.lists_are_told
    assert 40 * SHEET <= predicted.step_peak_bytes <= 46 * SHEET
    verified = memopt.verify(item, result.graph_def, steps=1, timing_rounds=0)
    assert verified.equal
    measured = verified.rewritten.step_peak_bytes
    assert predicted.step_peak_bytes == pytest.approx(measured, rel=0.05)


def test_a_list_that_nobody_reads_is_there_until_its_loop_is_left() -> None:
    """A function runs what nothing needs, too, if control flow leads to it."""
    item = filled_and_emptied(40, keeps_more=True)
    peaks = []
    for each in (item, replace(item, in_function=True)):
        runtime = memopt.optimize(each, level="ordered").report.runtime
        assert runtime is not None
        peaks.append(runtime.before.step_peak_bytes)
    assert 40 * SHEET <= peaks[0] <= 46 * SHEET
    assert 80 * SHEET <= peaks[1] <= 86 * SHEET


def test_how_often_a_loop_runs_has_to_be_known() -> None:
    item = filled_and_emptied("turns")
    graph = from_graph_def(item.graph_def)
    found = buffer_graph_of(graph, Properties.of(item), fed=item.feed, fetched=item.fetch)
    assert not found.lists_are_told


def test_a_graph_without_loops_is_told() -> None:
    item = GrapplerItem.from_concrete_function(memopt.models.MODELS["mlp"]().function)
    found = buffer_graph_of(from_graph_def(item.graph_def), Properties.of(item))
    assert found.lists_are_told
