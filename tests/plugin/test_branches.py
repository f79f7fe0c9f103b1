"""Models with branches inside TensorFlow: budgets are kept, whatever decides the branches."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.child import run_child


def trained(kind: str, options: dict[str, Any] | None) -> dict[str, Any]:
    return run_child("branches", kind, json.dumps(options), TF_CPU_ALLOCATOR_USE_BFC="1")


@pytest.mark.parametrize(
    ("kind", "budget", "done"),
    [
        ("scan", "50%", "fold-branches"),
        pytest.param("depth", "40%", "bypass-optionals", marks=pytest.mark.slow),
    ],
)
def test_a_budget_is_kept_with_the_same_bits(kind: str, budget: str, done: str) -> None:
    """No tensor behind a branch has a known size, and none can be recomputed, as they are."""
    off, within = trained(kind, None), trained(kind, {"budget": budget})
    ((outcome, reason, predicted),) = within["records"]
    assert outcome == "rewritten", reason
    assert done in reason
    assert within["weights"] == off["weights"]
    assert within["own"] <= predicted * 1.02
    if kind == "scan":
        # How many blocks a step leaves out is a matter of chance.
        assert within["own"] >= predicted * 0.95
        assert within["own"] < 0.55 * off["own"]
