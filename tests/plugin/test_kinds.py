"""Training steps of all kinds, rewritten inside TensorFlow: done, and the same to the last bit."""

from __future__ import annotations

import pytest
from support.child import run_child
from support.programs.pairs import rewritten_kinds
from support.programs.steps import KINDS

QUICK = ("function", "nested", "while_loop", "session", "keras_fit")


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ("level=ordered", QUICK),
        pytest.param(
            "level=ordered",
            tuple(kind for kind in KINDS if kind not in QUICK),
            marks=pytest.mark.slow,
        ),
        pytest.param("level=recomputation_heuristics", tuple(KINDS), marks=pytest.mark.exhaustive),
        pytest.param("budget=50%", tuple(KINDS), marks=pytest.mark.slow),
    ],
)
def test_results_are_the_same_to_the_last_bit(options: str, kinds: tuple[str, ...]) -> None:
    """One process trains them all: to start TensorFlow takes longer than to train."""
    found = run_child("kinds", options, *kinds, MEMOPT_FLAGS="--only_lower=false")
    assert found.keys() == set(kinds)
    for kind, trained in found.items():
        rewritten = rewritten_kinds(kind, trained)
        if options == "level=ordered":
            assert rewritten == ["session" if kind == "session" else "function"], kind
