"""Recipes as functions that TensorFlow runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
from fuzzing.operations import BINARY, CONTROL, MANY, SPECIAL, UNARY, Making
from fuzzing.recipes import result_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fuzzing.recipes import Operation, Recipe
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

_RATE = 0.01


class Built(NamedTuple):
    """A step that can run.

    Attributes:
        function: The step.
        variables: All that it reads and updates.
        inputs: A value for each of its inputs.
    """

    function: ConcreteFunction
    variables: Sequence[tf.Variable]
    inputs: Sequence[Any]


def build(recipe: Recipe) -> Built:
    """The training step of a recipe; the host must have as many devices as it names."""
    making = Making([], [])
    own = _prepare(recipe, making)
    trained = list(making.trained)
    update = _updates(recipe.optimizer, trained, making)

    def forward(inputs: Sequence[Any]) -> Any:
        values = list(inputs)
        for number, operation in enumerate(recipe.operations):
            with tf.device(f"/CPU:{operation.device}"):
                values.append(_apply(operation, values, own[number]))
        return values

    def step(*inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            values = forward(inputs)
            loss = tf.add_n([tf.reduce_mean(tf.square(values[n])) for n in recipe.losses])
        *gradients, of_inputs = tape.gradient(loss, [*trained, list(inputs)])
        for place, gradient in enumerate(gradients):
            if gradient is not None:
                update(place, tf.convert_to_tensor(gradient))
        known = [tf.convert_to_tensor(g) for g in of_inputs if g is not None]
        return loss, values[recipe.losses[-1]], known

    specs = [tf.TensorSpec(shape) for shape in recipe.shapes]
    function = _wrapped(step, recipe.wrapping).get_concrete_function(*specs)
    random = np.random.default_rng(recipe.seed)
    inputs = [
        tf.constant(random.standard_normal(shape).astype(np.float32)) for shape in recipe.shapes
    ]
    for variable in making.variables:
        variable.assign(tf.raw_ops.DeepCopy(x=variable.numpy()))
    return Built(function, making.variables, inputs)


def _prepare(recipe: Recipe, making: Making) -> list[list[tf.Variable]]:
    """The variables of each operation."""
    known = list(recipe.shapes)
    own = []
    for operation in recipe.operations:
        special = SPECIAL.get(operation.kind)
        shape = known[operation.inputs[0]]
        with tf.device(f"/CPU:{operation.device}"):
            own.append(special.prepare(making, shape, operation.number) if special else [])
        known.append(result_shape(operation, known))
    return own


def _apply(operation: Operation, values: Sequence[Any], own: Sequence[tf.Variable]) -> Any:
    kind, number = operation.kind, operation.number
    given = [values[place] for place in operation.inputs]
    if kind in UNARY:
        return UNARY[kind](given[0], number)
    if kind in BINARY:
        return BINARY[kind](given[0], given[1], number)
    if kind in MANY:
        return MANY[kind](given, number)
    if kind in SPECIAL:
        return SPECIAL[kind].apply(given[0], number, own)
    return CONTROL[kind](given[0], number)


def _updates(
    optimizer: str, trained: Sequence[tf.Variable], making: Making
) -> Callable[[int, Any], None]:
    """What updates a trained variable by its gradient."""
    count = {"descent": 0, "momentum": 1, "adam": 2}[optimizer]
    moments = []
    for variable in trained:
        with tf.device(variable.device):
            moments.append([making.state(*variable.shape) for _ in range(count)])

    def update(place: int, gradient: Any) -> None:
        variable, own = trained[place], moments[place]
        if optimizer == "descent":
            variable.assign_sub(_RATE * gradient)
        elif optimizer == "momentum":
            variable.assign_sub(_RATE * own[0].assign(0.9 * own[0] + gradient))
        else:
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=own[0].handle,
                v=own[1].handle,
                beta1_power=0.9,
                beta2_power=0.999,
                lr=_RATE,
                beta1=0.9,
                beta2=0.999,
                epsilon=1e-7,
                grad=gradient,
            )

    return update


def _wrapped(step: Callable[..., Any], wrapping: str) -> Any:
    if wrapping == "plain":
        return tf.function(step, autograph=False)
    attributes = {"_noinline": True} if wrapping == "noinline" else None
    inner = tf.function(step, autograph=False, experimental_attributes=attributes)
    outer = tf.function(inner, autograph=False)
    if wrapping == "called twice":
        return tf.function(outer, autograph=False)
    return outer
