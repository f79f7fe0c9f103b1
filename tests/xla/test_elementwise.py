"""Operations that are taken for parts of kernels are, in the program that XLA makes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from memopt.graph.op_types import DT_FLOAT
from memopt.graph.xla_ops import ELEMENTWISE, fusion_of
from memopt.runtime.program import Program
from memopt.xla.compiler import compiler_process

if TYPE_CHECKING:
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

SIZE = 4096
_OF_MANY_PARTS = {"LogSoftmax", "Softmax"}
"""Sums are among them."""


def elementwise() -> list[str]:
    """The operations of the table that take one tensor and nothing else, and give one of floats."""
    from tensorflow.python.framework import op_def_registry

    signatures = (op_def_registry.get(name) for name in sorted(_known()))
    return [each.name for each in signatures if _is_of_one_tensor(each)]


def _is_of_one_tensor(signature: Any) -> bool:
    if not len(signature.input_arg) == len(signature.output_arg) == 1:
        return False
    arguments = (*signature.input_arg, *signature.output_arg)
    if any(each.type_attr != "T" or each.number_attr for each in arguments):
        return False
    (dtype,) = (each for each in signature.attr if each.name == "T")
    others = (each for each in signature.attr if each.name != "T")
    types = dtype.allowed_values.list.type
    is_of_floats = not types or DT_FLOAT in types
    is_given = all(each.HasField("default_value") for each in others)
    return is_of_floats and is_given and signature.name not in _OF_MANY_PARTS


def _known() -> set[str]:
    import tensorflow as tf

    known = {name for name in dir(tf.raw_ops) if not name.startswith("_")}
    return {name for name in known if fusion_of(SimpleNamespace(op=name)) in ELEMENTWISE}  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def function() -> ConcreteFunction:
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator] # no types there
    def each(x: tf.Tensor) -> list[Any]:
        results = []
        for number, name in enumerate(elementwise()):
            # Each another: a part of one would be merged with an equal one of another.
            taken: dict[str, Any] = {"name": f"one_{name}"}
            (argument,) = op_def_registry.get(name).input_arg
            kernel = getattr(tf.raw_ops, name)
            taken[argument.name] = x + 0.01 * number
            results.append(kernel(**taken) * 1.5)
        return results

    concrete: ConcreteFunction = each.get_concrete_function(tf.TensorSpec((SIZE,)))
    return concrete


def test_the_table_has_most_of_them() -> None:
    assert {"Acos", "Erfinv", "Exp", "Lgamma", "Relu", "Sinh", "Tanh"} <= set(elementwise())


def test_none_is_a_kernel_of_its_own(function: ConcreteFunction) -> None:
    program = Program.from_concrete_function(function)
    with compiler_process(program) as compiler:
        stored = compiler.compile(program.item.graph_def).memory.stored
    assert stored
    assert {name for name in stored if "one_" in name} == set()
