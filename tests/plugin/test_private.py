"""Gradients of each sample, by `tf.vectorized_map`: what its loops put into lists is known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.child import run_child


def trained(options: dict[str, Any] | None) -> dict[str, Any]:
    return run_child("private", json.dumps(options), TF_CPU_ALLOCATOR_USE_BFC="1")


@pytest.mark.slow
def test_gradients_of_samples_are_computed_again_once_their_norm_is_known() -> None:
    off, within = trained(None), trained({"budget": "50%"})
    ((outcome, reason, predicted),) = within["records"]
    assert outcome == "rewritten", reason
    assert within["weights"] == off["weights"]
    assert predicted * 0.95 <= within["own"] <= predicted * 1.02
    assert within["own"] < 0.55 * off["own"]
