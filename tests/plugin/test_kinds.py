"""Training steps of all kinds, rewritten inside TensorFlow: done, and the same to the last bit."""

from __future__ import annotations

import pytest
from support.child import run_child
from support.programs.pairs import rewritten_kinds
from support.programs.steps import KINDS


@pytest.mark.parametrize(
    "options",
    [
        "level=ordered",
        pytest.param("level=recomputation_heuristics", marks=pytest.mark.slow),
        pytest.param("budget=50%", marks=pytest.mark.slow),
    ],
)
def test_results_are_the_same_to_the_last_bit(options: str) -> None:
    """One process trains them all: to start TensorFlow takes longer than to train."""
    found = run_child("kinds", options, MEMOPT_FLAGS="--only_lower=false")
    assert found.keys() == KINDS.keys()
    for kind, trained in found.items():
        rewritten = rewritten_kinds(kind, trained)
        if options == "level=ordered":
            assert rewritten == ["session" if kind == "session" else "function"], kind
