"""Large graphs to time passes on; nothing of them is ever run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

NODES_PER_LAYER = 9


def chain(layers: int, *, batch: int = 8, width: int = 16, device: str = "") -> GraphDef:
    """A training step of many dense layers, as `tf.gradients` makes it; `train` ends it."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph, graph.device(device):
        x = tf.compat.v1.placeholder(tf.float32, [batch, width], name="x")
        weights = []
        for number in range(layers):
            weight = tf.raw_ops.VariableV2(
                shape=[width, width], dtype=tf.float32, name=f"w{number}"
            )
            weights.append(weight)
            x = tf.nn.relu(tf.matmul(x, weight, name=f"matmul{number}"), name=f"relu{number}")
        gradients = tf.gradients(tf.reduce_sum(x), weights)
        updates = [
            tf.raw_ops.AssignSub(ref=weight, value=0.1 * gradient)
            for weight, gradient in zip(weights, gradients, strict=True)
        ]
        tf.group(*updates, name="train")
    return graph.as_graph_def()
