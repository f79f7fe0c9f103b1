"""Graphs whose shapes have to be followed through loops, branches, calls and computed shapes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import function as v1_functions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

v1 = tf.compat.v1
FETCH = "out"
"""The operation that ends each graph."""


@contextmanager
def control_flow(version: int) -> Iterator[None]:
    """Loops and branches as Switch and Merge (1) or as While and If (2)."""
    was_v2 = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if version == 2 else v1.disable_control_flow_v2)()
    try:
        yield
    finally:
        (v1.enable_control_flow_v2 if was_v2 else v1.disable_control_flow_v2)()


def growing_loops() -> list[Any]:
    rows = v1.placeholder(tf.float32, [None, 4], name="rows")
    whole = tf.zeros([2, 3])
    shapes = [tf.TensorShape([]), tf.TensorShape([None, 4]), tf.TensorShape([None, 3])]
    return list(
        v1.while_loop(
            lambda turn, *_: turn < 3,
            lambda turn, a, b: (turn + 1, a * 2.0, tf.concat([b, b], 0)),
            [tf.constant(0), rows, whole],
            shape_invariants=shapes,
        )
    )


def loops_in_loops() -> list[Any]:
    fed = v1.placeholder(tf.float32, [5, 5], name="fed")

    def inner(turn: Any, value: Any) -> Any:
        changed = v1.cond(turn > 1, lambda: value @ fed, lambda: tf.exp(value))
        return turn + 1, v1.while_loop(lambda _: True, tf.tanh, [changed])

    return list(v1.while_loop(lambda turn, _: turn < 3, inner, [0, fed]))


def loop_over_array() -> list[Any]:
    fed = v1.placeholder(tf.float32, [6, 2, 3], name="fed")
    steps = tf.TensorArray(tf.float32, 6).unstack(fed)
    results = tf.TensorArray(tf.float32, 6, clear_after_read=False)
    _, results = v1.while_loop(
        lambda turn, _: turn < 6,
        lambda turn, array: (turn + 1, array.write(turn, tf.tanh(steps.read(turn)))),
        [0, results],
    )
    return [results.stack(), results.concat(), results.size()]


def branches() -> list[Any]:
    fed = v1.placeholder(tf.float32, [None, 4], name="fed")
    known = tf.ones([3, 4])
    choose = tf.reduce_sum(fed) > 0
    return [
        v1.cond(choose, lambda: fed, lambda: known),
        v1.cond(choose, lambda: known, lambda: tf.exp(known)),
        v1.cond(choose, lambda: known[:2], lambda: known),
        v1.cond(choose, lambda: tf.reshape(known, [12]), lambda: known),
    ]


def gradients_through_loops() -> list[Any]:
    weight = v1.get_variable("weight", [4, 4], use_resource=False)
    fed = v1.placeholder(tf.float32, [2, 4], name="fed")
    _, last = v1.while_loop(
        lambda turn, _: turn < 3,
        lambda turn, value: (turn + 1, tf.tanh(value @ weight)),
        [0, fed],
    )
    return list(tf.gradients(tf.reduce_sum(last), [weight, fed]))


def computed_shapes() -> list[Any]:
    rows = v1.placeholder(tf.float32, [None, 4, 6], name="rows")
    fed = v1.placeholder(tf.float32, [8, 4, 6], name="fed")
    sizes = tf.shape(fed)
    some = tf.shape(rows)
    return [
        tf.reshape(rows, [-1, 24]),
        tf.reshape(fed, [-1, 24]),
        tf.reshape(rows, [some[0], 24]),
        tf.reshape(fed, tf.stack([sizes[0] * 2, -1])),
        tf.reshape(fed, tf.concat([sizes[:1], [24]], 0)),
        tf.fill(tf.stack([some[0], some[1] + 1]), 1.0),
        tf.broadcast_to(fed[:1], sizes),
        tf.zeros(tf.cast(tf.cast(sizes, tf.int64), tf.int32)),
        tf.tile(fed, [1, sizes[1], 1]),
        tf.transpose(fed, tf.math.invert_permutation([2, 0, 1])),
        tf.reduce_sum(fed, tf.range(2)),
        tf.reduce_sum(rows, [0]),
        tf.range(tf.size(fed)),
        tf.one_hot(tf.argmax(fed, 2), sizes[2]),
        tf.where(fed > 0),
        tf.unique(tf.reshape(fed, [-1]))[0],
        *tf.split(rows, [1, 2, 3], 2),
        tf.expand_dims(tf.squeeze(tf.reduce_sum(fed, 0, keepdims=True)), -1),
        tf.strided_slice(rows, [0, 1, 2], [100, 4, 6], [2, 1, 3]),
        tf.nn.conv2d(rows[..., None], tf.ones([3, 3, 1, 2]), [1, 2, 2, 1], "SAME"),
    ]


def needed_by_readers() -> list[Any]:
    any_shape = v1.placeholder(tf.float32, None, name="any_shape")
    rows = v1.placeholder(tf.float32, [None, 4], name="rows")
    known = tf.random.uniform([3, 4])
    sums = [tf.add_n([tf.exp(x), tf.sin(x), tf.cos(x)]) for x in (any_shape, rows)]
    return [
        *(tf.raw_ops.ReluGrad(gradients=x, features=known) for x in sums),
        tf.matmul(v1.placeholder(tf.float32, None, name="left"), known),
    ]


def queues() -> list[Any]:
    queue = tf.queue.FIFOQueue(3, [tf.float32, tf.int32], shapes=[[2, 3], []])
    unshaped = tf.queue.FIFOQueue(3, [tf.float32])
    put = unshaped.enqueue([tf.ones([4, 5])])
    with tf.control_dependencies([put, queue.enqueue([tf.ones([2, 3]), 1])]):
        return [*queue.dequeue(), unshaped.dequeue(), *queue.dequeue_many(2)]


def every_kind() -> list[Any]:
    kinds = (tf.half, tf.bfloat16, tf.complex128, tf.bool, tf.string, tf.int8, tf.uint16)
    fed = [v1.placeholder(kind, [2, 3], name=kind.name) for kind in kinds]
    large = tf.constant([[float(n) for n in range(20000)]])
    return [
        *map(tf.identity, fed),
        tf.identity(v1.placeholder(tf.resource, [], name="handle")),
        tf.identity(v1.placeholder(tf.variant, [2], name="variant")),
        tf.identity(v1.placeholder(tf.float32, [0, 4], name="empty")),
        v1.placeholder_with_default(tf.ones([2]), [None], name="default"),
        large * 2.0,
    ]


def functions_called_by_name() -> list[Any]:
    @v1_functions.Defun(tf.float32, tf.int32)  # type: ignore[untyped-decorator]
    def reshaped(x: Any, shape: Any) -> Any:
        return tf.reshape(x, shape), tf.exp(x)

    fed = v1.placeholder(tf.float32, [2, 6], name="fed")
    return [*reshaped(fed, tf.constant([3, 4])), *reshaped(fed * 2.0, tf.shape(fed))]


@tf.function(experimental_attributes={"_noinline": True})  # type: ignore[untyped-decorator]
def squared(x: Any) -> Any:
    return x @ tf.transpose(x), tf.reduce_sum(x, 0)


@tf.function(experimental_attributes={"_noinline": True})  # type: ignore[untyped-decorator]
def squared_twice(x: Any) -> Any:
    return squared(squared(x)[0])


def functional() -> list[Any]:
    """While, If, Case, calls, tensor lists and variables, as in the graph of a tf.function."""
    fed = v1.placeholder(tf.float32, [5, 4], name="fed")
    rows = v1.placeholder(tf.float32, [None, 4], name="rows")
    grown = tf.while_loop(
        lambda turn, _: turn < 3,
        lambda turn, value: (turn + 1, tf.concat([value, value], 0)),
        [0, rows],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 4])],
    )
    listed = tf.TensorArray(tf.float32, 5, element_shape=[4])
    _, listed = tf.while_loop(
        lambda turn, _: turn < 5,
        lambda turn, array: (turn + 1, array.write(turn, fed[turn])),
        [0, listed],
    )
    index = tf.cast(tf.reduce_sum(fed), tf.int32)
    return [
        *grown,
        listed.stack(),
        tf.cond(index > 0, lambda: fed, lambda: tf.exp(fed)),
        tf.cond(index > 0, lambda: rows, lambda: fed),
        tf.switch_case(index, [lambda: fed, lambda: fed * 2.0, lambda: fed[:1]]),
        *squared_twice(fed),
        *squared(rows),
    ]


V1_GRAPHS = (
    growing_loops,
    loops_in_loops,
    loop_over_array,
    branches,
    gradients_through_loops,
    computed_shapes,
    needed_by_readers,
    queues,
    every_kind,
    functions_called_by_name,
)
GRAPHS = (*((build, 1) for build in V1_GRAPHS), (functional, 2))


def graph_of(build: Callable[[], list[Any]], version: int = 1) -> GraphDef:
    """The graph that a function builds, with the control flow of that version."""
    with tf.Graph().as_default() as graph, control_flow(version):
        tf.group(*(tensor.op for tensor in build()), name=FETCH)
    return graph.as_graph_def()
