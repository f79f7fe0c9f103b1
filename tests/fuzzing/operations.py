"""What random steps consist of: operations on matrices, with gradients, state and control flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Shape: TypeAlias = tuple[int, int]
Tensor: TypeAlias = Any

_SMALL = 1e-3


class Making(NamedTuple):
    """What operations make beside their results.

    Attributes:
        variables: All of the step's, to be added to.
        trained: Those that gradients update.
    """

    variables: list[tf.Variable]
    trained: list[tf.Variable]

    def weights(self, *shape: int, number: int) -> tf.Variable:
        """A variable to be trained."""
        import numpy as np

        values = np.random.default_rng(number).standard_normal(shape) / 4
        variable = tf.Variable(values.astype(np.float32))
        self.variables.append(variable)
        self.trained.append(variable)
        return variable

    def state(self, *shape: int) -> tf.Variable:
        """A variable that the step itself updates."""
        variable = tf.Variable(tf.zeros(shape), trainable=False)
        self.variables.append(variable)
        return variable


class Special(NamedTuple):
    """An operation that may have variables, or change the width.

    Attributes:
        apply: Makes the result of an input and a number.
        prepare: Makes the variables, for an input's shape and a number.
        width: The width of the result.
    """

    apply: Callable[[Tensor, int, Sequence[tf.Variable]], Tensor]
    prepare: Callable[[Making, Shape, int], list[tf.Variable]] = lambda *_: []
    width: Callable[[int, int], int] = lambda width, _: width


def _dropout(x: Tensor, number: int) -> Tensor:
    mask = tf.random.stateless_uniform(tf.shape(x), (number, 7)) < 0.7
    return tf.where(mask, x * 1.25, tf.zeros_like(x))


def _normalized(x: Tensor, _: int) -> Tensor:
    mean, variance = tf.nn.moments(x, [1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + _SMALL)


def _there_and_back(x: Tensor, _: int) -> Tensor:
    return tf.transpose(tf.reshape(tf.transpose(x), (-1, tf.shape(x)[0])))


UNARY: dict[str, Callable[[Tensor, int], Tensor]] = {
    "tanh": lambda x, _: tf.tanh(x),
    "sigmoid": lambda x, _: tf.sigmoid(x),
    "relu": lambda x, _: tf.nn.relu(x),
    "relu6": lambda x, _: tf.nn.relu6(x),
    "elu": lambda x, _: tf.nn.elu(x),
    "selu": lambda x, _: tf.nn.selu(x),
    "gelu": lambda x, _: tf.nn.gelu(x),
    "leaky": lambda x, _: tf.nn.leaky_relu(x),
    "softplus": lambda x, _: tf.math.softplus(x),
    "softsign": lambda x, _: tf.nn.softsign(x),
    "exponential": lambda x, _: tf.exp(tf.tanh(x)),
    "root": lambda x, _: tf.sqrt(tf.abs(x) + _SMALL),
    "logarithm": lambda x, _: tf.math.log1p(tf.abs(x)),
    "sine": lambda x, _: tf.sin(x),
    "error": lambda x, _: tf.math.erf(x),
    "inverse": lambda x, _: 1.0 / (tf.square(x) + 1.0),
    "scaled": lambda x, n: x * (0.5 + (n % 7) / 8),
    "shifted": lambda x, n: x + (n % 5) / 4,
    "negative": lambda x, _: -x,
    "clipped": lambda x, _: tf.clip_by_value(x, -1.0, 1.0),
    "stopped": lambda x, _: x + tf.stop_gradient(tf.tanh(x)),
    "identity": lambda x, _: tf.identity(x),
    "reversed": lambda x, n: tf.reverse(x, [n % 2]),
    "rolled": lambda x, n: tf.roll(x, n % 3, n % 2),
    "running sum": lambda x, n: tf.cumsum(x, n % 2) * 0.1,
    "softmax": lambda x, _: tf.nn.softmax(x),
    "log softmax": lambda x, _: tf.nn.log_softmax(x) * 0.1,
    "normalized": _normalized,
    "there and back": _there_and_back,
    "transposed": lambda x, _: tf.transpose(tf.tanh(tf.transpose(x))),
    "double": lambda x, _: tf.cast(tf.tanh(tf.cast(x, tf.float64)), tf.float32),
    "half": lambda x, _: tf.cast(tf.cast(x, tf.bfloat16) * 2, tf.float32),
    "dropout": _dropout,
    "padded": lambda x, n: tf.pad(x, [[0, 0], [1, 2]])[:, n % 3 : n % 3 + x.shape[1]],
    "tiled": lambda x, _: tf.reduce_sum(tf.reshape(tf.tile(x, [1, 3]), (-1, 3, x.shape[1])), 1) / 3,
    "mean": lambda x, n: x - tf.reduce_mean(x, n % 2, keepdims=True),
    "maximum of all": lambda x, n: x - tf.reduce_max(x, n % 2, keepdims=True),
    "product": lambda x, _: x * tf.reduce_prod(tf.tanh(x) + 1.1, 1, keepdims=True) * 0.01,
    "unstacked": lambda x, _: tf.stack(tf.unstack(x, axis=0)[::-1]),
    "split": lambda x, _: tf.concat(tf.split(x, 2, axis=1)[::-1], 1),
    "gathered": lambda x, n: tf.gather(x * 1.0, [(n + k) % x.shape[0] for k in range(x.shape[0])]),
    "segments": lambda x, n: (
        x + tf.gather(tf.math.unsorted_segment_sum(x, tf.range(x.shape[0]) % (1 + n % 4), 4), [0])
    ),
    "top": lambda x, _: x + tf.math.top_k(x, 1).values,
    "where": lambda x, _: tf.where(x > 0, tf.tanh(x), x * 0.1),
    "scattered": lambda x, _: tf.tensor_scatter_nd_update(x, [[0], [2]], x[:2] * 0.5),
    "band": lambda x, _: tf.linalg.band_part(x, 3, -1),
    "one hot": lambda x, n: x + tf.one_hot(tf.argmax(x, 1), x.shape[1]) * (n % 3),
}
"""Kinds that keep the shape."""

BINARY: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "sum": lambda x, y, _: x + y,
    "difference": lambda x, y, _: x - y,
    "times": lambda x, y, _: x * tf.tanh(y),
    "larger": lambda x, y, _: tf.maximum(x, y),
    "smaller": lambda x, y, _: tf.minimum(x, y),
    "squared difference": lambda x, y, _: tf.math.squared_difference(x, y) * 0.1,
    "quotient": lambda x, y, _: x / (tf.abs(y) + 1.0),
    "no nan": lambda x, y, _: tf.math.divide_no_nan(x, tf.abs(y) + 1.0),
    "chosen": lambda x, y, _: tf.where(x > y, x, y * 0.5),
    "attended": lambda x, y, _: tf.matmul(tf.nn.softmax(tf.matmul(x, y, transpose_b=True)), y),
    "einsum": lambda x, y, _: tf.einsum("ab,cb,cd->ad", x, y, tf.tanh(y)) * 0.05,
    "joined": lambda x, y, _: tf.reduce_mean(tf.stack([x, y]), 0),
}
"""Kinds of two inputs of one shape, which they keep."""

MANY: dict[str, Callable[[Sequence[Tensor], int], Tensor]] = {
    "sum of all": lambda xs, _: tf.add_n(list(xs)),
    "mean of all": lambda xs, _: tf.reduce_mean(tf.stack(list(xs)), 0),
    "concatenated": lambda xs, _: tf.split(tf.tanh(tf.concat(list(xs), 0)), len(xs))[0],
    "side by side": lambda xs, _: tf.concat(list(xs), 1)[:, : xs[0].shape[1]] * 0.5,
}
"""Kinds of several inputs of one shape, which they keep."""


def _convolved(x: Tensor, _: int, variables: Sequence[tf.Variable]) -> Tensor:
    images = tf.reshape(x, (x.shape[0] // 4, 2, 2, x.shape[1]))
    return tf.reshape(tf.nn.conv2d(images, variables[0], 1, "SAME"), (x.shape[0], -1))


def _pooled(x: Tensor, n: int, _: Sequence[tf.Variable]) -> Tensor:
    images = tf.reshape(x, (x.shape[0] // 4, 2, 2, x.shape[1]))
    pool = tf.nn.max_pool2d if n % 2 else tf.nn.avg_pool2d
    return tf.reshape(pool(images, 2, 1, "SAME"), (x.shape[0], x.shape[1]))


def _depthwise(x: Tensor, _: int, variables: Sequence[tf.Variable]) -> Tensor:
    images = tf.reshape(x, (x.shape[0] // 4, 2, 2, x.shape[1]))
    made = tf.nn.depthwise_conv2d(images, variables[0], [1] * 4, "SAME")
    return tf.reshape(made, (x.shape[0], x.shape[1]))


def _batch_normalized(x: Tensor, _: int, variables: Sequence[tf.Variable]) -> Tensor:
    images = tf.reshape(x, (x.shape[0] // 4, 2, 2, x.shape[1]))
    made, *_ = tf.compat.v1.nn.fused_batch_norm(images, variables[0] + 1.0, variables[1])
    return tf.reshape(made, (x.shape[0], x.shape[1]))


def _averaged(x: Tensor, _: int, variables: Sequence[tf.Variable]) -> Tensor:
    """A running mean, which the step updates before it reads it."""
    (mean,) = variables
    updated = mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(x, 0))
    return x - tf.stop_gradient(updated)


def _counted(x: Tensor, _: int, variables: Sequence[tf.Variable]) -> Tensor:
    """A number of calls, updated after it is read."""
    (count,) = variables
    scale = 1.0 / (1.0 + count)
    with tf.control_dependencies([scale]):
        count.assign_add(1.0)
    return x * scale


def _embedded(x: Tensor, n: int, variables: Sequence[tf.Variable]) -> Tensor:
    rows = tf.argmax(x, 1) % (2 + n % 3)
    return x + tf.gather(variables[0], rows)


def _drawn(x: Tensor, n: int, _: Sequence[tf.Variable]) -> Tensor:
    return x + 0.1 * tf.random.normal(tf.shape(x), seed=1 + n)


def _width(width: int, number: int) -> int:
    return (4, 16, 48, width)[number % 4]


SPECIAL: dict[str, Special] = {
    "dense": Special(
        lambda x, _, v: tf.matmul(x, v[0]) + v[1],
        lambda making, shape, n: [
            making.weights(shape[1], _width(shape[1], n), number=n),
            making.weights(_width(shape[1], n), number=n + 1),
        ],
        _width,
    ),
    "scale": Special(
        lambda x, _, v: tf.nn.bias_add(x, v[0]),
        lambda making, shape, n: [making.weights(shape[1], number=n)],
    ),
    "convolution": Special(
        _convolved,
        lambda making, shape, n: [making.weights(2, 2, shape[1], _width(shape[1], n), number=n)],
        _width,
    ),
    "depthwise": Special(
        _depthwise, lambda making, shape, n: [making.weights(2, 2, shape[1], 1, number=n)]
    ),
    "pooling": Special(_pooled),
    "batch normalization": Special(
        _batch_normalized,
        lambda making, shape, n: [making.weights(shape[1], number=n + k) for k in range(2)],
    ),
    "running mean": Special(_averaged, lambda making, shape, _: [making.state(shape[1])]),
    "counter": Special(_counted, lambda making, *_: [making.state()]),
    "embedding": Special(
        _embedded, lambda making, shape, n: [making.weights(4, shape[1], number=n)]
    ),
    "random": Special(_drawn),
}
"""Kinds with variables, or of another width."""


def _looped(x: Tensor, n: int) -> Tensor:
    turns = 1 + n % 4
    _, made = tf.while_loop(
        lambda i, _: i < turns, lambda i, v: (i + 1, tf.tanh(v * 1.1) + 0.1), (0, x)
    )
    return made


def _loop_of_two(x: Tensor, n: int) -> Tensor:
    turns = 2 + n % 3
    _, one, other = tf.while_loop(
        lambda i, *_: i < turns,
        lambda i, a, b: (i + 1, tf.sigmoid(b), a * 0.9 + b),
        (0, x, tf.zeros_like(x)),
    )
    return one + other


def _branched(x: Tensor, n: int) -> Tensor:
    return tf.cond(
        tf.reduce_sum(x) > (n % 5) - 2,
        lambda: tf.tanh(x) * 2.0,
        lambda: tf.sigmoid(x * x) - x,
    )


def _cases(x: Tensor, n: int) -> Tensor:
    return tf.switch_case(
        tf.cast(tf.reduce_sum(tf.abs(x)), tf.int32) % 3 + n % 2,
        [lambda: tf.tanh(x), lambda: x * 0.5, lambda: tf.nn.relu(x) + tf.exp(-tf.abs(x))],
    )


@tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
def _inner(x: Tensor) -> Tensor:
    return tf.nn.gelu(tf.tanh(x)) + x


@tf.function(experimental_attributes={"_noinline": True})  # type: ignore[untyped-decorator] # TensorFlow has no types
def _kept(x: Tensor) -> Tensor:
    return tf.sigmoid(x) * tf.tanh(x)


@tf.recompute_grad  # type: ignore[untyped-decorator] # TensorFlow has no types
def _recomputed(x: Tensor) -> Tensor:
    return tf.tanh(tf.exp(-tf.square(x)) * x)


CONTROL: dict[str, Callable[[Tensor, int], Tensor]] = {
    "loop": _looped,
    "loop of two": _loop_of_two,
    "branch": _branched,
    "cases": _cases,
    "function": lambda x, _: _inner(x),
    "function twice": lambda x, _: _inner(_inner(x)),
    "noinline": lambda x, _: _kept(x),
    "recomputed": lambda x, _: _recomputed(x),
}
"""Kinds that run functions and keep the shape."""
