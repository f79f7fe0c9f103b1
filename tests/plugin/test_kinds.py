"""Training steps of all kinds, rewritten inside TensorFlow: done, and the same to the last bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from support.child import run_child
from support.programs.steps import KINDS

OPTIONS = ("level=ordered", "level=recomputation_heuristics", "budget=50%")


def is_slow(options: str = "level=ordered", **_: Any) -> bool:
    """One level is enough where minutes count."""
    return options != "level=ordered"


@cache
def trained(options: str) -> dict[str, Any]:
    return run_child("kinds", options)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_the_same_to_the_last_bit(kind: str, options: str) -> None:
    found = trained(options)[kind]
    assert found["with"] == found["without"]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_failed(kind: str, options: str) -> None:
    assert [r["error"] for r in trained(options)[kind]["records"] if r["error"]] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_was_ordered(kind: str) -> None:
    records = trained("level=ordered")[kind]["records"]
    rewritten = [record for record in records if record["outcome"] == "rewritten"]
    assert len(rewritten) == 1
    assert rewritten[0]["kind"] == ("session" if kind == "session" else "function")
