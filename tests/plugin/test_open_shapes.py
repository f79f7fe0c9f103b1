"""Steps of which Grappler is told no batch, and steps in loops: predicted, and within budgets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.child import run_child

PIPELINE_BYTES = 4 * 2 * 256 * 256 * 4
"""What a data set may have made ready, which is none of the step's."""


def trained(kind: str, options: dict[str, Any] | None) -> dict[str, Any]:
    return run_child("open_shapes", kind, json.dumps(options), TF_CPU_ALLOCATOR_USE_BFC="1")


@pytest.mark.parametrize(
    "kind",
    [
        "keras fit",
        "open signature",
        pytest.param("loop", marks=pytest.mark.slow),
        pytest.param("iterator", marks=pytest.mark.slow),
        pytest.param("recurrent", marks=pytest.mark.slow),
        pytest.param("keras loop", marks=pytest.mark.slow),
        pytest.param("branch", marks=pytest.mark.slow),
        pytest.param("data set", marks=pytest.mark.slow),
    ],
)
def test_a_budget_is_kept_with_the_same_bits(kind: str) -> None:
    off = trained(kind, None)
    within = trained(kind, {"budget": "60%"})
    assert within["digest"] == off["digest"]
    ((outcome, reason, before_bytes, after_bytes),) = within["records"]
    assert outcome == "rewritten", reason
    held_bytes = within["held"]
    assert after_bytes - held_bytes <= 0.6 * (before_bytes - held_bytes)
    off_by = abs(within["own"] - (after_bytes - held_bytes))
    assert off_by <= 0.05 * (after_bytes - held_bytes) + PIPELINE_BYTES
    # How many turns of the original loops run at once is a matter of chance.
    share = 0.25 if kind == "recurrent" else 0.1
    assert off["own"] == pytest.approx(before_bytes - held_bytes, rel=share, abs=PIPELINE_BYTES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["padded", "texts"])
def test_of_a_size_that_nobody_knows_a_share_is_kept(kind: str) -> None:
    """A usual length stands for the one that sequences are padded to, which each batch decides."""
    off = trained(kind, None)
    within = trained(kind, {"budget": "50%"})
    assert within["digest"] == off["digest"]
    ((outcome, reason, _, _),) = within["records"]
    assert outcome == "rewritten"
    assert "a usual size is assumed of what" in reason
    assert within["own"] <= 0.5 * off["own"] + PIPELINE_BYTES


@pytest.mark.slow
def test_of_a_size_that_nobody_knows_no_order_is_chosen() -> None:
    assert trained("padded", {})["records"] == []
