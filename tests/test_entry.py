"""The public ways to run: a rewritten step is called, saved and compared like the original."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from support.sessions import run_graph
from support.state import run_from_start, without_grappler
from support.steps import tiny_step

import memopt
from memopt.errors import FileError, InvalidGraphError, OptionsError
from memopt.item import GrapplerItem
from memopt.models import SESSION_MODELS, TINY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memopt.models import SessionStep, TrainingStep

EVERYTHING: dict[str, Any] = {"target_scope": "auto", "rule": "cost", "all_ports": True}


@pytest.fixture(autouse=True)
def graphs_run_as_they_are() -> Iterator[None]:
    with without_grappler():
        yield


# --- rewrite -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["bert", "lstm", "vgg16"])
def step(request: pytest.FixtureRequest) -> TrainingStep:
    """With dropout, with loops, with convolutions."""
    return tiny_step(request.param)


@pytest.fixture(scope="module")
def rewritten(step: TrainingStep) -> Any:
    return memopt.rewrite(step.function, after_grappler=False, **EVERYTHING)


def arguments_of(step: TrainingStep) -> list[Any]:
    """The inputs, with all that the call may leave out."""
    positional, _ = step.function.structured_input_signature
    return [*step.inputs, *[None] * (len(positional) - len(step.inputs))]


def test_a_rewritten_step_can_be_called_without_what_has_a_default() -> None:
    step = tiny_step("lstm")
    rewritten = memopt.rewrite(step.function, target_scope="auto")
    assert run_from_start(rewritten, step.variables, step.inputs) == run_from_start(
        step.function, step.variables, step.inputs
    )


def test_a_rewritten_step_computes_the_same_bits_and_updates_the_same_variables(
    step: TrainingStep, rewritten: Any
) -> None:
    start = [variable.numpy().tobytes() for variable in step.variables]
    before = run_from_start(step.function, step.variables, arguments_of(step))
    assert [variable.numpy().tobytes() for variable in step.variables] == start

    after = run_from_start(rewritten, step.variables, arguments_of(step))

    assert after == before
    outputs = len(before) - len(step.variables)
    assert before[0] != before[outputs - 1], "the second step computes something else"
    moved = sum(one != other for one, other in zip(start, after[outputs:], strict=True))
    assert moved > len(start) / 2


def test_a_rewritten_step_is_rewritten(step: TrainingStep, rewritten: Any) -> None:
    copies = [op.name for op in rewritten.graph.get_operations() if "Recomputed/" in op.name]
    assert len(copies) > 10
    originals = {op.name for op in step.function.graph.get_operations()}
    assert originals <= {op.name for op in rewritten.graph.get_operations()}


def test_a_rewritten_step_is_called_like_the_original(step: TrainingStep, rewritten: Any) -> None:
    assert rewritten.structured_input_signature == step.function.structured_input_signature
    for one, other in ((rewritten, step.function), (step.function, rewritten)):
        tf.nest.assert_same_structure(one.structured_outputs, other.structured_outputs)
    assert [(output.dtype, output.shape) for output in rewritten.outputs] == [
        (output.dtype, output.shape) for output in step.function.outputs
    ]
    assert rewritten.variables == step.function.variables
    assert [id(handle) for handle in rewritten.captured_inputs] == [
        id(handle) for handle in step.function.captured_inputs
    ]


def test_a_graph_that_was_made_before_is_taken(step: TrainingStep) -> None:
    graph_def = memopt.optimize(step.function, **EVERYTHING).graph_def
    rewritten = memopt.rewrite(step.function, graph_def=graph_def)
    names = [op.name for op in rewritten.graph.get_operations()]
    assert sorted(names) == sorted(node.name for node in graph_def.node)


def test_a_rewritten_step_can_be_rewritten(step: TrainingStep) -> None:
    """The names of library functions that were changed, and changed again, do not collide."""
    once = memopt.rewrite(step.function, target_scope="auto")
    twice = memopt.rewrite(once, target_scope="auto")
    assert run_from_start(twice, step.variables, arguments_of(step), steps=1) == run_from_start(
        step.function, step.variables, arguments_of(step), steps=1
    )


def test_options_beside_a_graph_are_refused() -> None:
    function = tiny_step("mlp").function
    graph_def = function.graph.as_graph_def()
    with pytest.raises(OptionsError, match="options have no effect on a graph that is given"):
        memopt.rewrite(function, graph_def=graph_def, target_scope="auto")


def test_bad_options_and_the_graph_of_another_function_are_refused() -> None:
    function, other = tiny_step("mlp").function, tiny_step("vgg16").function
    with pytest.raises(OptionsError, match="there is no level 'none'"):
        memopt.rewrite(function, level="none")
    with pytest.raises(InvalidGraphError, match="has no captured input "):
        memopt.rewrite(function, graph_def=other.graph.as_graph_def())


# --- a session -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session_step() -> SessionStep:
    return SESSION_MODELS["convnet_v1"](**TINY["convnet_v1"])


@pytest.fixture(scope="module")
def session_item(session_step: SessionStep) -> GrapplerItem:
    return GrapplerItem(session_step.graph_def, session_step.feed, session_step.fetch)


@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["as Grappler", "everything"])
def test_a_rewritten_graph_trains_the_same_in_a_session(
    options: dict[str, Any], session_step: SessionStep, session_item: GrapplerItem
) -> None:
    result = memopt.optimize(session_item, **options)
    assert result.report.modified
    feed = dict(zip(session_step.feed, session_step.inputs, strict=True))
    before, after = (
        run_graph(
            graph_def, session_step.fetch, feed, initializer=session_step.initializer, steps=4
        )
        for graph_def in (session_step.graph_def, result.graph_def)
    )
    losses = [loss.tobytes() for loss, _ in before]
    assert [loss.tobytes() for loss, _ in after] == losses
    assert len(set(losses)) == len(losses)


# --- verify --------------------------------------------------------------------------------------


def test_files_are_verified(tmp_path: Path) -> None:
    """One is a training step that says its use, the other the rewritten graph alone."""
    step = tiny_step("bert")
    original, rewritten = tmp_path / "step.pb", tmp_path / "rewritten.pbtxt"
    memopt.save(step.function, str(original))
    result = memopt.optimize(original, **EVERYTHING)
    assert result.report.modified
    memopt.save(result.graph_def, str(rewritten))

    verification = memopt.verify(str(original), rewritten, steps=2, timing_rounds=0)

    assert verification.equal
    assert verification.steps == 2
    assert verification.timing is None
    assert verification.original.peak_bytes > verification.original.held_bytes > 0


def test_a_session_step_is_verified_by_item_and_graph(
    session_step: SessionStep, session_item: GrapplerItem
) -> None:
    inputs = dict(zip(session_step.feed, session_step.inputs, strict=True))
    result = memopt.optimize(session_item)
    verification = memopt.verify(
        session_item, result.graph_def, inputs=inputs, steps=2, timing_rounds=0
    )
    assert verification.equal


def test_a_wrong_rewrite_is_found_out() -> None:
    """By a function with the inputs that it is called with; one gradient is spoiled."""
    step = tiny_step("mlp")
    graph_def = memopt.optimize(step.function, target_scope="auto").graph_def
    spoiled = next(node for node in graph_def.node if node.op == "ReluGrad")
    spoiled.input[1] = spoiled.input[0]

    verification = memopt.verify(
        step.function, graph_def, inputs=step.inputs, steps=2, timing_rounds=0
    )

    assert not verification.equal
    assert not verification.within_tolerance
    variables = [found for found in verification.differences if found.role == "variable"]
    assert variables
    captured = {node.name for node in graph_def.node if node.op == "Placeholder"}
    assert {found.name for found in variables} <= captured
    # The first step's loss comes before the update that is wrong.
    outputs = [found for found in verification.differences if found.role == "output"]
    assert {found.step for found in outputs} == {1}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"original": "nowhere.pb"}, FileError, "nowhere.pb: there is no such file"),
        ({"rewritten": "nowhere.pb"}, FileError, "nowhere.pb: there is no such file"),
        ({"original": 3}, OptionsError, "a int holds no graph"),
        ({"inputs": [1.0]}, OptionsError, "2 tensors are fed, but 1 "),
        ({"inputs": {"z:0": 1.0}}, OptionsError, "z:0, which is no input"),
        ({"variables": {"w": 1.0}}, OptionsError, "w, which is no variable"),
        ({"steps": 0}, OptionsError, "at least 1 step"),
        ({"fetch": []}, OptionsError, "fetches nothing"),
    ],
)
def test_what_cannot_be_verified_is_said_before_anything_runs(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with tf.Graph().as_default() as graph:
        x, y = (tf.compat.v1.placeholder(tf.float32, [2], name=name) for name in "xy")
        tf.add(x, y, name="sum")
    graph_def = graph.as_graph_def()
    given = {"original": graph_def, "rewritten": graph_def, **arguments}
    with pytest.raises(error, match=message):
        memopt.verify(given.pop("original"), given.pop("rewritten"), **given)


def test_values_and_fetches_that_are_given_are_those_that_run() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        tf.identity(x * 2.0, name="twice")
        tf.identity(tf.square(x), name="result")
    graph_def = graph.as_graph_def()
    other = type(graph_def)()
    other.CopyFrom(graph_def)
    next(node for node in other.node if node.op == "Square").op = "Neg"
    at_minus_one = {"x:0": np.array([-1.0, -1.0], np.float32)}

    verification = memopt.verify(
        graph_def, other, inputs=at_minus_one, fetch=["result:0"], steps=1, timing_rounds=0
    )

    # Only there is the square the negative.
    assert verification.equal
