"""Training steps as values: the graph of one step with all that is needed to run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

EXAMPLE_BATCH = 8
"""The batch of the example inputs of a step that takes batches of any size."""


# Compared by identity: arrays and variables have no equality that yields one truth value.
@dataclass(frozen=True, eq=False)
class TrainingStep:
    """One training step of a Keras model: forward, gradients and update in one graph.

    Attributes:
        name: The model's name in the registry.
        function: The step. Called with `inputs` it updates `variables` and returns the loss,
            a float32 scalar.
        inputs: Example arguments; equal for equal sizes and seeds.
        variables: Every variable that the step reads or writes: weights, statistics, states of
            random generators, optimizer slots, learning rate and iteration counter. They live as
            long as this object refers to them, and the function only works while they live.
        seed: What the weights, the inputs and the random operations were drawn from.
    """

    name: str
    function: ConcreteFunction
    inputs: tuple[np.ndarray, ...]
    variables: tuple[tf.Variable, ...]
    seed: int


@dataclass(frozen=True, eq=False)
class SessionStep:
    """One training step as a graph for `tf.compat.v1.Session`.

    Attributes:
        name: The model's name in the registry.
        graph_def: The graph, with the operations that initialise its variables.
        feed: Names of the tensors to feed (`"images:0"`), in the order of `inputs`.
        inputs: Example values to feed; equal for equal sizes and seeds.
        fetch: What to run: the loss (`"loss:0"`, a float32 scalar) and the operation that
            updates the variables (`"train"`, no port).
        initializer: Name of the operation that initialises all variables.
        seed: What the weights, the inputs and the random operations are drawn from.
    """

    name: str
    graph_def: GraphDef
    feed: tuple[str, ...]
    inputs: tuple[np.ndarray, ...]
    fetch: tuple[str, ...]
    initializer: str
    seed: int
