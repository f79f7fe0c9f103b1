"""Kernels of layers that no model here has: what rules say of them is what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

import memopt

if TYPE_CHECKING:
    from pathlib import Path


def test_rules_know_kernels_of_further_layers(tmp_path: Path) -> None:
    """Volumes, pictures that grow, convolutions with holes, numbers that are none."""

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def gradients(volumes: tf.Tensor, filters: tf.Tensor, pictures: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch((volumes, filters, pictures))
            seen = tf.nn.conv3d(volumes, filters, [1] * 5, "SAME")
            seen = tf.nn.max_pool3d(seen, 2, 2, "VALID")
            grown = tf.image.resize(pictures, (12, 20))
            holes = tf.space_to_batch(grown, [2, 2], [[0, 0], [0, 0]])
            whole = tf.batch_to_space(tf.tanh(holes), [2, 2], [[0, 0], [0, 0]])
            numbers = tf.where(tf.math.is_nan(whole), 0.0, whole)
            loss = tf.reduce_sum(seen * seen) + tf.reduce_sum(numbers)
        return tape.gradient(loss, (volumes, filters, pictures))

    shapes = ((2, 6, 8, 8, 3), (3, 3, 3, 3, 5), (2, 6, 10, 4))
    function = gradients.get_concrete_function(*map(tf.TensorSpec, shapes))
    profile = memopt.profile_kernels(function, path=tmp_path / "kernels.json")
    assert not profile.failed
    assert not profile.differences
    assert not memopt.optimize(function, level="ordered").report.unknown_kernels
