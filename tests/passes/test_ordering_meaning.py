"""Ordered steps, run for real: the same bits, and the peak that was planned, in every process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from support.ordering import order_step
from support.steps import tiny_step

from memopt.item import GrapplerItem
from memopt.models import SESSION_MODELS, TINY
from memopt.passes.ordering import Ordering
from memopt.runtime.entry import verify
from memopt.runtime.process import step_process
from memopt.runtime.program import Program
from memopt.runtime.settings import Settings
from memopt.runtime.values import load_values

if TYPE_CHECKING:
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

PROCESSES = 2


def calling_step() -> ConcreteFunction:
    """Two calls of a function whose second result takes long and is asked for last."""

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def called(value: Any) -> Any:
        return tf.tanh(value), tf.sin(tf.cos(tf.exp(value)) * value) * value, tf.exp(-value)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(samples: Any) -> Any:
        first, second, third = called(samples)
        fourth, fifth, sixth = called(tf.tile(first, (1, 2)))
        wide = tf.concat([fourth, sixth, tf.sigmoid(fourth)], 1)
        return tf.reduce_sum(wide), tf.reduce_sum(fifth), second + third

    found: ConcreteFunction = step.get_concrete_function(tf.TensorSpec((256, 64)))
    return found


def test_a_convolution_that_onednn_merges_with_its_bias_may_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TensorFlow ends the process if the two that it merges wait for the same by control."""

    def step(pictures: Any, filters: Any, bias: Any) -> Any:
        waves, shift = tf.sin(pictures), tf.exp(bias)
        made = tf.nn.bias_add(tf.nn.conv2d(waves, filters, 1, "SAME"), shift)
        return tf.reduce_sum(waves), made

    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    shapes = [(2, 16, 16, 8), (3, 3, 8, 8), (8,)]
    random = np.random.default_rng(0)
    values = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    specs = [tf.TensorSpec(shape) for shape in shapes]
    concrete = tf.function(step, autograph=False).get_concrete_function(*specs)
    program = Program.from_concrete_function(concrete, values)
    ordered = order_step(program.item, Ordering(sequencer="program"))
    assert any(node.name.endswith("/gate") for node in ordered.graph_def.node)
    settings = Settings("as-is", inter_op_threads=1, grappler=False)
    found = []
    for graph_def in (program.item.graph_def, ordered.graph_def):
        with step_process(program.replace_graph(graph_def), settings) as process:
            outputs = load_values(process.run(1)[0])
            found.append([outputs[name].tobytes() for name in sorted(outputs)])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "sequencer",
    [
        "late_updates",
        pytest.param("list", marks=pytest.mark.slow),
        pytest.param("postorder", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", ["mlp", pytest.param("bert", marks=pytest.mark.slow)])
def test_training_steps_keep_their_bits(name: str, sequencer: str) -> None:
    step = tiny_step(name)
    item = GrapplerItem.from_concrete_function(step.function)
    ordered = order_step(item, Ordering(sequencer=sequencer))
    assert ordered.edits
    program = Program.from_concrete_function(step.function, step.inputs)
    assert verify(program, ordered.graph_def, steps=3, timing_rounds=0).equal


def test_an_ordered_loop_keeps_its_bits() -> None:
    step = tiny_step("lstm")
    ordered = order_step(GrapplerItem.from_concrete_function(step.function), Ordering())
    program = Program.from_concrete_function(step.function, step.inputs)
    assert verify(program, ordered.graph_def, steps=3, timing_rounds=0).equal


@pytest.mark.slow
@pytest.mark.usefixtures("real_processes")
def test_the_peak_is_the_planned_one_in_every_process() -> None:
    """To the byte, convolutions with their scratch memory included."""
    step = tiny_step("unet")
    ordered = order_step(GrapplerItem.from_concrete_function(step.function), Ordering())
    program = Program.from_concrete_function(step.function, step.inputs)
    runs = [verify(program, ordered.graph_def, steps=1, timing_rounds=0) for _ in range(PROCESSES)]
    assert all(run.equal for run in runs)
    peaks = {run.rewritten.step_peak_bytes for run in runs}
    assert len(peaks) == 1
    assert peaks.pop() == pytest.approx(ordered.step_peak_bytes, rel=0.001)
    assert all(run.rewritten.step_peak_bytes < run.original.step_peak_bytes for run in runs)


@pytest.mark.parametrize("smallest_bytes", [0, pytest.param(4096, marks=pytest.mark.slow)])
def test_onednn_and_grappler_can_fuse_what_is_ordered(smallest_bytes: int) -> None:
    """A cycle between a convolution and its bias would make the call fail."""
    step = tiny_step("unet")
    item = GrapplerItem.from_concrete_function(step.function)
    ordered = order_step(item, Ordering(smallest_bytes=smallest_bytes))
    program = Program.from_concrete_function(step.function, step.inputs)
    run = verify(program, ordered.graph_def, steps=2, timing_rounds=0, mode="as-is")
    # What Grappler fuses, and with it the last bits, depends on control edges.
    assert all((d.max_abs_difference or 0) <= 1e-6 * d.magnitude for d in run.differences)


def test_a_session_does_not_run_what_it_did_not_run_before() -> None:
    """An edge from an operation that sets the first values would set them in every step."""
    step = SESSION_MODELS["convnet_v1"](**TINY["convnet_v1"])
    item = GrapplerItem(step.graph_def, feed=step.feed, fetch=step.fetch)
    ordered = order_step(item, Ordering())
    assert ordered.edits
    program = Program.from_item(
        item,
        dict(zip(step.feed, step.inputs, strict=True)),
        seed=step.seed,
        initializer=step.initializer,
    )
    assert verify(program, ordered.graph_def, steps=3, timing_rounds=0).equal


@pytest.mark.slow
@pytest.mark.usefixtures("real_processes")
def test_what_comes_after_a_call_waits_for_all_of_it() -> None:
    """Its operations take its place when the step runs, and nothing else holds them together."""
    step = calling_step()
    ordered = order_step(GrapplerItem.from_concrete_function(step), Ordering())
    program = Program.from_concrete_function(step, [np.ones((256, 64), np.float32)])
    run = verify(program, ordered.graph_def, steps=1, timing_rounds=0)
    assert run.equal
    assert run.rewritten.step_peak_bytes == pytest.approx(ordered.step_peak_bytes, abs=64)
    nodes = {node.name: node for node in ordered.graph_def.node}
    calls = [node.name for node in ordered.graph_def.node if node.op.endswith("PartitionedCall")]
    read = {name for node in nodes.values() for name in node.input if not name.startswith("^")}
    results = [name for name in read if name.partition(":")[0] in calls]
    assert calls
    assert all(
        {nodes[reader].op for reader in nodes if result in nodes[reader].input} == {"Identity"}
        for result in results
    )
