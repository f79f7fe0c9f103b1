"""What a record says of a graph inside TensorFlow."""

from __future__ import annotations

import pytest
import tensorflow as tf

from memopt.item import GrapplerItem
from memopt.plugin.policy import Policy
from memopt.plugin.work import Work
from memopt.shapes.properties import Properties


@pytest.mark.parametrize("shape", [(4, 8), (None, 8)])
def test_it_says_how_many_sizes_are_not_known(shape: tuple[int | None, int]) -> None:
    """Resources and lists of a size that nobody knows are no reason to doubt what is predicted."""
    with tf.Graph().as_default() as graph:
        read = tf.raw_ops.Placeholder(dtype=tf.float32, shape=shape, name="read")
        tf.raw_ops.Neg(x=tf.raw_ops.Exp(x=read, name="exp"), name="made")
        tf.raw_ops.Placeholder(dtype=tf.variant, shape=None, name="list")
        tf.raw_ops.Placeholder(dtype=tf.string, shape=None, name="text")
    item = GrapplerItem(graph.as_graph_def(), feed=("read",), fetch=("made",))
    said = Work(item, Properties.of(item), Policy(only="all", min_nodes=1)).summary()
    assert ("the sizes of 3 tensors are not known, such as read:0" in said) == (shape[0] is None)
    assert ("not known" in said) == (shape[0] is None)
