"""A rewritten graph as a function that is called like the original."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from memopt.errors import InvalidGraphError
from memopt.runtime.function import build_function

if TYPE_CHECKING:
    from pathlib import Path

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_ONES = np.ones((3, 3), np.float32)


class Model(tf.Module):  # type: ignore[misc] # TensorFlow has no types
    """A step with a captured variable, a captured constant, a loop and structured arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(_ONES, name="weight")
        self.offset = tf.constant([2.0, 3.0, 4.0])

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def __call__(self, x: Any, *, scale: Any, more: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return i + 1, tf.matmul(y, self.weight) + self.offset

        count, y = tf.while_loop(lambda i, _: i < 3, body, [0, x])
        self.weight.assign_add(scale * tf.ones([3, 3]))
        return {"y": y + more["bias"], "rest": [count, tf.reduce_sum(y)]}


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def function(model: Model) -> Any:
    return model.__call__.get_concrete_function(
        tf.TensorSpec([None, 3]), scale=tf.TensorSpec([]), more={"bias": tf.TensorSpec([3])}
    )


def _arguments() -> dict[str, Any]:
    return {
        "x": tf.reshape(tf.range(6.0), [2, 3]),
        "scale": tf.constant(0.5),
        "more": {"bias": tf.constant([1.0, 2.0, 3.0])},
    }


def _flat(outputs: Any) -> list[bytes]:
    return [np.asarray(output).tobytes() for output in tf.nest.flatten(outputs)]


def _node(graph_def: GraphDef, name: str) -> NodeDef:
    return next(node for node in graph_def.node if node.name == name)


def test_calls_give_the_same_and_update_the_same_variable(model: Model, function: Any) -> None:
    rebuilt = build_function(function.graph.as_graph_def(), function)

    expected = function(**_arguments())
    after_one = model.weight.numpy()
    model.weight.assign(_ONES)
    arguments = _arguments()
    outputs = rebuilt(arguments.pop("x"), **arguments)

    assert _flat(expected) == _flat(outputs)
    assert after_one.tobytes() == model.weight.numpy().tobytes()


def test_signature_structure_and_variables_are_kept(model: Model, function: Any) -> None:
    rebuilt = build_function(function.graph.as_graph_def(), function)

    assert rebuilt.structured_input_signature == function.structured_input_signature
    assert set(rebuilt.structured_outputs) == {"y", "rest"}
    assert rebuilt.structured_outputs["y"].shape.as_list() == [None, 3]
    assert rebuilt.variables == (model.weight,)
    assert rebuilt.trainable_variables == (model.weight,)
    assert len(rebuilt.captured_inputs) == len(function.captured_inputs)


def test_attributes_are_kept() -> None:
    compiled = tf.function(lambda x: x * 2.0, jit_compile=True)
    function = compiled.get_concrete_function(tf.TensorSpec([2]))

    rebuilt = build_function(function.graph.as_graph_def(), function)

    assert rebuilt.function_def.attr["_XlaMustCompile"].b


def test_changed_body_is_the_one_that_runs(function: Any) -> None:
    graph_def = function.graph.as_graph_def()
    names = {node.op: node.name for node in graph_def.node}
    _node(graph_def, names["Sum"]).op = "Max"

    outputs = build_function(graph_def, function)(**_arguments())

    assert outputs["rest"][1] == tf.reduce_max(outputs["y"] - [1.0, 2.0, 3.0])


def test_changed_library_function_is_the_one_that_runs(model: Model, function: Any) -> None:
    graph_def = function.graph.as_graph_def()
    changed = 0
    for library_function in graph_def.library.function:
        for node in library_function.node_def:
            if node.op == "AddV2" and node.attr["T"].type == tf.float32.as_datatype_enum:
                node.op, changed = "Sub", changed + 1
    assert changed

    before = function(**_arguments())["rest"][1]
    model.weight.assign(_ONES)
    after = build_function(graph_def, function)(**_arguments())["rest"][1]

    y = _arguments()["x"].numpy()
    for _ in range(3):
        y = y @ _ONES - model.offset.numpy()
    assert after == y.sum()
    assert after != before


def test_gradient_flows_through() -> None:
    weight = tf.Variable(_ONES)
    step = tf.function(lambda x: tf.reduce_sum(tf.tanh(x @ weight)))
    function = step.get_concrete_function(tf.TensorSpec([2, 3]))
    rebuilt = build_function(function.graph.as_graph_def(), function)

    def gradient(called: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = called(tf.constant([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]))
        return tape.gradient(loss, weight)

    assert _flat(gradient(function)) == _flat(gradient(rebuilt))


def test_it_can_be_saved_and_loaded(tmp_path: Path, model: Model, function: Any) -> None:
    holder = tf.Module()
    holder.weight, holder.offset = model.weight, model.offset
    holder.step = build_function(function.graph.as_graph_def(), function)

    tf.saved_model.save(holder, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))

    assert _flat(holder.step(**_arguments())) == _flat(loaded.step(**_arguments()))
    assert model.weight.numpy().tobytes() == loaded.weight.numpy().tobytes()


@pytest.mark.parametrize("role", ["input", "captured input", "output", "control output"])
def test_what_the_graph_lacks_is_named(role: str, function: Any) -> None:
    graph = function.graph
    name = {
        "input": graph.inputs[0].op.name,
        "captured input": graph.inputs[-1].op.name,
        "output": graph.outputs[0].op.name,
        "control output": graph.control_outputs[0].name,
    }[role]
    graph_def = graph.as_graph_def()
    _node(graph_def, name).name = "renamed"
    for node in graph_def.node:
        for number, source in enumerate(node.input):
            if source.removeprefix("^").partition(":")[0] == name:
                node.input[number] = source.replace(name, "renamed", 1)

    with pytest.raises(InvalidGraphError, match=f"has no {role} {name}") as caught:
        build_function(graph_def, function)

    assert caught.value.node == name


def test_output_of_another_shape_is_refused() -> None:
    function = tf.function(tf.reduce_sum).get_concrete_function(tf.TensorSpec([2]))
    graph_def = function.graph.as_graph_def()
    next(n for n in graph_def.node if n.op == "Sum").attr["keep_dims"].b = True

    with pytest.raises(InvalidGraphError, match=r"float32 \(1,\), but must be float32 \(\)"):
        build_function(graph_def, function)


def test_graph_that_tensorflow_refuses(function: Any) -> None:
    graph_def = function.graph.as_graph_def()
    graph_def.node[-1].input.append("nothing_of_that_name")

    with pytest.raises(InvalidGraphError, match="TensorFlow refuses the graph"):
        build_function(graph_def, function)


def test_variables_are_gathered_from_and_scattered_into_by_coordinates() -> None:
    table = tf.Variable(np.arange(12, dtype=np.float32).reshape(4, 3))

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(places: Any) -> Any:
        chosen = tf.gather_nd(table, places)
        table.scatter_nd_sub(places, 0.5 * chosen)
        return chosen

    places = tf.constant([[1], [3]])
    function = step.get_concrete_function(places)
    graph_def = function.graph.as_graph_def()
    built = build_function(graph_def, function)
    imported = {node.name: node for node in built.graph.as_graph_def().node}
    assert imported == {node.name: node for node in graph_def.node}
    assert built(places).numpy().tolist() == [[3, 4, 5], [9, 10, 11]]
    again = build_function(built.graph.as_graph_def(), built)
    assert again(places).numpy().tolist() == [[1.5, 2, 2.5], [4.5, 5, 5.5]]
    assert table.numpy()[1].tolist() == [0.75, 1, 1.25]
