"""A step in a fresh process: its results, its exact memory, and how failures are told."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from memopt.errors import ExecutionError, InvalidGraphError
from memopt.item import GrapplerItem
from memopt.runtime.process import step_process
from memopt.runtime.program import Program
from memopt.runtime.settings import Settings
from memopt.runtime.values import load_values

if TYPE_CHECKING:
    from pathlib import Path

    from memopt.runtime.replay import Measurement

_SIZE = 256
_MATRIX_BYTES = _SIZE * _SIZE * 4
_HANDLE_BYTES = 200
"""What TensorFlow allocates for the handle of a resource variable."""


def _matrix(seed: int, size: int = _SIZE) -> Any:
    return np.random.default_rng(seed).standard_normal((size, size)).astype(np.float32)


def _products(x: Any, weight: Any) -> Any:
    """Three matrices of the step's own are alive while each of the last two is computed."""
    first = tf.matmul(x, weight, name="first")
    second = tf.matmul(first, weight, name="second")
    third = tf.matmul(second, weight, name="third")
    return tf.matmul(third, first, name="fourth")


@pytest.fixture(scope="module")
def products() -> Program:
    weight = tf.Variable(_matrix(0), name="weight")
    step = tf.function(lambda x: _products(x, weight)).get_concrete_function(
        tf.TensorSpec([_SIZE, _SIZE])
    )
    return Program.from_concrete_function(step, [_matrix(1)])


@pytest.fixture(scope="module")
def products_run(products: Program) -> tuple[list[Any], Measurement, Any, tuple[int, ...]]:
    with step_process(products) as process:
        paths = process.run(2)
        outputs = [load_values(path) for path in paths]
        return outputs, process.measure(), process.variables(), process.time(3)


def test_every_step_gives_its_outputs(products: Program, products_run: Any) -> None:
    outputs, _, variables, durations_ns = products_run
    (name,) = products.item.fetched_tensors

    x, weight = products.inputs["x:0"], next(iter(products.variables.values()))
    expected = x @ weight @ weight @ weight @ (x @ weight)
    rounding = 1e-4 * np.abs(expected).max()
    np.testing.assert_allclose(outputs[0][name], expected, rtol=1e-3, atol=rounding)
    assert outputs[0][name].tobytes() == outputs[1][name].tobytes()
    assert [v.tobytes() for v in variables.values()] == [weight.tobytes()]
    assert len(durations_ns) == 3
    assert min(durations_ns) > 0


def test_memory_is_what_it_is_by_hand(products_run: Any) -> None:
    _, measurement, *_ = products_run

    assert measurement.held_bytes == 2 * _MATRIX_BYTES + _HANDLE_BYTES
    assert measurement.step_peak_bytes == 3 * _MATRIX_BYTES
    assert measurement.peak_bytes == 5 * _MATRIX_BYTES + _HANDLE_BYTES


def test_live_set_at_the_peak_has_names(products: Program, products_run: Any) -> None:
    _, measurement, *_ = products_run
    (variable,) = products.variables

    assert Counter(buffer.operation for buffer in measurement.live_at_peak) == Counter(
        [f"variable {variable}", "VarHandleOp", "input x:0", "first", "second", "third"]
    )
    assert sum(b.size_bytes for b in measurement.live_at_peak) == measurement.peak_bytes


def test_timeline_follows_the_step(products_run: Any) -> None:
    _, measurement, *_ = products_run

    order = [(e.kind, e.operation) for e in measurement.timeline if e.size_bytes == _MATRIX_BYTES]
    assert order[:5] == [
        ("allocate", "first"),
        ("allocate", "second"),
        ("allocate", "third"),
        ("free", "second"),
        ("allocate", "fourth"),
    ]
    assert max(e.in_use_bytes for e in measurement.timeline) == measurement.peak_bytes


