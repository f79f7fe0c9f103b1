"""Random token sequences: what the language models train on."""

from __future__ import annotations

import numpy as np


def next_token_sequences(
    batch: int, tokens: int, vocabulary: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws sequences and, as targets, the same sequences one token later.

    Returns:
        Token numbers and targets, both int32 [batch, tokens].
    """
    generator = np.random.default_rng(seed)
    sequences = generator.integers(vocabulary, size=(batch, tokens + 1), dtype=np.int32)
    return np.ascontiguousarray(sequences[:, :-1]), np.ascontiguousarray(sequences[:, 1:])


def masked_sequences(
    batch: int, tokens: int, vocabulary: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws sequences and hides some of their tokens behind token 0.

    Returns:
        Token numbers with the hidden ones replaced, int32 [batch, tokens]; the original ones,
        likewise; and weights, float32 [batch, tokens], 1 where a token is hidden, else 0.
    """
    masked_share = 0.15
    generator = np.random.default_rng(seed)
    targets = generator.integers(1, vocabulary, size=(batch, tokens), dtype=np.int32)
    # At least one in each sequence, else a short one would have no loss.
    masked_tokens = max(1, round(masked_share * tokens))
    ranks = generator.random((batch, tokens)).argsort(axis=1)
    masked = ranks < masked_tokens
    return np.where(masked, np.int32(0), targets), targets, masked.astype(np.float32)
