"""What a kernel is known by: equal for equal kernels, whatever nodes and functions are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import tensorflow as tf

from memopt.buffers.kernel_call import Runtime
from memopt.item import GrapplerItem
from memopt.kernels.choice import surveyed
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.kernels.survey import Survey

ROWS = tf.TensorSpec((8, 6), tf.float32)


def survey_of(compute: Callable[..., object], *specs: tf.TensorSpec) -> Survey:
    function = tf.function(compute, autograph=False).get_concrete_function(*specs or (ROWS,))
    item = GrapplerItem.from_concrete_function(function)
    return surveyed(item, Runtime(), Properties.of(item))


def kernels(compute: Callable[..., object], *specs: tf.TensorSpec) -> list[str]:
    return [str(kernel.signature) for kernel in survey_of(compute, *specs).kernels.values()]


def keys(compute: Callable[..., object], *specs: tf.TensorSpec) -> set[str]:
    return set(survey_of(compute, *specs).kernels)


def test_equal_kernels_are_one_however_their_nodes_are_called() -> None:
    found = survey_of(lambda x: (tf.tanh(x, name="one"), tf.tanh(x + 1.0, name="other")))
    tanh = [kernel for kernel in found.kernels.values() if kernel.signature.op == "Tanh"]
    assert [kernel.nodes for kernel in tanh] == [2]
    assert str(tanh[0].signature) == "Tanh(float[8,6]) T=float on CPU"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (tf.tanh, tf.sigmoid),
        (tf.tanh, lambda x: tf.tanh(x[:4])),
        (lambda x: x @ tf.transpose(x), lambda x: tf.matmul(x, x, transpose_b=True)),
        (lambda x: tf.reduce_sum(x, 0), lambda x: tf.reduce_sum(x, 1)),
        (lambda x: tf.cast(x, tf.int32), lambda x: tf.cast(x, tf.int64)),
    ],
    ids=["op", "shape", "attribute", "constant", "type"],
)
def test_what_matters_makes_another_kernel(
    one: Callable[..., object], other: Callable[..., object]
) -> None:
    assert keys(one) != keys(other)


def test_seeds_and_names_do_not_matter() -> None:
    def draw(seed: int) -> Callable[..., object]:
        return lambda x: x + tf.random.uniform((8, 6), seed=seed)

    assert keys(draw(1)) == keys(draw(2))


def test_what_xla_compiles_is_one_kernel_told_by_what_it_computes() -> None:
    def compiled(factor: float, name: str) -> Callable[..., object]:
        @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
        def inner(value: tf.Tensor) -> tf.Tensor:
            return tf.tanh(value, name=name) * factor

        return lambda x: inner(tf.exp(x))

    one = kernels(compiled(2.0, "a"))
    assert [each.partition("(")[0] for each in one] == ["Exp", "PartitionedCall", "Identity"]
    assert keys(compiled(2.0, "a")) == keys(compiled(2.0, "b"))
    assert keys(compiled(2.0, "a")) != keys(compiled(3.0, "a"))


def test_operations_of_loops_and_branches_are_kernels_of_their_own() -> None:
    def loop(x: tf.Tensor) -> tf.Tensor:
        _, value = tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, tf.tanh(v)), (0, x))
        return value

    assert "Tanh(float[8,6]) T=float on CPU" in kernels(loop)
    assert not any("While" in kernel for kernel in kernels(loop))


def test_what_has_an_effect_is_not_run_alone() -> None:
    def effects(x: tf.Tensor) -> tf.Tensor:
        tf.print(x)
        return tf.numpy_function(lambda value: value, [x], tf.float32) + tf.strings.to_number("1")

    found = survey_of(effects)
    assert not {"PrintV2", "PyFunc"} & {each.signature.op for each in found.kernels.values()}
    reasons = {each.op: each.reason for each in found.not_alone.values()}
    assert reasons["PrintV2"] == "it is given texts or lists"
    assert reasons["PyFunc"] == "the shape of an output is not known"


def test_the_shape_of_the_output_is_known_though_it_is_no_constant() -> None:
    def step(images: tf.Tensor, filters: tf.Tensor) -> tf.Tensor:
        sizes = tf.shape(images)
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=sizes, filter=filters, out_backprop=images, strides=[1] * 4, padding="SAME"
        )

    specs = tf.TensorSpec((2, 8, 8, 4), tf.float32), tf.TensorSpec((3, 3, 4, 4), tf.float32)
    (found,) = [kernel for kernel in kernels(step, *specs) if kernel.startswith("Conv2D")]
    assert found.startswith("Conv2DBackpropInput(int32[4]=[2, 8, 8, 4], float[3,3,4,4], ")