def _reference_item() -> GrapplerItem:
    """One step of gradient descent on a variable of TensorFlow 1."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [8, _SIZE], name="x")
        v1 = tf.compat.v1
        weight = v1.get_variable(
            "w", [_SIZE, 4], initializer=v1.ones_initializer(), use_resource=False
        )
        loss = tf.reduce_sum(tf.matmul(x, weight), name="loss")
        v1.train.GradientDescentOptimizer(0.5).minimize(loss, name="train")
        v1.global_variables_initializer()
    return GrapplerItem(graph.as_graph_def(), feed=("x:0",), fetch=("loss:0", "train"))


def test_reference_variables_run_in_a_session() -> None:
    program = Program.from_item(_reference_item())
    assert program.in_session
    with step_process(program) as process:
        losses = [load_values(path)["loss:0"] for path in process.run(2)]
        measurement = process.measure()
        after = process.variables()["w"]

    x, weight = program.inputs["x:0"], program.variables["w"]
    gradient = np.repeat(x.sum(axis=0)[:, None], 4, axis=1)
    np.testing.assert_allclose(losses[0], (x @ weight).sum(), rtol=1e-4)
    np.testing.assert_allclose(losses[1], (x @ (weight - 0.5 * gradient)).sum(), rtol=1e-4)
    np.testing.assert_allclose(after, weight - gradient, rtol=1e-4, atol=1e-5)
    # Besides the variable and the input there are only small constants.
    constants_bytes = measurement.held_bytes - x.nbytes - weight.nbytes
    assert 0 <= constants_bytes < 100
    assert "input x:0" in {buffer.operation for buffer in measurement.live_at_peak}


def test_initializer_sets_what_is_not_given() -> None:
    program = Program.from_item(_reference_item(), initializer="init")
    assert not program.variables
    with step_process(program) as process:
        (path,) = process.run(1)
        loss = load_values(path)["loss:0"]
    np.testing.assert_allclose(loss, program.inputs["x:0"].sum() * 4, rtol=1e-4)


def _handle_item() -> GrapplerItem:
    """Variables as they are in a file, a temporary variable, and a message to standard output."""
    raw = tf.raw_ops
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
        handle = raw.VarHandleOp(dtype=tf.float32, shape=[4], shared_name="v", name="v")
        again = raw.VarHandleOp(dtype=tf.float32, shape=[4], shared_name="v", name="again")
        half = raw.VarHandleOp(dtype=tf.bfloat16, shape=[2], name="half")
        text = raw.VarHandleOp(dtype=tf.string, shape=[], name="text")
        noise = raw.PrintV2(input="to standard output", output_stream="stdout", name="noise")
        with tf.control_dependencies([noise]):
            temporary = raw.TemporaryVariable(shape=[4], dtype=tf.float32, var_name="t")
        started = raw.Assign(ref=temporary, value=x)
        total = raw.AssignAdd(ref=started, value=x)
        doubled = raw.DestroyTemporaryVariable(ref=total, var_name="t", name="doubled")
        raw.AssignAddVariableOp(resource=again, value=doubled, name="train")
        raw.AssignVariableOp(resource=handle, value=tf.zeros([4]), name="initialize")
        raw.ReadVariableOp(resource=half, dtype=tf.bfloat16, name="half_value")
        raw.ReadVariableOp(resource=text, dtype=tf.string, name="text_value")
    fetch = ("doubled:0", "half_value:0", "text_value:0", "train")
    return GrapplerItem(graph.as_graph_def(), feed=("x:0",), fetch=fetch)


def test_variables_of_a_file_run_as_a_function() -> None:
    x, start = np.arange(4, dtype=np.float32), np.full(4, 10, np.float32)
    values = {"again": start, "half": [1.5, -2.5], "text": b"a\0"}
    program = Program.from_item(_handle_item(), inputs={"x:0": x}, variables=values)
    assert not program.in_session

    with step_process(program) as process:
        outputs = load_values(process.run(2)[1])
        variables = process.variables()

    assert outputs["doubled:0"].tolist() == (2 * x).tolist()
    assert outputs["half_value:0"].tolist() == [1.5, -2.5]
    assert outputs["text_value:0"].item() == b"a\0"
    assert set(variables) == {"again", "half", "text"} or set(variables) == {"v", "half", "text"}
    assert (
        next(v for v in variables.values() if v.shape == (4,)).tolist() == (start + 4 * x).tolist()
    )


def test_failure_carries_tensorflows_message() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, None, name="x")
        tf.matmul(x, tf.ones([5, 5]), name="y")
    item = GrapplerItem(graph.as_graph_def(), feed=("x:0",), fetch=("y:0",))
    program = Program.from_item(item, inputs={"x:0": np.ones((2, 3), np.float32)})

    with step_process(program) as process, pytest.raises(ExecutionError) as caught:
        process.run(1)

    assert "InvalidArgumentError" in str(caught.value)
    assert "[2,3]" in str(caught.value)
    assert len(str(caught.value)) < 1100


def test_graph_that_cannot_run_is_invalid(products: Program) -> None:
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(products.item.graph_def)
    next(node for node in graph_def.node if node.name == "third").op = "NoSuchOperation"
    broken = products.replace_graph(graph_def)
    with (
        pytest.raises(InvalidGraphError, match="NoSuchOperation"),
        step_process(broken) as process,
    ):
        process.run(1)


def test_process_that_does_not_answer_is_killed(products: Program) -> None:
    settings = Settings(timeout_ns=10**8)
    with (
        pytest.raises(ExecutionError, match=r"no answer within 0\.1 s"),
        step_process(products, settings) as process,
    ):
        # Long enough, should the process be ready by the time that it is asked.
        process.run(100_000)


def test_process_that_dies_says_how(products: Program) -> None:
    with step_process(products) as process:
        process.kill()
        with pytest.raises(ExecutionError, match="ended with signal SIGKILL"):
            process.run(1)


def test_files_go_with_the_process(
    products: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with step_process(products) as process:
        assert list(tmp_path.iterdir())
        process.kill()
    assert list(tmp_path.iterdir()) == []
