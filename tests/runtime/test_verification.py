"""Rewrites are run for real: right ones are found equal, wrong ones are found out."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from memopt.errors import ExecutionError, InvalidGraphError, OptionsError, OutOfMemoryError
from memopt.item import GrapplerItem
from memopt.report.text import verdict
from memopt.runtime.program import Program
from memopt.runtime.settings import is_deterministic_here
from memopt.runtime.verification import verify_programs

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

_LAYERS = 6
_BATCH, _WIDTH = 512, 128
_ACTIVATION_BYTES = _BATCH * _WIDTH * 4


def _training_step() -> Any:
    """A deep network with dropout, trained by gradient descent with momentum."""
    random = np.random.default_rng(0)
    weights = [
        tf.Variable(random.standard_normal((_WIDTH, _WIDTH)).astype(np.float32) * 0.1)
        for _ in range(_LAYERS)
    ]
    moments = [tf.Variable(tf.zeros_like(weight)) for weight in weights]

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = x
            for weight in weights:
                y = tf.tanh(tf.nn.dropout(tf.matmul(y, weight), 0.1))
            loss = tf.reduce_mean(tf.square(y - 1.0))
        for weight, moment, gradient in zip(
            weights, moments, tape.gradient(loss, weights), strict=True
        ):
            moment.assign(0.9 * moment + gradient)
            weight.assign_sub(0.1 * moment)
        return loss

    concrete = step.get_concrete_function(tf.TensorSpec([_BATCH, _WIDTH]))
    concrete.keep_alive = (weights, moments)
    return concrete


@pytest.fixture(scope="module")
def program() -> Program:
    x = np.random.default_rng(1).standard_normal((_BATCH, _WIDTH)).astype(np.float32)
    return Program.from_concrete_function(_training_step(), [x])


def _copy(program: Program) -> GraphDef:
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(program.item.graph_def)
    return graph_def


def _products_in_order(program: Program) -> GraphDef:
    """Control edges alone: every matrix product waits for the one before it."""
    graph_def = _copy(program)
    products = [node for node in graph_def.node if node.op == "MatMul"]
    for before, after in itertools.pairwise(products):
        after.input.append(f"^{before.name}")
    return graph_def


def test_order_of_execution_changes_no_bit(program: Program) -> None:
    ordered = program.replace_graph(_products_in_order(program))

    verification = verify_programs(program, ordered, timing_rounds=2)

    assert verification.equal
    assert verification.within_tolerance
    assert verification.differences == ()
    inputs_bytes = sum(value.nbytes for value in program.inputs.values())
    variables_bytes = sum(value.nbytes for value in program.variables.values())
    for measured in (verification.original, verification.rewritten):
        # On top come handles, small constants, and the gradient of the mean, which TensorFlow
        # computes once and keeps.
        constants_bytes = measured.held_bytes - inputs_bytes - variables_bytes
        assert _ACTIVATION_BYTES <= constants_bytes < _ACTIVATION_BYTES + 10_000
        assert measured.step_peak_bytes > _LAYERS * _ACTIVATION_BYTES
        assert measured.timeline
        assert sum(b.size_bytes for b in measured.live_at_peak) == measured.peak_bytes
    timing = verification.timing
    assert timing is not None
    assert timing.lowest_ratio <= timing.ratio <= timing.highest_ratio
    assert verification.time_ratio == timing.ratio
    plain = json.loads(json.dumps(verification.to_json(), allow_nan=False))
    assert plain["original"]["peak_bytes"] == verification.original.peak_bytes
    assert "timeline" not in plain["original"]
    assert verification.to_json(timeline=True)["original"]["timeline"]


def test_changed_constant_is_found(program: Program) -> None:
    graph_def = _copy(program)
    rate = next(
        node
        for node in graph_def.node
        if node.op == "Const"
        and node.attr["value"].tensor.float_val
        and node.attr["value"].tensor.float_val[0] == np.float32(0.9)
    )
    rate.attr["value"].tensor.float_val[0] = 0.91

    verification = verify_programs(
        program, program.replace_graph(graph_def), steps=2, timing_rounds=0
    )

    assert not verification.equal
    assert not verification.within_tolerance
    assert verification.timing is None
    moment = next(d for d in verification.differences if d.role == "variable")
    assert moment.step == 2
    assert moment.differing_elements > 0
    assert moment.max_abs_difference


def test_dropped_update_is_found(program: Program) -> None:
    graph_def = _copy(program)
    update = next(n for n in graph_def.node if n.op == "AssignSubVariableOp")
    variable = update.input[0].partition(":")[0]
    del update.input[:]
    update.op = "NoOp"
    update.attr.clear()

    verification = verify_programs(
        program, program.replace_graph(graph_def), steps=1, timing_rounds=0
    )

    assert [d.name for d in verification.differences] == [variable]
    # An element whose gradient is zero may be left as it was.
    assert verification.differences[0].differing_elements > 0.99 * _WIDTH * _WIDTH


def test_as_is_accepts_what_grappler_alone_changes(program: Program) -> None:
    verification = verify_programs(program, program, steps=2, mode="as-is", timing_rounds=0)

    assert verification.mode == "as-is"
    assert verification.within_tolerance
    assert all(difference.tolerated for difference in verification.differences)


def test_as_is_finds_a_wrong_rewrite(program: Program) -> None:
    graph_def = _copy(program)
    next(node for node in graph_def.node if node.op == "Tanh").op = "Sigmoid"

    verification = verify_programs(
        program, program.replace_graph(graph_def), steps=1, mode="as-is", timing_rounds=0
    )

    assert not verification.within_tolerance


def test_limit_below_the_peak_is_out_of_memory(program: Program) -> None:
    """The variables and the input fit, the activations do not; the original has no limit."""
    limit_bytes = 2**20 + 2 * _LAYERS * _WIDTH * _WIDTH * 4
    with pytest.raises(OutOfMemoryError, match="OOM when allocating"):
        verify_programs(program, program, steps=1, timing_rounds=0, memory_limit_bytes=limit_bytes)


def test_steps_with_other_fetches_are_refused(program: Program) -> None:
    other = Program.from_item(
        GrapplerItem(
            program.item.graph_def,
            program.item.feed,
            program.item.fetch[:-1],
            variables=program.item.variables,
        ),
        inputs=program.inputs,
        variables=program.variables,
    )
    with pytest.raises(InvalidGraphError, match="differ in their fetch"):
        verify_programs(program, other)


def test_steps_must_be_positive(program: Program) -> None:
    with pytest.raises(OptionsError, match="at least 1 step"):
        verify_programs(program, program, steps=0)


_ROWS, _TOKENS = 8, 20_000


@pytest.fixture(scope="module")
def embedding() -> Program:
    """An embedding whose rows many threads update at once: in whatever order they come."""
    random = np.random.default_rng(0)
    table = tf.Variable(random.standard_normal((_ROWS, 256)).astype(np.float32))

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(tokens: Any, factors: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, tokens) * factors)
        gradient = tape.gradient(loss, table)
        table.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
        return loss

    concrete = step.get_concrete_function(
        tf.TensorSpec([_TOKENS], tf.int32), tf.TensorSpec([_TOKENS, 256])
    )
    concrete.keep_alive = table
    tokens = random.integers(0, _ROWS, _TOKENS).astype(np.int32)
    factors = random.standard_normal((_TOKENS, 256)).astype(np.float32)
    return Program.from_concrete_function(concrete, [tokens, factors])


def test_a_step_that_differs_from_itself_is_compared_with_deterministic_kernels(
    embedding: Program,
) -> None:
    for _ in range(5):
        verification = verify_programs(embedding, embedding, timing_rounds=0)
        assert verification.equal
        assert verification.deterministic == bool(verification.own_changes)
        if verification.own_changes:
            break
    else:
        pytest.skip("this machine updates the rows in one order")
    last = verdict(verification)[-1]
    assert last.startswith("the original differs from itself from run to run, as in ")
    assert last.endswith("; both were compared with deterministic kernels")
    assert verification.to_json()["deterministic"]


@pytest.mark.slow
def test_a_wrong_rewrite_of_such_a_step_is_found(embedding: Program) -> None:
    graph_def = _copy(embedding)
    factor = next(
        node
        for node in graph_def.node
        if node.op == "Const" and node.attr["value"].tensor.float_val == [np.float32(0.1)]
    )
    factor.attr["value"].tensor.float_val[0] = 0.11
    verification = verify_programs(
        embedding, embedding.replace_graph(graph_def), steps=2, timing_rounds=0
    )
    assert not verification.within_tolerance


@pytest.mark.slow
def test_without_deterministic_kernels_what_differs_by_chance_is_accepted(
    embedding: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memopt.runtime.reference import Runs

    run = Runs.results

    def results(runs: Runs, process: Any) -> Any:
        if process._settings.deterministic:
            raise ExecutionError("there is no deterministic kernel")
        return run(runs, process)

    monkeypatch.setattr(Runs, "results", results)
    for _ in range(5):
        verification = verify_programs(embedding, embedding, steps=2, timing_rounds=0)
        if verification.own_changes:
            break
    else:
        pytest.skip("this machine updates the rows in one order")
    assert not verification.deterministic
    assert not verification.equal
    lines = verdict(verification)
    assert lines[-1].endswith("; it has an operation without a deterministic kernel")
    if verification.within_tolerance:
        assert lines[0] == "equal within what chance alone changes, over 2 steps:"


def test_a_process_that_asks_for_deterministic_kernels_compares_with_them(
    embedding: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memopt.runtime.verification.is_deterministic_here", lambda: True)
    verification = verify_programs(embedding, embedding, timing_rounds=0)
    assert verification.deterministic
    assert verification.equal
    assert not verification.own_changes


def test_whether_a_process_has_asked_is_known() -> None:
    from tensorflow.python.util import _pywrap_determinism

    assert not is_deterministic_here()
    tf.config.experimental.enable_op_determinism()
    try:
        assert is_deterministic_here()
    finally:
        _pywrap_determinism.enable(False)
