"""A program holds a step with its values, and survives the way through a directory."""

from __future__ import annotations

import subprocess
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from memopt.errors import FileError, InvalidGraphError, OptionsError
from memopt.item import GrapplerItem, VariableSpec
from memopt.runtime.program import Program

if TYPE_CHECKING:
    from pathlib import Path

_FLOAT = tf.float32.as_datatype_enum


@pytest.fixture(scope="module")
def function() -> Any:
    weight = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2))
    half = tf.Variable(tf.constant([1.5, 2.5], tf.bfloat16))
    constant = tf.constant([10.0, 20.0])

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(x: Any, text: Any) -> Any:
        half.assign(half + tf.cast(constant, tf.bfloat16))
        return tf.matmul(x, weight) + constant, tf.strings.length(text)

    concrete = step.get_concrete_function(tf.TensorSpec([None, 3]), tf.TensorSpec([2], tf.string))
    concrete.keep_alive = (weight, half)
    return concrete


@pytest.fixture(scope="module")
def program(function: Any) -> Program:
    return Program.from_concrete_function(function, [np.ones((4, 3), np.float32), ["a", "bc"]])


def _item(shape: tuple[int, ...] = (2, 3), **changes: Any) -> GrapplerItem:
    """`y = x + read(v)`, where `v` is captured."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None if d < 0 else d for d in shape], name="x")
        v = tf.compat.v1.placeholder(tf.resource, [], name="v")
        tf.add(x, tf.raw_ops.ReadVariableOp(resource=v, dtype=tf.float32), name="y")
    variables = MappingProxyType({"v": VariableSpec(_FLOAT, (3,))})
    fields = {"feed": ("x:0",), "fetch": ("y:0",), "variables": variables}
    return GrapplerItem(graph.as_graph_def(), **{**fields, **changes})


def _assert_same(first: Program, second: Program) -> None:
    assert first.item == second.item
    assert (first.seed, first.initializer) == (second.seed, second.initializer)
    for one, other in ((first.inputs, second.inputs), (first.variables, second.variables)):
        assert list(one) == list(other)
        assert [v.dtype for v in one.values()] == [v.dtype for v in other.values()]
        assert [v.tolist() for v in one.values()] == [v.tolist() for v in other.values()]


def test_function_brings_its_variables_and_constants(program: Program, function: Any) -> None:
    assert program.item == GrapplerItem.from_concrete_function(function)
    values = [value.tolist() for value in program.variables.values()]
    assert len(values) == 2
    assert [1.5, 2.5] in values
    assert [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]] in values
    assert [value.shape for value in program.inputs.values()] == [(4, 3), (2,), (2,)]
    assert [10.0, 20.0] in [value.tolist() for value in program.inputs.values()]
    assert not program.in_session


def test_values_do_not_change_with_the_variables(program: Program, function: Any) -> None:
    half = next(v for v in function.variables if v.dtype == tf.bfloat16)
    half.assign([7.0, 7.0])
    assert [7.0, 7.0] not in [value.tolist() for value in program.variables.values()]
    half.assign([1.5, 2.5])


def test_directory_gives_back_the_same(program: Program, tmp_path: Path) -> None:
    program.save(tmp_path)
    _assert_same(program, Program.load(tmp_path))


def test_missing_values_are_made_up_alike() -> None:
    _assert_same(Program.from_item(_item()), Program.from_item(_item()))
    other = Program.from_item(_item(), seed=1)
    assert other.inputs["x:0"].tolist() != Program.from_item(_item()).inputs["x:0"].tolist()
    assert other.variables["v"].shape == (3,)


def test_given_values_are_taken() -> None:
    program = Program.from_item(_item(), inputs={"x:0": np.ones((2, 3), np.float32)})
    changed = program.with_values(variables={"v": [1, 2, 3]}, seed=5)

    assert changed.inputs["x:0"].tolist() == np.ones((2, 3)).tolist()
    assert changed.variables["v"].tolist() == [1, 2, 3]
    assert changed.variables["v"].dtype == np.float32
    assert changed.seed == 5


def test_replaced_graph_keeps_the_values() -> None:
    program = Program.from_item(_item())
    graph_def = tf.compat.v1.GraphDef()
    replaced = program.replace_graph(graph_def)
    assert replaced.item.graph_def is graph_def
    assert replaced.inputs is program.inputs
    assert replaced.item.fetch == program.item.fetch


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"inputs": {"z:0": 1}}, "z:0, which is no input"),
        ({"variables": {"w": 1}}, "w, which is no variable"),
        ({"inputs": {"x:0": np.zeros((2, 3))}}, r"type float32, but its value of float64"),
        ({"inputs": {"x:0": np.zeros((2, 4), np.float32)}}, r"shape \(2, 3\), but .* \(2, 4\)"),
    ],
)
def test_values_that_do_not_fit(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        Program.from_item(_item(), **values)


def test_unknown_dimension_needs_a_value() -> None:
    with pytest.raises(OptionsError, match=r"input x:0 .* \(\?, 3\): .*inputs=\{'x:0': array\}"):
        Program.from_item(_item((-1, 3)))
    given = Program.from_item(_item((-1, 3)), inputs={"x:0": np.zeros((7, 3), np.float32)})
    assert given.inputs["x:0"].shape == (7, 3)


def test_nothing_fetched() -> None:
    with pytest.raises(OptionsError, match="fetches nothing"):
        Program.from_item(_item(fetch=()))


def test_missing_initializer() -> None:
    with pytest.raises(InvalidGraphError, match="no node init"):
        Program.from_item(_item(), initializer="init")


def test_wrong_number_of_values(function: Any) -> None:
    with pytest.raises(OptionsError, match="2 tensors are fed, but 1"):
        Program.from_concrete_function(function, [np.ones((4, 3), np.float32)])


def test_arguments_can_be_given_by_name_or_made_up() -> None:
    step = tf.function(lambda x, y: x + y).get_concrete_function(
        tf.TensorSpec([2], name="x"), tf.TensorSpec([2], name="y")
    )
    program = Program.from_concrete_function(step, {"y:0": [1, 2]})
    assert program.inputs["y:0"].tolist() == [1.0, 2.0]
    assert program.inputs["x:0"].shape == (2,)


def test_captured_table_is_refused() -> None:
    initializer = tf.lookup.KeyValueTensorInitializer([1], [2])
    table = tf.lookup.StaticHashTable(initializer, 0)
    step = tf.function(table.lookup).get_concrete_function(tf.TensorSpec([2], tf.int32))
    with pytest.raises(OptionsError, match="another resource"):
        Program.from_concrete_function(step, [[1, 2]])


def test_reference_variables_need_a_session() -> None:
    with tf.Graph().as_default() as graph:
        variable = tf.raw_ops.VariableV2(shape=[2], dtype=tf.float32, name="v")
        tf.raw_ops.AssignAdd(ref=variable, value=[1.0, 1.0], name="train")
    program = Program.from_item(GrapplerItem(graph.as_graph_def(), fetch=("train",)))
    assert program.in_session
    assert program.variables["v"].shape == (2,)


@pytest.mark.parametrize("name", ["graph.pb", "step.json", "inputs.npz"])
@pytest.mark.parametrize("content", [None, b"\xff"])
def test_broken_directory(program: Program, tmp_path: Path, name: str, content: bytes) -> None:
    program.save(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError):
        Program.load(tmp_path)


def test_modules_import_without_tensorflow() -> None:
    script = (
        "import pkgutil, sys, memopt.runtime as r\n"
        "for m in pkgutil.iter_modules(r.__path__): __import__('memopt.runtime.' + m.name)\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
