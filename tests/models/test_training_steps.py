"""Every Keras model's step: a real one, bit-exact from run to run and from build to build."""

from __future__ import annotations

import gc
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memopt.errors import OptionsError
from memopt.models import MODELS, TINY
from memopt.models.compilation import make_optimizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.models import TrainingStep


def state(step: TrainingStep) -> list[np.ndarray]:
    return [variable.numpy() for variable in step.variables]


def restore(step: TrainingStep, values: Sequence[np.ndarray]) -> None:
    for variable, value in zip(step.variables, values, strict=True):
        variable.assign(value)


def run(step: TrainingStep) -> np.ndarray:
    import tensorflow as tf

    loss: np.ndarray = step.function(*map(tf.constant, step.inputs)).numpy()
    return loss


def operations(step: TrainingStep) -> set[str]:
    return {node.op for node in step.function.graph.as_graph_def().node}


def is_seed_state(value: np.ndarray) -> bool:
    return value.shape == (2,) and value.dtype.kind in "iu"


def comparable(graph_def: GraphDef) -> GraphDef:
    """The graph without what TensorFlow numbers through the process: it differs by build."""
    for node in graph_def.node:
        node.attr.pop("_gradient_op_type", None)
    return renumber_functions(graph_def) if graph_def.library.function else graph_def


def renumber_functions(graph_def: GraphDef) -> GraphDef:
    """The graph with the functions of its loops numbered from zero and sorted."""
    from google.protobuf import text_format

    numbered = re.compile(r"(while_cond_|while_body_|_grad_)(\d+)")
    text = text_format.MessageToString(graph_def)
    numbers = sorted({int(number) for _, number in numbered.findall(text)})
    ranks = {str(number): f"{rank:03}" for rank, number in enumerate(numbers)}
    text = numbered.sub(lambda match: match[1] + ranks[match[2]], text)
    renumbered = text_format.Parse(text, type(graph_def)())
    renumbered.library.function.sort(key=lambda function: function.signature.name)
    return renumbered


def assert_bit_equal(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def test_step_is_what_it_says(step: TrainingStep) -> None:
    arguments = step.function.structured_input_signature[0]
    given = [argument for argument in arguments if argument is not None]
    assert step.name in MODELS
    assert step.seed == 0
    assert [tuple(spec.shape) for spec in given] == [array.shape for array in step.inputs]
    assert [spec.dtype.as_numpy_dtype for spec in given] == [array.dtype for array in step.inputs]


def test_step_updates_its_variables(step: TrainingStep) -> None:
    gc.collect()
    before = state(step)
    loss = run(step)
    after = state(step)
    changed = [not np.array_equal(one, other) for one, other in zip(before, after, strict=True)]
    assert loss.shape == ()
    assert np.isfinite(loss)
    assert all(np.isfinite(value).all() for value in after)
    # The learning rate stays, and a few biases have no gradient at first.
    assert np.mean(changed) > 0.9


def test_variables_are_all_that_the_function_captures(step: TrainingStep) -> None:
    handles = {id(variable.handle) for variable in step.variables}
    assert len(handles) == len(step.variables)
    assert {id(capture) for capture in step.function.captured_inputs} == handles


def test_graph_holds_gradients_and_updates(step: TrainingStep) -> None:
    nodes = step.function.graph.as_graph_def().node
    updates = [node for node in nodes if re.match(r"Assign(Add|Sub)?VariableOp", node.op)]
    trained = len(step.function.graph.trainable_variables)
    assert any(node.name.startswith("gradient_tape/") for node in nodes)
    assert len(updates) > trained


def test_two_runs_from_one_state_are_bit_identical(step: TrainingStep) -> None:
    start = state(step)
    first = [run(step), run(step), *state(step)]
    restore(step, start)
    second = [run(step), run(step), *state(step)]
    assert_bit_equal(second, first)


def test_second_build_is_the_same(step: TrainingStep) -> None:
    second = MODELS[step.name](**TINY[step.name])
    one, other = (comparable(each.function.graph.as_graph_def()) for each in (step, second))
    # A comparison of its own: pytest would take minutes to explain how two graphs differ.
    same = one == other
    assert same
    assert [variable.name for variable in second.variables] == [
        variable.name for variable in step.variables
    ]
    assert_bit_equal(state(second), state(step))
    assert_bit_equal(second.inputs, step.inputs)


@pytest.mark.parametrize("built_step", ["unet", "bert", "gpt"], indirect=True)
def test_dropout_draws_new_numbers_at_each_step(step: TrainingStep) -> None:
    start = state(step)
    first = run(step)
    seeds_moved_on = [
        moved if is_seed_state(moved) else old
        for old, moved in zip(start, state(step), strict=True)
    ]
    restore(step, seeds_moved_on)
    assert run(step) != first
    assert any(operation.startswith("StatelessRandom") for operation in operations(step))


@pytest.mark.parametrize("built_step", ["lstm"], indirect=True)
def test_lstm_is_a_loop_forward_and_backward(step: TrainingStep) -> None:
    graph_def = step.function.graph.as_graph_def()
    functions = {function.signature.name for function in graph_def.library.function}
    loops = [node for node in graph_def.node if node.op in {"While", "StatelessWhile"}]
    assert len(loops) == 2 * TINY["lstm"]["layers"]
    assert {node.attr["body"].func.name for node in loops} <= functions


def test_other_seed_gives_other_weights_and_inputs() -> None:
    one, other = (MODELS["mlp"](**TINY["mlp"], seed=seed) for seed in (0, 1))
    assert (other.seed, one.seed) == (1, 0)
    assert not np.array_equal(one.inputs[0], other.inputs[0])
    assert not np.array_equal(state(one)[0], state(other)[0])


def test_adam_has_two_slots_per_weight_and_trains() -> None:
    sgd, adam = (MODELS["mlp"](**TINY["mlp"], optimizer=name) for name in ("sgd", "adam"))
    weights = 2 * (TINY["mlp"]["layers"] + 1)
    assert len(adam.variables) == len(sgd.variables) + weights
    losses = [run(adam) for _ in range(10)]
    assert losses[-1] < losses[0]


def test_unknown_optimizer_is_refused() -> None:
    with pytest.raises(OptionsError, match="'momentum'"):
        make_optimizer("momentum")  # type: ignore[arg-type]  # refused at run time is the point


def test_unet_refuses_an_image_that_it_cannot_halve() -> None:
    with pytest.raises(OptionsError, match="36 pixels"):
        MODELS["unet"](image_size=36, depth=3)
