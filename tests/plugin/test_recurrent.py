"""Recurrent layers inside TensorFlow: what their loops hold is predicted, and budgets are kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.child import run_child

FEATURES = {"convolutional": 4 * 12 * 16 * 16 * 4 * 4}
"""Bytes of a batch that is copied in the step and predicted as held before."""

LAYERS = (
    "lstm",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("gru", "bidirectional", "convolutional")
    ),
)


def trained(layer: str, options: dict[str, Any] | None) -> dict[str, Any]:
    return run_child("recurrent", layer, json.dumps(options), TF_CPU_ALLOCATOR_USE_BFC="1")


@pytest.mark.parametrize("layer", LAYERS)
def test_what_loops_hold_is_predicted(layer: str) -> None:
    """Within a budget, with the same bits. Not split, as what can be depends on earlier trials."""
    off = trained(layer, None)
    within = trained(layer, {"budget": "70%", "pass_options": ["fission{most_parts=1}"]})
    ((outcome, reason, predicted),) = within["records"]
    assert outcome == "rewritten", reason
    assert within["weights"] == off["weights"]
    batch_bytes = FEATURES.get(layer, 64 * 48 * 32 * 4)
    # Two loops side by side may be further apart than is predicted.
    assert within["own"] <= predicted * (1.05 if layer == "bidirectional" else 1.02) + batch_bytes
    assert within["own"] >= predicted * 0.9
    # How many convolutions run at once in the original is a matter of chance.
    if layer != "convolutional":
        assert within["own"] < 0.85 * off["own"]


@pytest.mark.parametrize(
    ("layer", "budget"),
    [
        pytest.param("narrow lstm", "40%", marks=pytest.mark.slow),
        pytest.param("narrow gru", "30%", marks=pytest.mark.slow),
        pytest.param("bidirectional", "20%", marks=pytest.mark.exhaustive),
        pytest.param("convolutional", "20%", marks=pytest.mark.slow),
    ],
)
def test_turns_run_again_within_a_lower_budget(layer: str, budget: str) -> None:
    """No order of the loops as they are needs so little."""
    off = trained(layer, None)
    within = trained(layer, {"budget": budget})
    ((outcome, reason, predicted),) = within["records"]
    assert outcome == "rewritten", reason
    assert reason.startswith("checkpoint-loops")
    assert within["weights"] == off["weights"]
    batch_bytes = FEATURES.get(layer, 64 * 48 * 32 * 4)
    # Two loops side by side may be further apart than is predicted.
    assert within["own"] <= predicted * (1.15 if layer == "bidirectional" else 1.03) + batch_bytes
    if layer != "convolutional":
        assert within["own"] < (float(budget[:-1]) + 5) / 100 * off["own"] + batch_bytes


def test_without_a_budget_loops_with_lists_keep_their_time() -> None:
    ((outcome, reason, _),) = trained("lstm", {})["records"]
    assert outcome == "passed over"
    assert "no budget asks for one" in reason
