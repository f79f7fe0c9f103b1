"""Random graphs for simulations: branches, loops, several devices, annotations."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from memopt.item import GrapplerItem
from support.native_simulation import cpu, gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    import tensorflow as tf
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.cluster import Device

FETCH = "out"
ROWS = 16
WIDTHS = (32, 64, 256)


class SimulatedGraph(NamedTuple):
    """A graph with the devices that its nodes name."""

    item: GrapplerItem
    devices: tuple[Device, ...]


def random_simulated_graph(seed: int) -> SimulatedGraph:
    """A random graph of 20 to 400 nodes, the same for the same seed.

    It has v1 branches and loops, also inside each other, control edges, and on some seeds three
    devices at random, `_execution_count`, `_output_slot_vector` and `_swap_to_host`.
    """
    choice = random.Random(seed)
    graph_def = _build(choice)
    devices = (gpu(0), gpu(1), cpu(0))
    if choice.random() < 0.6:
        _place(graph_def, choice, choice.choice((devices, devices[:2], devices[::2])))
    if choice.random() < 0.5:
        _annotate(graph_def, choice)
    feed = tuple(f"{node.name}:0" for node in graph_def.node if node.op == "Placeholder")
    return SimulatedGraph(GrapplerItem(graph_def, feed=feed, fetch=(FETCH,)), devices)


def _build(choice: random.Random) -> GraphDef:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        # The loops and branches of v1, whatever the process uses otherwise.
        was_v2 = v1.control_flow_v2_enabled()
        v1.disable_control_flow_v2()
        try:
            fed = v1.placeholder(tf.float32, [ROWS, choice.choice(WIDTHS)], name="fed")
            weight = tf.raw_ops.VariableV2(shape=[ROWS, 64], dtype=tf.float32, name="weight")
            tensors = [
                tf.matmul(fed, fed, transpose_b=True),
                tf.tanh(fed) @ tf.transpose(fed),
                weight @ tf.transpose(weight),
            ]
            for _ in range(choice.randint(3, 25)):
                left, right = choice.choice(tensors), choice.choice(tensors)
                tensors.append(_operation(choice, left, right))
            with tf.control_dependencies([t.op for t in choice.sample(tensors, 2)]):
                tf.add_n([tf.reduce_sum(tensor) for tensor in tensors], name=FETCH)
        finally:
            if was_v2:
                v1.enable_control_flow_v2()
    return graph.as_graph_def()


def _operation(choice: random.Random, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    v1 = tf.compat.v1
    kind = choice.random()
    if kind < 0.5:
        plain: tuple[Callable[[], tf.Tensor], ...] = (
            lambda: left @ right,
            lambda: tf.tanh(left),
            lambda: left + right,
            lambda: tf.exp(left) * right,
            lambda: tf.concat([left, right], 0)[:ROWS],
        )
        return choice.choice(plain)()
    if kind < 0.7:
        threshold = choice.random()
        return v1.cond(
            tf.reduce_sum(left) > threshold,
            lambda: tf.tanh(tf.exp(left) @ right),
            lambda: tf.exp(right),
        )
    if kind < 0.85:
        return v1.while_loop(
            lambda turn, _: turn < 5,
            lambda turn, value: (turn + 1, tf.tanh(value @ right) @ left),
            [0, left],
        )[1]
    return v1.while_loop(
        lambda turn, _: turn < 5,
        lambda turn, value: (
            turn + 1,
            v1.cond(tf.reduce_sum(value) > 1, lambda: value @ right, lambda: tf.exp(value)),
        ),
        [0, left],
    )[1]


def _place(graph_def: GraphDef, choice: random.Random, devices: tuple[Device, ...]) -> None:
    for node in graph_def.node:
        node.device = choice.choice(devices).name


def _annotate(graph_def: GraphDef, choice: random.Random) -> None:
    for node in graph_def.node:
        if choice.random() < 0.1:
            node.attr["_execution_count"].i = choice.randint(1, 5)
        if node.op == "Switch" and choice.random() < 0.3:
            slot = choice.randint(0, 1)
            node.attr["_output_slot_vector"].list.i.extend([slot, slot])
        if node.op == "MatMul" and choice.random() < 0.1:
            node.attr["_swap_to_host"].list.i.append(choice.randint(0, 1))
