"""Steps without their barriers, run for real: the same bits, and less memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from support.barriers import SIDE, SINK, barrier_graph
from support.one_pass import run_pass
from support.scheduling import run_sums
from support.steps import tiny_step

from memopt.api import rewrite
from memopt.graph.graphdef import to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.verify import verify_graph
from memopt.item import GrapplerItem
from memopt.models import SESSION_MODELS, TINY
from memopt.passes.bypass_barriers import BypassBarriers
from memopt.runtime.entry import verify
from memopt.runtime.program import Program

if TYPE_CHECKING:
    import numpy.typing as npt
    from support.one_pass import Done
    from tensorflow.core.framework.graph_pb2 import GraphDef

    Array = npt.NDArray[Any]

PASS = BypassBarriers()
GROUPS = BypassBarriers(groups=True)
RANDOM_SEEDS = range(24)


@pytest.mark.parametrize(
    "name",
    [
        "mlp",
        pytest.param("vgg16", marks=pytest.mark.slow),
        pytest.param("mobilenetv2", marks=pytest.mark.slow),
    ],
)
def test_training_steps_keep_their_bits(name: str) -> None:
    step = tiny_step(name)
    done = run_pass(GrapplerItem.from_concrete_function(step.function), PASS)
    assert done.edits
    program = Program.from_concrete_function(step.function, step.inputs)
    assert verify(program, done.graph_def, steps=3, timing_rounds=0).equal


def test_a_step_of_tensorflow_1_keeps_its_bits_without_groups() -> None:
    step = SESSION_MODELS["convnet_v1"](**TINY["convnet_v1"])
    item = GrapplerItem(step.graph_def, feed=step.feed, fetch=step.fetch)
    done = run_pass(item, GROUPS)
    assert done.edits
    program = Program.from_item(
        item,
        dict(zip(step.feed, step.inputs, strict=True)),
        seed=step.seed,
        initializer=step.initializer,
    )
    assert verify(program, done.graph_def, steps=3, timing_rounds=0).equal


# --- random graphs --------------------------------------------------------------------------------


def values_of(graph_def: GraphDef, seed: int) -> dict[str, Array]:
    """What is fed and what variables hold before the step."""
    random = np.random.default_rng(seed)
    return {
        node.name: random.standard_normal((SIDE, SIDE)).astype(np.float32)
        for node in graph_def.node
        if node.op in ("Placeholder", "VarHandleOp", "VariableV2")
    }


def with_results(graph_def: GraphDef) -> tuple[GraphDef, list[str]]:
    """The graph with a read of every variable after the step."""
    extended = type(graph_def)()
    extended.CopyFrom(graph_def)
    names = []
    for node in graph_def.node:
        if node.op not in ("VarHandleOp", "VariableV2"):
            continue
        is_resource = node.op == "VarHandleOp"
        read = extended.node.add(
            name=f"end/{node.name}",
            op="ReadVariableOp" if is_resource else "Identity",
            input=[node.name, f"^{SINK}"],
        )
        read.attr["dtype" if is_resource else "T"].type = 1
        names.append(f"{read.name}:0")
    return extended, names


@pytest.mark.parametrize("kind", ["VarHandleOp", "VariableV2"])
def test_random_steps_keep_their_bits(kind: str) -> None:
    """With one operation at a time and with several, so that what is not in order may show."""
    edits = 0
    for seed in RANDOM_SEEDS:
        graph_def, fetch = with_results(barrier_graph(seed, kind))
        nodes = (name.partition(":")[0] for name in fetch)
        done = run_pass(GrapplerItem(graph_def, feed=("x:0",), fetch=(SINK, *nodes)), GROUPS)
        edits += len(done.edits)
        values = values_of(graph_def, seed)
        (expected,) = run_sums(graph_def, fetch, values)
        for threads in (1, 4):
            (found,) = run_sums(done.graph_def, fetch, values, threads=threads)
            for before, after in zip(expected, found, strict=True):
                assert after.tobytes() == before.tobytes(), f"graph {seed}, {threads} threads"
    assert edits > 60


# --- gradients through what is bypassed -----------------------------------------------------------


def doubled_gradient() -> Any:
    """A function with a gradient of its own: three times what it should be."""

    @tf.custom_gradient  # type: ignore[untyped-decorator] # TensorFlow has no types
    def same(x: tf.Tensor, y: tf.Tensor) -> Any:
        return (tf.identity(x), tf.identity(y)), lambda dx, dy: (3.0 * dx, 3.0 * dy)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def total(x: tf.Tensor) -> tf.Tensor:
        first, second = same(tf.sin(x), tf.cos(x))
        return tf.reduce_sum(first * second)

    return total.get_concrete_function(tf.TensorSpec([4]))


def test_a_gradient_of_its_own_stays_where_somebody_can_ask_for_it() -> None:
    function = doubled_gradient()
    done = run_pass(GrapplerItem.from_concrete_function(function), PASS)
    assert not done.edits
    assert done.declined
    rewritten = rewrite(function, graph_def=done.graph_def)
    x = tf.constant([0.1, 0.2, 0.3, 0.4])
    gradients = []
    for call in (function, rewritten):
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = call(x)
        gradients.append(tape.gradient(result, x).numpy())
    np.testing.assert_allclose(gradients[0], 3 * np.cos(2 * x.numpy()), rtol=1e-5)
    assert gradients[1].tobytes() == gradients[0].tobytes()


# --- gains ----------------------------------------------------------------------------------------

LAYERS = 8
ROWS = 512
TENSOR_BYTES = ROWS * ROWS * 4
LOSS_BYTES = 4


def update_of_all() -> Any:
    """A step that computes one large update after the other and applies them when all are there."""
    random = np.random.default_rng(0)
    weights = [tf.Variable(tf.zeros([ROWS, ROWS])) for _ in range(LAYERS)]
    factor = tf.Variable(random.standard_normal((ROWS, ROWS)).astype(np.float32) * 0.05)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(x: tf.Tensor) -> tf.Tensor:
        updates = []
        for _ in range(LAYERS):
            x = tf.tanh(tf.matmul(x, factor))
            updates.append(tf.matmul(x, x, transpose_a=True))
            # One after the other, so that the peak does not depend on what TensorFlow runs first.
            with tf.control_dependencies([updates[-1]]):
                x = tf.identity(x)
        for weight, update in zip(weights, tf.raw_ops.IdentityN(input=updates), strict=True):
            weight.assign_sub(update)
        return tf.reduce_sum(x)

    concrete = step.get_concrete_function(tf.TensorSpec([16, ROWS]))
    concrete.keep_alive = (*weights, factor)
    return concrete


def in_order(done: Done) -> GraphDef:
    """The graph in which each update runs before what comes next; with the barrier, a cycle."""
    rewriter = Rewriter(done.graph)
    with rewriter.edit("an order"):
        for node in done.graph:
            if node.op == "AssignSubVariableOp":
                for later in node.inputs[1].node.control_users:
                    rewriter.add_control_input(later, node)
    verify_graph(done.graph)
    return to_graph_def(done.graph)


def test_the_measured_peak_can_fall_by_what_the_edit_releases() -> None:
    step = update_of_all()
    done = run_pass(GrapplerItem.from_concrete_function(step), PASS)
    assert done.released_bytes == (LAYERS - 1) * TENSOR_BYTES
    x = np.random.default_rng(1).standard_normal((16, ROWS)).astype(np.float32)
    program = Program.from_concrete_function(step, [x])
    verification = verify(program, in_order(done), steps=2, timing_rounds=0)
    assert verification.equal
    before, after = (
        verification.original.step_peak_bytes,
        verification.rewritten.step_peak_bytes,
    )
    assert before >= LAYERS * TENSOR_BYTES
    # The loss may be there already while the updates wait.
    assert 0 <= before - after - done.released_bytes <= LOSS_BYTES
