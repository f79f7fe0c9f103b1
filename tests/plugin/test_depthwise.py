"""Gradients of depthwise filters that are taken outside of what XLA compiles, in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from memopt.item import GrapplerItem
from memopt.plugin.depthwise import split_gradients

if TYPE_CHECKING:
    from pathlib import Path

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "memopt"


def convolution(
    channels: int = 128, *, grouped: bool = True, samples: int | None = 2, several: int = 1
) -> ConcreteFunction:
    """A depthwise convolution, compiled."""
    shape = (3, 3, 1, channels * several) if grouped else (3, 3, channels, several)

    def convolve(image: Any, filters: Any) -> Any:
        if grouped:
            return tf.nn.convolution(image, filters, padding="SAME")
        return tf.nn.depthwise_conv2d(image, filters, [1, 1, 1, 1], "SAME")

    specs = [tf.TensorSpec((samples, 5, 5, channels)), tf.TensorSpec(shape)]
    traced: ConcreteFunction = tf.function(convolve, jit_compile=True).get_concrete_function(*specs)
    return traced


def gradients(function: ConcreteFunction) -> tuple[list[bytes], int]:
    """The gradients of what a function computes, and how many kernels compute the filters'."""
    random = np.random.default_rng(0)
    image, filters = (
        tf.constant(random.standard_normal(spec.shape, dtype=np.float32))
        for spec in function.inputs
    )

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch([image, filters])
            loss = tf.reduce_sum(function(image, filters) ** 2)
        return tape.gradient(loss, [image, filters])

    traced = step.get_concrete_function()
    library = GrapplerItem.from_concrete_function(traced).graph_def.library.function
    count = sum("BackpropFilter" in node.op for each in library for node in each.node_def)
    return [value.numpy().tobytes() for value in traced()], count


@pytest.mark.parametrize("grouped", [True, False])
def test_bits_are_the_same_in_parts(grouped: bool) -> None:
    expected, whole = gradients(convolution(grouped=grouped))
    function = convolution(grouped=grouped)
    assert split_gradients(function) == 1
    found, parts = gradients(function)
    assert (whole, parts) == (1, 2)
    assert found == expected


@pytest.mark.parametrize(
    "function",
    [convolution(96), convolution(128, samples=None), convolution(128, grouped=False, several=2)],
    ids=str,
)
def test_others_are_left_alone(function: ConcreteFunction) -> None:
    """Few channels, samples that no call tells, several filters for a channel."""
    assert split_gradients(function) == 0
    assert all(one._gradient_function is None for one in function.graph.get_operations())


def test_a_gradient_of_the_authors_stays() -> None:
    @tf.RegisterGradient("OfTheAuthor")  # type: ignore[untyped-decorator] # no types there
    def gradient(operation: Any, behind: Any) -> Any:
        return behind, operation.inputs[1]

    def convolve(image: Any, filters: Any) -> Any:
        with tf.compat.v1.get_default_graph().gradient_override_map({"Conv2D": "OfTheAuthor"}):
            return tf.nn.convolution(image, filters, padding="SAME")

    specs = [tf.TensorSpec((2, 5, 5, 128)), tf.TensorSpec((3, 3, 1, 128))]
    function = tf.function(convolve, jit_compile=True).get_concrete_function(*specs)
    assert split_gradients(function) == 0


def test_what_has_other_bits_stays_whole_and_is_not_tried_again(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memopt.plugin.depthwise._is_equal_for", lambda *_: False)
    assert split_gradients(convolution()) == 0
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_folder.parent))
    assert len(list((cache_folder / "depthwise").iterdir())) == 1
    assert split_gradients(convolution()) == 0
    assert split_gradients(convolution(192)) == 1
