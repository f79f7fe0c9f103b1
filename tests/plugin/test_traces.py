"""Shapes that a trace leaves open, as the call gives them for which TensorFlow traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from memopt.plugin.traces import find_argument_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator

Found = list[dict[str, Any]]


@pytest.fixture
def found() -> Iterator[Found]:
    """What is found of each function that is traced."""
    from tensorflow.python.eager.polymorphic_function import transform

    shapes: Found = []

    def look(function: Any) -> None:
        shapes.append(find_argument_shapes(function))

    transform.CONCRETE_FUNCTION_CALLBACKS.append(look)
    yield shapes
    transform.CONCRETE_FUNCTION_CALLBACKS.remove(look)


OPEN = tf.TensorSpec((None, 4))


def test_an_open_signature_has_the_shapes_of_arguments(found: Found) -> None:
    double = tf.function(lambda x, y: (x + x, y["b"]), input_signature=[OPEN, {"b": OPEN}])
    double(tf.zeros((3, 4)), {"b": tf.zeros((5, 4))})
    assert [sorted(each.values()) for each in found] == [[((3, 4),), ((5, 4),)]]


def test_what_is_traced_again_for_fewer_shapes_has_those_of_the_call(found: Found) -> None:
    double = tf.function(lambda x: x + x, reduce_retracing=True)
    for count in (2, 3, 4):
        double(tf.zeros((count, 4)))
    assert [list(each.values()) for each in found] == [[], [((3, 4),)]]


def test_a_function_inside_of_another_has_the_shapes_that_come_from_outside(found: Found) -> None:
    inner = tf.function(lambda x: x + x)
    outer = tf.function(lambda x: inner(x) + x, input_signature=[OPEN])
    outer(tf.zeros((6, 4)))
    assert [list(each.values()) for each in found] == [[((6, 4),)], [((6, 4),)]]


def test_elements_of_a_data_set_have_the_size_of_its_batches(found: Found) -> None:
    inner = tf.function(lambda x: x + x)
    outer = tf.function(lambda elements: inner(next(elements)))
    data_set = tf.data.Dataset.from_tensor_slices(tf.zeros((7, 4))).batch(5)
    outer(iter(data_set))
    assert ((5, 4),) in found[-2].values()


def test_nothing_is_found_where_nothing_is_called(found: Found) -> None:
    tf.function(lambda x: x + x).get_concrete_function(OPEN)
    outer = tf.function(lambda x: tf.function(lambda y: y + y)(x[1:]), input_signature=[OPEN])
    outer(tf.zeros((6, 4)))
    assert found[0] == {}
    # What is computed inside of the other function is of a size that nobody knows.
    assert found[1] == {}
