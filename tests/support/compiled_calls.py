"""Steps that call what XLA compiles, and gradients of such calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

LAYERS = 3


def step_of_compiled_layers() -> ConcreteFunction:
    """A step of layers that XLA compiles one by one, whose inputs others read, too."""
    import tensorflow as tf

    weights = [tf.Variable(tf.random.stateless_normal((8, 8), (0, n))) for n in range(LAYERS)]

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def layer(value: Any, weight: Any) -> Any:
        return tf.matmul(value, weight)

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(value: Any) -> Any:
        with tf.GradientTape() as tape:
            for weight in weights:
                value = tf.nn.relu(layer(value, weight))
            loss = tf.reduce_sum(value * value)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.01 * gradient)
        return loss

    function = step.get_concrete_function(tf.TensorSpec((4, 8)))
    function.kept_alive = weights
    return function


def step_that_writes_what_is_handed_on() -> ConcreteFunction:
    """A step that assigns to a variable what a call hands on that has read the variable."""
    import tensorflow as tf

    total = tf.Variable([1.0, 2.0])

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def read(value: Any) -> Any:
        return total + value, value

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(value: Any) -> Any:
        result, given = read(value)
        total.assign(given)
        return result

    function = step.get_concrete_function(tf.TensorSpec((2,)))
    function.kept_alive = total
    return function


def step_that_hands_on_twice() -> ConcreteFunction:
    """A step that adds up what one call hands on that another one has handed on to it."""
    import tensorflow as tf

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def double(value: Any) -> Any:
        return value + value, value

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(value: Any) -> Any:
        first, same = double(tf.tanh(value))
        second, again = double(same)
        return tf.reduce_sum(first * second * again)

    return step.get_concrete_function(tf.TensorSpec((4,)))
