"""Compiles a Keras model with its loss and optimizer into a training step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from memopt.errors import OptionsError
from memopt.models.training_step import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import keras
    import numpy as np
    import tensorflow as tf
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    LossFunction: TypeAlias = Callable[[tf.Tensor, tf.Tensor, tf.Tensor | None], tf.Tensor]

OptimizerName: TypeAlias = Literal["sgd", "adam"]


def cross_entropy(targets: tf.Tensor, logits: tf.Tensor, weights: tf.Tensor | None) -> tf.Tensor:
    """The mean cross-entropy of logits against class numbers.

    Args:
        targets: Class numbers, of any shape.
        logits: As `targets`, with one more axis for the classes at the end.
        weights: The share of each target in the mean, shaped as `targets`; `None` for equal ones.

    Returns:
        A float32 scalar.
    """
    import keras

    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    return loss(targets, logits, weights)


def compile_training_step(  # noqa: PLR0913 - what a step is made of, options by keyword
    name: str,
    build_model: Callable[[], keras.Model],
    inputs: tuple[np.ndarray, ...],
    *,
    seed: int,
    optimizer: OptimizerName = "sgd",
    any_batch: bool = False,
    loss: LossFunction = cross_entropy,
) -> TrainingStep:
    """Builds a model and traces forward, gradients and update into one graph.

    Keras's global state (names of layers, policies) is cleared and its random generators are
    seeded, so that equal arguments give bit-equal weights and the same graph, whatever was built
    before. Only the names of functions inside the graph (bodies of loops) and of custom gradients
    carry numbers that TensorFlow counts up through the process.

    Args:
        name: The model's name in the registry.
        build_model: Builds the model. What it draws from Keras's generators follows `seed`.
        inputs: The features, the targets and, optionally, weights of the targets.
        seed: Any number from 0 to 2**32 - 1.
        optimizer: `"sgd"` has momentum 0.9.
        any_batch: Whether the step takes batches of any size: the first dimension of each input is
            left open in the graph.
        loss: Gives a scalar for the targets, the model's outputs and the weights or `None`.
    """
    import keras

    # Names begin anew; to collect garbage as well takes longer than to build a small model.
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(seed)
    model = build_model()
    update = make_optimizer(optimizer)
    # Built here: a function may not create variables each time it is traced.
    update.build(model.trainable_variables)
    function = _trace(model, update, loss, _signature(inputs, any_batch=any_batch))
    owned = (variable.value for variable in (*model.variables, *update.variables))
    return TrainingStep(name, function, inputs, _captured(function, owned), seed)


def make_optimizer(name: OptimizerName) -> keras.Optimizer:
    """Makes an optimizer with a learning rate at which all models here train.

    Raises:
        OptionsError: There is no optimizer of that name.
    """
    import keras

    if name == "sgd":
        return keras.optimizers.SGD(learning_rate=0.01, momentum=0.9)
    if name == "adam":
        return keras.optimizers.Adam(learning_rate=0.001)
    raise OptionsError(f"no optimizer is named {name!r}; choose 'sgd' or 'adam'")


def _trace(
    model: keras.Model,
    optimizer: keras.Optimizer,
    loss: LossFunction,
    signature: Sequence[tf.TensorSpec],
) -> ConcreteFunction:
    """Traces one step of the optimizer for inputs of these shapes and types."""
    import tensorflow as tf

    def step(
        features: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss(targets, model(features, training=True), weights)
        optimizer.apply(tape.gradient(value, model.trainable_variables))
        return value

    return tf.function(step, autograph=False).get_concrete_function(*signature)


def _signature(inputs: Sequence[np.ndarray], *, any_batch: bool) -> list[tf.TensorSpec]:
    import tensorflow as tf

    shapes = [(None, *array.shape[1:]) if any_batch else array.shape for array in inputs]
    return [tf.TensorSpec(shape, array.dtype) for shape, array in zip(shapes, inputs, strict=True)]


def _captured(function: ConcreteFunction, owned: Iterable[tf.Variable]) -> tuple[tf.Variable, ...]:
    """Those of the owned variables that the function uses, in the order of their owners."""
    used: set[Any] = {id(variable) for variable in function.variables}
    captured = tuple(variable for variable in owned if id(variable) in used)
    assert len(captured) == len(used), "the step uses a variable that nobody keeps alive"
    return captured
