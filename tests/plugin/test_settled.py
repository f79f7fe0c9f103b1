"""Functions rewritten as Grappler leaves them: the bits of the original under defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import memopt
from memopt.errors import InvalidGraphError, OptionsError
from memopt.graph.final import FINAL, is_final
from memopt.models import MODELS, TINY
from memopt.plugin.settled import settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    Wrap = Callable[[ConcreteFunction], ConcreteFunction]

STEPS = 3


def _train(name: str, wrap: Wrap) -> tuple[list[bytes], list[bytes]]:
    """The losses and the variables of a tiny model after a few steps."""
    step = MODELS[name](**TINY[name])
    function = wrap(step.function)
    inputs = [tf.constant(value) for value in step.inputs]
    losses = [np.asarray(function(*inputs)).tobytes() for _ in range(STEPS)]
    return losses, [np.asarray(variable).tobytes() for variable in step.variables]


def _nested(function: ConcreteFunction) -> ConcreteFunction:
    specs = [
        tf.TensorSpec(t.shape, t.dtype) for t in function.inputs[: -len(function.captured_inputs)]
    ]
    found: ConcreteFunction = tf.function(function).get_concrete_function(*specs)
    return found


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("bert", {"budget": "80%"}, marks=pytest.mark.slow),
        ("mlp", {"budget": "80%"}),
        ("mlp", {"level": "ordered"}),
        ("gpt", {"budget": "60%"}),
        pytest.param("unet", {"level": "ordered"}, marks=pytest.mark.slow),
    ],
)
def test_a_rewritten_step_has_the_bits_of_the_step_under_defaults(
    name: str, options: dict[str, Any]
) -> None:
    expected = _train(name, lambda function: function)
    assert _train(name, lambda function: memopt.rewrite(function, **options)) == expected
    assert _train(name, lambda function: memopt.rewrite(_nested(function), **options)) == expected


@pytest.mark.slow
def test_grappler_after_memopt_changes_bits() -> None:
    """Why it works before: it does other things to a rewritten graph than to the original."""
    expected = _train("bert", lambda function: function)

    def rewritten(function: ConcreteFunction) -> ConcreteFunction:
        return memopt.rewrite(function, budget="80%", after_grappler=False)

    assert _train("bert", rewritten) != expected


@pytest.mark.slow
def test_loops_are_built_again() -> None:
    expected = _train("lstm", lambda function: function)
    assert _train("lstm", _settled) == expected
    assert _train("lstm", lambda function: memopt.rewrite(function, level="ordered")) == expected


def _settled(function: ConcreteFunction) -> ConcreteFunction:
    found = settle(function)
    assert found is not None
    return found


def _counting() -> tuple[ConcreteFunction, tf.Variable]:
    """A small training step, and a count of how often it ran."""
    weight = tf.Variable(tf.random.stateless_normal((8, 8), (1, 2)))
    count = tf.Variable(0)

    def step(x: tf.Tensor, *, scale: float = 2.0) -> dict[str, tf.Tensor]:
        count.assign_add(1)
        with tf.GradientTape() as tape:
            y = tf.nn.relu(tf.matmul(tf.nn.relu(tf.matmul(x, weight)), weight))
            loss = scale * tf.reduce_sum(y)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return {"loss": loss, "x": x}

    function = tf.function(step).get_concrete_function(tf.TensorSpec((None, 8), tf.float32))
    # A function holds variables weakly.
    function.memopt_keeps = (weight, count)
    return function, count


def test_the_function_does_not_run() -> None:
    function, count = _counting()
    settled = _settled(function)
    assert count.numpy() == 0
    settled(tf.ones((4, 8)))
    assert count.numpy() == 1


def test_the_function_is_called_as_before() -> None:
    function, _ = _counting()
    settled = _settled(function)
    assert settled.structured_input_signature == function.structured_input_signature
    assert settled.structured_outputs.keys() == {"loss", "x"}
    assert [t.name for t in settled.graph.outputs] == [t.name for t in function.graph.outputs]
    assert [t.name for t in settled.inputs] == [t.name for t in function.inputs]
    assert is_final(settled.graph.as_graph_def())
    result = settled(x=tf.ones((4, 8)))
    assert result["x"].shape == (4, 8)


def test_verification_runs_the_result_without_grappler() -> None:
    function, _ = _counting()
    rewritten = memopt.rewrite(function, level="ordered")
    verification = memopt.verify(
        function, rewritten, inputs=[np.ones((4, 8), np.float32)], mode="as-is", timing_rounds=0
    )
    assert verification.equal


def test_the_result_runs_with_grappler_off_and_others_as_before() -> None:
    from tensorflow.python.eager import context

    function, _ = _counting()
    rewritten = memopt.rewrite(function, level="ordered")
    before = context.context().function_call_options
    with memopt.enabled(min_nodes=0, only="all"):
        memopt.last_reports()
        seen = len(memopt.last_reports())
        rewritten(tf.ones((4, 8)))
        assert len(memopt.last_reports()) == seen
        function(tf.ones((4, 8)))
        assert len(memopt.last_reports()) > seen
    assert context.context().function_call_options.config_proto_serialized == (
        before.config_proto_serialized
    )


def test_what_may_have_to_be_differentiated_is_rewritten_as_it_is() -> None:
    weight = tf.Variable(tf.ones((8, 8)))

    def forward(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(tf.matmul(x, weight))

    function = tf.function(forward).get_concrete_function(tf.TensorSpec((4, 8), tf.float32))
    rewritten = memopt.rewrite(function)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(rewritten(tf.ones((4, 8))))
    assert tape.gradient(loss, weight) is not None
    with pytest.raises(OptionsError, match=r"after_grappler: .* computes no gradients"):
        memopt.rewrite(function, after_grappler=True)


def test_nothing_is_settled_where_grappler_is_off() -> None:
    function, _ = _counting()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        assert settle(function) is None
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


def test_named_nodes_are_those_of_the_function() -> None:
    function, _ = _counting()
    names = {node.name for node in function.graph.as_graph_def().node}
    kept = next(name for name in names if name.startswith("MatMul"))
    rewritten = memopt.rewrite(function, keep=[kept])
    assert not is_final(rewritten.graph.as_graph_def())
    with pytest.raises(OptionsError, match="options have no effect on a graph that is given"):
        memopt.rewrite(function, graph_def=function.graph.as_graph_def(), after_grappler=True)


def test_the_mark_survives_a_rewrite() -> None:
    function, _ = _counting()
    rewritten = memopt.rewrite(function, budget="100%")
    marked = [node.name for node in rewritten.graph.as_graph_def().node if FINAL in node.attr]
    assert marked


def test_a_rewritten_step_is_not_given_to_grappler_again() -> None:
    function, _ = _counting()
    rewritten: Any = memopt.rewrite(function, level="ordered")
    assert _settled(rewritten) is rewritten
    names = {node.name for node in rewritten.graph.as_graph_def().node}
    again: Any = memopt.rewrite(rewritten, level="ordered")
    assert {node.name for node in again.graph.as_graph_def().node} == names


def test_what_cannot_be_built_again_is_rewritten_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from memopt.plugin import settled

    def refuse(*_: object) -> None:
        raise InvalidGraphError("a function that Grappler made is not known")

    function, _ = _counting()
    monkeypatch.setattr(settled, "build_function", refuse)
    rewritten = memopt.rewrite(function, level="ordered")
    assert not is_final(rewritten.graph.as_graph_def())
    with pytest.raises(InvalidGraphError, match="that Grappler made is not known"):
        memopt.rewrite(function, level="ordered", after_grappler=True)
