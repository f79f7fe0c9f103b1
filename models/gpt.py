"""GPT: a causal transformer decoder that guesses the next token."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memopt.models.compilation import compile_training_step
from memopt.models.program import run_as_program
from memopt.models.sequences import next_token_sequences
from memopt.models.training_step import EXAMPLE_BATCH
from memopt.models.transformer import DROPOUT_RATE, TransformerSizes, attend, embed, feed_forward

if TYPE_CHECKING:
    import keras

    from memopt.models.compilation import OptimizerName
    from memopt.models.training_step import TrainingStep


def gpt(  # noqa: PLR0913 - the sizes of a model, all by name
    *,
    batch: int | None = 16,
    tokens: int = 64,
    width: int = 128,
    layers: int = 4,
    heads: int = 4,
    vocabulary: int = 1000,
    seed: int = 0,
    optimizer: OptimizerName = "adam",
) -> TrainingStep:
    """Builds a training step of a GPT-like decoder.

    Args:
        batch: Sequences in a batch; `None` for a step that takes any number.
        tokens: Length of a sequence.
        width: Numbers in the representation of one token; a multiple of `heads`.
        layers: Blocks of attention and feed-forward network.
        heads: Attention heads in a block.
        vocabulary: Different tokens.
        seed: What weights, sequences and dropout are drawn from.
        optimizer: `"sgd"` (with momentum) or `"adam"`.

    Returns:
        A step of token numbers and the next ones, both int32 [batch, tokens].
    """
    sizes = TransformerSizes(tokens, width, layers, heads, vocabulary)
    build_model = partial(_build_model, sizes)
    inputs = next_token_sequences(batch or EXAMPLE_BATCH, tokens, vocabulary, seed)
    return compile_training_step(
        "gpt", build_model, inputs, seed=seed, optimizer=optimizer, any_batch=batch is None
    )


def _build_model(sizes: TransformerSizes) -> keras.Model:
    import keras

    token_ids = keras.Input((sizes.tokens,), dtype="int32")
    features = keras.layers.Dropout(DROPOUT_RATE)(embed(token_ids, sizes))
    for _ in range(sizes.layers):
        normalized = keras.layers.LayerNormalization()(features)
        features = features + attend(normalized, sizes, causal=True)
        normalized = keras.layers.LayerNormalization()(features)
        features = features + feed_forward(normalized, sizes)
    features = keras.layers.LayerNormalization()(features)
    return keras.Model(token_ids, keras.layers.Dense(sizes.vocabulary)(features), name="gpt")


if __name__ == "__main__":
    run_as_program(gpt)
