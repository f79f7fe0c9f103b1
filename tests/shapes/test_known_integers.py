"""Integers that follow from shapes: what TensorFlow computes of them, or nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import tensorflow as tf
from support.bad_inputs import graph_def_of

from memopt.graph.graphdef import from_graph_def
from memopt.graph.op_types import DT_INT32
from memopt.item import GrapplerItem
from memopt.shapes.known_integers import KnownIntegers
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import tensor_properties

LENGTH, BATCH = 7, 3


def computed(sequences: tf.Tensor, number: tf.Tensor) -> dict[str, tf.Tensor]:
    shape = tf.shape(sequences)
    length = shape[1]
    values = tf.TensorArray(tf.float32, length, element_shape=(BATCH,))
    values = values.unstack(tf.transpose(sequences))
    reserved = tf.raw_ops.TensorListReserve(
        element_shape=[BATCH], num_elements=length + 1, element_dtype=tf.float32
    )
    item = tf.raw_ops.TensorListSetItem(input_handle=reserved, index=0, item=sequences[:, 0])
    return {
        "length": length,
        "rank": tf.rank(sequences),
        "size": tf.size(sequences),
        "least": tf.minimum(length, 5),
        "largest of one": tf.reduce_max(length),
        "largest": tf.reduce_max(shape),
        "half": length // 2 * 2 - 1,
        "packed": tf.stack([length, BATCH]),
        "elements": values.size(),
        "reserved": tf.raw_ops.TensorListLength(input_handle=item),
        "fed": number + length,
        "fraction": tf.cast(tf.cast(length, tf.float32) / 2, tf.int32),
    }


UNKNOWN = {"fed", "fraction"}


def test_they_are_what_tensorflow_computes() -> None:
    """Of what depends on values nothing is known, nor of what goes through fractions."""
    specs = tf.TensorSpec((None, None)), tf.TensorSpec((), tf.int32)
    function = tf.function(computed, autograph=False).get_concrete_function(*specs)
    item = GrapplerItem.from_concrete_function(function)
    assumed = {function.inputs[0].op.name: ((BATCH, LENGTH),)}
    properties = Properties.of(replace(item, assumed_shapes=assumed))
    integers = KnownIntegers.of(properties)
    graph = from_graph_def(item.graph_def)
    expected = function(tf.zeros((BATCH, LENGTH)), tf.constant(2))
    assert len(expected) == len(item.fetch)
    # A function gives what is in a dictionary in the order of the keys.
    for role, name in zip(sorted(expected), item.fetch, strict=True):
        node, _, port = name.rpartition(":")
        value = integers.value(graph[node].output(int(port)))
        assert (value is None) == (role in UNKNOWN), role
        if value is not None:
            np.testing.assert_array_equal(value.astype(np.int64), expected[role].numpy())


def test_a_circle_is_not_followed() -> None:
    graph = from_graph_def(
        graph_def_of("""
            one = Identity(two) {T=int32}
            two = Identity(one) {T=int32}
            length = TensorListLength(list) {}
            list = Merge(list) {T=variant, N=1}
        """)
    )
    integers = KnownIntegers(lambda _: tensor_properties(DT_INT32, ()))
    assert integers.value(graph["one"].output()) is None
    assert integers.number(graph["length"].output()) is None
