"""Training steps with a loop over time, written without Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.runtime.function import build_function
from memopt.runtime.grappler_off import without_grappler

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from support.one_pass import Done

    Cell = Callable[..., Any]

BATCH, WIDTH = 4, 8


class RecurrentStep(NamedTuple):
    """A step, and what it is given.

    Attributes:
        function: Takes the inputs, gives a loss and updates the weights.
        inputs: One for each turn.
        weights: The variables that it updates.
    """

    function: ConcreteFunction
    inputs: Any
    weights: list[Any]

    def run(self, function: ConcreteFunction, steps: int = 2) -> list[Any]:
        """The losses, and the weights afterwards, from where they were; puts them back."""
        before = [weight.numpy() for weight in self.weights]
        losses = [function(self.inputs).numpy() for _ in range(steps)]
        after = [weight.numpy() for weight in self.weights]
        for weight, value in zip(self.weights, before, strict=True):
            weight.assign(value)
        return losses + after


def gated(state: Any, value: Any, weights: list[Any]) -> Any:
    """A cell with two states and two variables, as an LSTM has them."""
    import tensorflow as tf

    hidden, memory = state
    gates = tf.matmul(value, weights[0]) + tf.matmul(hidden, weights[1])
    keep, add = tf.sigmoid(gates), tf.tanh(gates)
    memory = keep * memory + add
    return keep * tf.tanh(memory), memory


def plain(state: Any, value: Any, weights: list[Any]) -> Any:
    """A cell with one state that counts."""
    import tensorflow as tf

    (hidden, memory) = state
    hidden = tf.tanh(tf.matmul(hidden, weights[1]) + tf.tanh(tf.matmul(value, weights[0])))
    return hidden, memory


def random(state: Any, value: Any, weights: list[Any]) -> Any:
    """A cell that draws numbers in each turn."""
    import tensorflow as tf

    hidden, memory = gated(state, value, weights)
    return hidden * tf.random.uniform((BATCH, WIDTH)), memory


def counting(state: Any, value: Any, weights: list[Any]) -> Any:
    """A cell that changes a variable in each turn."""
    hidden, memory = gated(state, value, weights)
    return hidden + weights[2].assign_add(1.0), memory


def recurrent_step(
    turns: int,
    cell: Cell = gated,
    *,
    is_counted: bool = True,
    reads_back: bool = False,
    is_compiled: bool = False,
    width: int = WIDTH,
) -> RecurrentStep:
    """A step over so many turns.

    Args:
        turns: How often the loop turns.
        cell: What a turn does.
        is_counted: Whether the graph says how often that is.
        reads_back: Whether a turn reads what the last one wrote into an array.
        is_compiled: Whether XLA compiles it.
        width: Numbers in a state.
    """
    import tensorflow as tf

    draw = tf.random.Generator.from_seed(7)
    shapes = [(width, width), (width, width), ()]
    weights = [tf.Variable(draw.normal(shape)) for shape in shapes]

    def step(inputs: Any) -> Any:
        length = turns if is_counted else tf.shape(inputs)[0]
        with tf.GradientTape() as tape:
            outputs = tf.TensorArray(tf.float32, length, element_shape=(BATCH, width))
            if reads_back:
                outputs = outputs.write(0, inputs[0])

            def turn(number: Any, state: Any, written: Any) -> Any:
                value = inputs[number]
                if reads_back:
                    value += written.read(tf.maximum(number - 1, 0))
                state = cell(state, value, weights)
                return number + 1, state, written.write(number, state[0])

            zeros = tf.zeros((BATCH, width))
            _, _, outputs = tf.while_loop(
                lambda number, *_: number < length,
                turn,
                (0, (zeros, zeros), outputs),
                maximum_iterations=turns if is_compiled else None,
            )
            loss = tf.reduce_mean(tf.square(outputs.stack() - 0.5))
        for weight, gradient in zip(weights[:2], tape.gradient(loss, weights[:2]), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    shape = (turns if is_counted else None, BATCH, width)
    traced = tf.function(step, autograph=False, jit_compile=is_compiled or None)
    function = traced.get_concrete_function(tf.TensorSpec(shape))
    return RecurrentStep(function, draw.normal((turns, BATCH, width)), weights)


def values(step: RecurrentStep, done: Done | None = None) -> list[bytes]:
    """All that a step computes, without Grappler, which fuses other operations in other loops."""
    function = step.function if done is None else build_function(done.graph_def, step.function)
    return [value.tobytes() for value in step.run(without_grappler(function))]
