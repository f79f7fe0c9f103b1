"""What a record says of a graph inside TensorFlow."""

from __future__ import annotations

import pytest
import tensorflow as tf

from memopt.item import GrapplerItem
from memopt.passes import Rematerialization
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


def test_it_says_which_pass_failed_where_what_the_others_made_is_not_worth_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("no room")

    monkeypatch.setattr(Rematerialization, "run", fail)
    with tf.Graph().as_default() as graph:
        read = [tf.raw_ops.Placeholder(dtype=tf.float32, shape=(64, 64)) for _ in range(4)]
        tf.raw_ops.AddN(inputs=[tf.raw_ops.Exp(x=each) for each in read], name="made")
        large = tf.raw_ops.Placeholder(dtype=tf.float32, shape=(512, 512))
        tf.raw_ops.MatMul(a=large, b=tf.raw_ops.Exp(x=large), name="largest")
    feed = tuple(tensor.op.name for tensor in (*read, large))
    item = GrapplerItem(graph.as_graph_def(), feed=feed, fetch=("made", "largest"))
    work = Work(item, Properties.of(item), Policy(budget="50%", only="all", min_nodes=1))
    said = work.summary()
    assert work.report.modified
    assert not work.is_worth_it
    assert said.startswith("the best that was found needs ")
    assert "failed: rematerialization" in said
    assert "ZeroDivisionError: no room" in said
