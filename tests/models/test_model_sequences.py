"""The random sequences: shaped and masked as the language models need them."""

from __future__ import annotations

import numpy as np

from memopt.models.sequences import masked_sequences, next_token_sequences


def test_targets_are_the_next_tokens() -> None:
    token_ids, targets = next_token_sequences(batch=3, tokens=7, vocabulary=11, seed=0)
    assert token_ids.shape == targets.shape == (3, 7)
    assert token_ids.dtype == targets.dtype == np.int32
    assert np.array_equal(token_ids[:, 1:], targets[:, :-1])
    assert targets.max() < 11


def test_weights_mark_the_masked_tokens() -> None:
    token_ids, targets, weights = masked_sequences(batch=4, tokens=40, vocabulary=9, seed=0)
    masked = weights == 1
    assert (masked.sum(axis=1) == 6).all()
    assert (token_ids[masked] == 0).all()
    assert (targets > 0).all()
    assert np.array_equal(token_ids[~masked], targets[~masked])


def test_short_sequences_have_a_masked_token() -> None:
    _, _, weights = masked_sequences(batch=2, tokens=2, vocabulary=5, seed=0)
    assert (weights.sum(axis=1) == 1).all()
