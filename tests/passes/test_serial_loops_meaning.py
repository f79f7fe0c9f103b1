"""Serial loops, run for real: the same bits, gradients included, and turns that do not pile up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from support.one_pass import run_pass
from support.ordering import order_step
from support.steps import tiny_step

from memopt.context import Context
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.passes.ordering import Ordering
from memopt.passes.serial_loops import SerialLoops
from memopt.runtime.entry import verify
from memopt.runtime.process import step_process
from memopt.runtime.program import Program
from memopt.runtime.settings import Settings
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef

PASS = SerialLoops()
ROWS = 50_000
TURNS = 6
_THREADS = 4
_SMALL_TENSOR_BYTES = 64


@pytest.mark.slow
def test_a_training_step_with_loops_keeps_its_bits() -> None:
    step = tiny_step("lstm")
    done = run_pass(GrapplerItem.from_concrete_function(step.function), PASS)
    assert len(done.edits) == 4
    program = Program.from_concrete_function(step.function, step.inputs)
    assert verify(program, done.graph_def, steps=3, timing_rounds=0).equal
    as_is = verify(program, done.graph_def, steps=2, timing_rounds=0, mode="as-is")
    assert as_is.within_tolerance


@pytest.mark.slow
def test_an_ordered_step_with_loops_has_the_planned_peak_whatever_runs_at_once() -> None:
    step = tiny_step("lstm")
    serial = run_pass(GrapplerItem.from_concrete_function(step.function), PASS)
    item = GrapplerItem.from_concrete_function(step.function)
    ordered = order_step(replace(item, graph_def=serial.graph_def), Ordering())
    program = Program.from_concrete_function(step.function, step.inputs)
    assert verify(program, ordered.graph_def, steps=2, timing_rounds=0).equal
    alone, at_once = _peaks(program.replace_graph(ordered.graph_def))
    # With the bodies in order the loops need less than when the main graph was ordered.
    planned = _planned_peak(replace(item, graph_def=ordered.graph_def))
    # What a test gives, a byte, goes when all that it decides has been decided.
    assert alone == pytest.approx(planned, rel=0.001)
    # A thread may still hold the small tensors that its operation has read when others go on.
    assert planned * 0.999 <= at_once <= planned * 1.001 + _THREADS * _SMALL_TENSOR_BYTES
    assert planned <= ordered.step_peak_bytes


@pytest.mark.parametrize("turns_at_once", [pytest.param(1, marks=pytest.mark.slow), 10])
def test_a_frame_and_its_gradient_keep_their_bits(turns_at_once: int) -> None:
    """Stacks hold what the turns computed until those of the gradient read it."""
    graph_def, fetch = _frame_with_gradient(turns_at_once)
    item = GrapplerItem(graph_def, feed=("x:0",), fetch=fetch)
    done = run_pass(item, PASS)
    assert bool(done.edits) == (turns_at_once > 1)
    frames = [node for node in done.graph if node.op == "Enter"]
    assert len({node.attributes["frame_name"].s for node in frames}) == 2
    assert all(node.attributes["parallel_iterations"].i == 1 for node in frames)
    values = {"x:0": np.linspace(0.1, 1.0, ROWS, dtype=np.float32)}
    program = Program.from_item(item, values)
    for mode in ("exact", "as-is"):
        run = verify(program, done.graph_def, steps=2, timing_rounds=0, mode=mode)
        assert run.equal


@pytest.mark.slow
def test_turns_that_could_run_together_do_not_pile_up() -> None:
    """A counter runs ahead of a slow sum; what the turns make waits for it."""

    def step(x: Any) -> Any:
        def turn(number: Any, total: Any) -> tuple[Any, Any]:
            large = tf.cumsum(x + tf.cast(number, tf.float32))
            return number + 1, total + tf.reduce_sum(tf.sort(large))

        return tf.while_loop(lambda number, _: number < TURNS, turn, (0, 0.0))[1]

    signature = tf.TensorSpec((ROWS,), tf.float32)
    concrete = tf.function(step, autograph=False).get_concrete_function(signature)
    serial = run_pass(GrapplerItem.from_concrete_function(concrete), PASS).graph_def
    x = np.ones(ROWS, np.float32)
    program = Program.from_concrete_function(concrete, [x])
    assert verify(program, serial, steps=2, timing_rounds=0).equal
    before = _peaks(program, [4])
    after = _peaks(program.replace_graph(serial), [1, 4])
    assert max(after) <= min(before)
    assert max(after) < 4.5 * ROWS * 4


def _planned_peak(item: GrapplerItem) -> int:
    """What the simulation of an ordered graph says, in bytes on top of what is held."""
    fed, fetched = (
        frozenset(name.partition(":")[0] for name in names) for names in (item.feed, item.fetch)
    )
    context = Context(Properties.of(item), fed=fed, fetched=fetched)
    order = Ordering(sequencer="program").order(from_graph_def(item.graph_def), context)
    assert order is not None
    return order.step_peak_bytes


def _peaks(program: Program, threads: Sequence[int] = (1, _THREADS)) -> list[int]:
    """The peaks of steps in processes with so many operations at once."""
    peaks = []
    for count in threads:
        with step_process(program, Settings(inter_op_threads=count)) as process:
            process.run(2)
            peaks.append(process.measure().step_peak_bytes)
    return peaks


def _frame_with_gradient(turns_at_once: int) -> tuple[GraphDef, tuple[str, ...]]:
    """A loop of TensorFlow 1 and its gradient, which is another one."""
    with tf.Graph().as_default() as graph:
        uses_functions = tf.compat.v1.control_flow_v2_enabled()
        tf.compat.v1.disable_control_flow_v2()
        x = tf.compat.v1.placeholder(tf.float32, (ROWS,), name="x")
        _, y = tf.compat.v1.while_loop(
            lambda number, _: number < TURNS,
            lambda number, value: (number + 1, tf.sin(value) * value),
            (0, x),
            parallel_iterations=turns_at_once,
        )
        (gradient,) = tf.compat.v1.gradients(y, x)
        fetch = (y.name, gradient.name)
        if uses_functions:
            tf.compat.v1.enable_control_flow_v2()
    return graph.as_graph_def(), fetch
