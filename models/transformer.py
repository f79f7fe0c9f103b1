"""Transformer layers: what the encoder and the decoder share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras

DROPOUT_RATE = 0.1


@dataclass(frozen=True)
class TransformerSizes:
    """The sizes of a transformer.

    Attributes:
        tokens: Length of a sequence.
        width: Numbers in the representation of one token.
        layers: Blocks of attention and feed-forward network.
        heads: Attention heads in a block, each of width / heads numbers.
        vocabulary: Different tokens.
    """

    tokens: int
    width: int
    layers: int
    heads: int
    vocabulary: int


def embed(token_ids: keras.KerasTensor, sizes: TransformerSizes) -> keras.KerasTensor:
    """Adds up the embeddings of tokens and of their positions.

    Args:
        token_ids: Token numbers, int32 [batch, tokens].
        sizes: The transformer's sizes.

    Returns:
        float32 [batch, tokens, width].
    """
    import keras

    # Counted in the graph: an embedding of constants would be computed once and never trained.
    positions = keras.ops.cumsum(keras.ops.ones_like(token_ids), axis=1) - 1
    of_tokens = keras.layers.Embedding(sizes.vocabulary, sizes.width, name="token_embedding")
    of_positions = keras.layers.Embedding(sizes.tokens, sizes.width, name="position_embedding")
    return of_tokens(token_ids) + of_positions(positions)


def attend(
    features: keras.KerasTensor, sizes: TransformerSizes, *, causal: bool
) -> keras.KerasTensor:
    """Self-attention with dropout of its weights and its result, shaped as the features.

    Args:
        features: float32 [batch, tokens, width].
        sizes: The transformer's sizes.
        causal: Whether a token sees only itself and those before it.
    """
    import keras

    attention = keras.layers.MultiHeadAttention(
        sizes.heads, sizes.width // sizes.heads, dropout=DROPOUT_RATE
    )
    attended = attention(features, features, use_causal_mask=causal)
    return keras.layers.Dropout(DROPOUT_RATE)(attended)


def feed_forward(features: keras.KerasTensor, sizes: TransformerSizes) -> keras.KerasTensor:
    """Two dense layers with GELU between them and dropout, shaped as the features."""
    import keras

    hidden = keras.layers.Dense(4 * sizes.width, activation="gelu")(features)
    return keras.layers.Dropout(DROPOUT_RATE)(keras.layers.Dense(sizes.width)(hidden))
