"""Replicas on several devices: a budget is that of each, and they train as they did."""

from __future__ import annotations

from typing import Any

import pytest
from support.child import run_child

PATIENT = "--planning_seconds=0"


def train(options: str) -> dict[str, Any]:
    return run_child("replicas", options, TF_CPU_ALLOCATOR_USE_BFC="1", MEMOPT_FLAGS=PATIENT)


@pytest.mark.slow
def test_a_share_lowers_the_peak_of_both_replicas_together() -> None:
    """The two devices are the host's, which has one allocator: it counts both."""
    off, half = train(""), train('{"budget": "50%"}')
    assert half["losses"] == off["losses"]
    assert half["weights"] == off["weights"]
    ((held, before, after, budget),) = half["records"]
    assert after - held <= 0.6 * (before - held)
    assert after <= budget
    # What is held may be less than before: constants as large as what they repeat are gone.
    assert half["peak_bytes"] <= budget
    # How far the replicas overlap is a matter of timing: by one result in order, freely by many.
    assert half["step_peak_bytes"] >= 0.6 * (after - held)
    assert 0.5 * (before - held) <= off["step_peak_bytes"] <= 1.25 * (before - held)
