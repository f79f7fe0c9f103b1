"""Ways to train that are set up before TensorFlow starts: done, and the same to the last bit."""

from __future__ import annotations

import pytest
from support.child import run_child
from support.programs.pairs import rewritten_kinds
from support.programs.ways import WAYS

QUICK = ("mixed_precision", "eager")


@pytest.mark.parametrize(
    "names",
    [QUICK, pytest.param(tuple(way for way in WAYS if way not in QUICK), marks=pytest.mark.slow)],
    ids=len,
)
def test_results_are_the_same_to_the_last_bit(names: tuple[str, ...]) -> None:
    found = run_child("ways", *names, MEMOPT_FLAGS="--only_lower=false")
    for name, trained in found.items():
        rewritten = rewritten_kinds(name, trained)
        assert rewritten == ([] if name == "eager" else ["function"]), name
