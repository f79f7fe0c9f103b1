"""BERT: a transformer encoder that guesses masked tokens."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memopt.models.compilation import compile_training_step
from memopt.models.program import run_as_program
from memopt.models.sequences import masked_sequences
from memopt.models.training_step import EXAMPLE_BATCH
from memopt.models.transformer import DROPOUT_RATE, TransformerSizes, attend, embed, feed_forward

if TYPE_CHECKING:
    import keras

    from memopt.models.compilation import OptimizerName
    from memopt.models.training_step import TrainingStep


def bert(  # noqa: PLR0913 - the sizes of a model, all by name
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
    """Builds a training step of a BERT-like encoder.

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
        A step of masked token numbers and original ones, both int32 [batch, tokens], and weights,
        float32 [batch, tokens], that are 1 where a token is masked, else 0.
    """
    sizes = TransformerSizes(tokens, width, layers, heads, vocabulary)
    build_model = partial(_build_model, sizes)
    inputs = masked_sequences(batch or EXAMPLE_BATCH, tokens, vocabulary, seed)
    return compile_training_step(
        "bert", build_model, inputs, seed=seed, optimizer=optimizer, any_batch=batch is None
    )


def _build_model(sizes: TransformerSizes) -> keras.Model:
    import keras

    token_ids = keras.Input((sizes.tokens,), dtype="int32")
    features = keras.layers.LayerNormalization()(embed(token_ids, sizes))
    features = keras.layers.Dropout(DROPOUT_RATE)(features)
    for _ in range(sizes.layers):
        attended = features + attend(features, sizes, causal=False)
        features = keras.layers.LayerNormalization()(attended)
        transformed = features + feed_forward(features, sizes)
        features = keras.layers.LayerNormalization()(transformed)
    features = keras.layers.Dense(sizes.width, activation="gelu")(features)
    features = keras.layers.LayerNormalization()(features)
    return keras.Model(token_ids, keras.layers.Dense(sizes.vocabulary)(features), name="bert")


if __name__ == "__main__":
    run_as_program(bert)
