"""16-bit numbers: what kernels take for copies of 32 bits is what rules say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import tensorflow as tf

import memopt

if TYPE_CHECKING:
    from pathlib import Path

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction


def step(dtype: tf.DType) -> ConcreteFunction:
    """Products, batches of them and a convolution, with gradients."""

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def gradients(x: tf.Tensor, w: tf.Tensor, pictures: tf.Tensor, filters: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch((x, w, pictures, filters))
            rows = tf.reshape(tf.matmul(x, w), (4, 16, 48))
            scores = tf.matmul(rows, rows, transpose_b=True)
            seen = tf.nn.conv2d(pictures, filters, 1, "SAME")
            loss = tf.reduce_sum(scores) + tf.reduce_sum(seen)
        return tape.gradient(loss, (x, w, pictures, filters))

    shapes = ((64, 32), (32, 48), (8, 16, 16, 8), (3, 3, 8, 12))
    return gradients.get_concrete_function(*(tf.TensorSpec(shape, dtype) for shape in shapes))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=str)
def test_rules_know_what_was_measured(dtype: tf.DType, tmp_path: Path) -> None:
    function = step(dtype)
    profile = memopt.profile_kernels(function, path=tmp_path / "kernels.json")
    assert not profile.failed
    assert not profile.differences
    runtime = memopt.optimize(function, level="ordered").report
    assert not runtime.unknown_kernels
