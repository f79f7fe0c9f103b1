"""memopt inside TensorFlow under real conditions: memory measured, threads, forks, the end."""

from __future__ import annotations

from typing import Any

import pytest
from support.child import run_child, start_child

FLAGS = "--only_lower=false"
PATIENT = "--planning_seconds=0"


def train(options: str) -> Any:
    return run_child("memory", options, TF_CPU_ALLOCATOR_USE_BFC="1", MEMOPT_FLAGS=PATIENT)


def test_a_keras_fit_needs_less_memory_with_the_same_results() -> None:
    without, default = train(""), train("{}")
    assert default["weights"] == without["weights"]
    assert default["loss"] == without["loss"]
    assert default["step_peak_bytes"] < 0.85 * without["step_peak_bytes"]


@pytest.mark.slow
def test_a_keras_fit_keeps_to_a_budget_with_the_same_results() -> None:
    without, budget = train(""), train('{"budget": "50%"}')
    assert budget["weights"] == without["weights"]
    assert budget["loss"] == without["loss"]
    assert budget["step_peak_bytes"] < 0.6 * without["step_peak_bytes"]
    ((_, peak_bytes, budget_bytes),) = budget["records"]
    assert peak_bytes <= budget_bytes


@pytest.mark.slow
def test_a_keras_fit_that_runs_out_of_memory_runs_to_its_end_within_a_budget() -> None:
    limit = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "48"}
    assert run_child("limit", "", **limit)["is_out_of_memory"]
    unlimited = run_child("limit", "")
    for budget in ("36MiB", "device"):
        options = f'{{"budget": "{budget}"}}'
        assert run_child("limit", options, **limit, MEMOPT_FLAGS=PATIENT) == unlimited
    assert not unlimited["is_out_of_memory"]


def test_copies_are_not_merged_again() -> None:
    found = run_child("copies")
    assert found["as made"] == found["marked"] > found["unmarked"]
    assert found["fused"] > 0


@pytest.mark.slow
def test_a_process_forks_and_ends_as_it_would_without() -> None:
    assert start_child("lives") == {"light": True, "child": 0, "here": ["rewritten"]}


@pytest.mark.slow
def test_threads_do_not_disturb_each_other() -> None:
    found = run_child("stress", "1", "function", "not_inlined", MEMOPT_FLAGS=FLAGS)
    assert found["wrong"] == found["failed"] == []
    assert found["rewritten"] >= 8


@pytest.mark.parametrize(
    "seconds",
    [pytest.param(15, marks=pytest.mark.slow), pytest.param(120, marks=pytest.mark.exhaustive)],
)
def test_threads_do_not_disturb_each_other_for_long(seconds: int) -> None:
    kinds = ("function", "nested", "while_loop", "recurrent", "not_inlined", "session")
    found = run_child("stress", str(seconds), *kinds, MEMOPT_FLAGS=FLAGS)
    assert found["wrong"] == found["failed"] == []
