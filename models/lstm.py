"""LSTM: a recurrent language model whose recurrence is a loop in the graph."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memopt.models.compilation import compile_training_step
from memopt.models.program import run_as_program
from memopt.models.sequences import next_token_sequences
from memopt.models.training_step import EXAMPLE_BATCH

if TYPE_CHECKING:
    import keras

    from memopt.models.compilation import OptimizerName
    from memopt.models.training_step import TrainingStep


def lstm(  # noqa: PLR0913 - the sizes of a model, all by name
    *,
    batch: int | None = 32,
    steps: int = 40,
    width: int = 256,
    layers: int = 2,
    vocabulary: int = 1000,
    seed: int = 0,
    optimizer: OptimizerName = "sgd",
) -> TrainingStep:
    """Builds a training step of an LSTM that guesses the next token.

    Args:
        batch: Sequences in a batch; `None` for a step that takes any number.
        steps: Length of a sequence: how often each loop turns.
        width: Numbers in an embedding, a hidden state and a cell state.
        layers: LSTM layers on top of one another, each with a loop forward and one backward.
        vocabulary: Different tokens.
        seed: What weights and sequences are drawn from.
        optimizer: `"sgd"` (with momentum) or `"adam"`.

    Returns:
        A step of token numbers and the next ones, both int32 [batch, steps].
    """
    build_model = partial(_build_model, steps, width, layers, vocabulary)
    inputs = next_token_sequences(batch or EXAMPLE_BATCH, steps, vocabulary, seed)
    return compile_training_step(
        "lstm", build_model, inputs, seed=seed, optimizer=optimizer, any_batch=batch is None
    )


def _build_model(steps: int, width: int, layers: int, vocabulary: int) -> keras.Model:
    import keras

    token_ids = keras.Input((steps,), dtype="int32")
    features = keras.layers.Embedding(vocabulary, width)(token_ids)
    for _ in range(layers):
        # Not cuDNN's, which is one operation and no loop: the graph is the same on every machine.
        recurrence = keras.layers.LSTM(width, return_sequences=True, unroll=False, use_cudnn=False)
        features = recurrence(features)
    return keras.Model(token_ids, keras.layers.Dense(vocabulary)(features), name="lstm")


if __name__ == "__main__":
    run_as_program(lstm)
