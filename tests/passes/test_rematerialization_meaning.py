"""Rematerialized steps, run for real: the same bits, and a peak that keeps the limit."""

from __future__ import annotations

import pytest
from support.one_pass import run_pass
from support.steps import tiny_step

from memopt.api import optimize
from memopt.item import GrapplerItem
from memopt.models import MODELS, SESSION_MODELS
from memopt.passes.rematerialization import Rematerialization
from memopt.runtime.entry import verify
from memopt.runtime.program import Program


def ordered_peak_bytes(item: GrapplerItem) -> int:
    """The peak in the pass's order without any copy."""
    runtime = optimize(item, level="ordered").report.runtime
    assert runtime is not None
    return runtime.after.peak_bytes


@pytest.mark.parametrize("share", [pytest.param(0.8, marks=pytest.mark.slow), 0.6])
def test_the_real_peak_is_within_the_limit(share: float) -> None:
    step = MODELS["mlp"](batch=512, width=32, layers=8)
    item = GrapplerItem.from_concrete_function(step.function)
    limit_bytes = int(ordered_peak_bytes(item) * share)
    done = run_pass(item, Rematerialization(memory_limit=limit_bytes))
    assert all("in use at the peak" in one.reason for one in done.declined)
    assert any(name.startswith("Recomputed/") for edit in done.edits for name in edit.added)
    run = verify(step.function, done.graph_def, steps=2, timing_rounds=0)
    assert run.equal
    assert run.rewritten.peak_bytes <= limit_bytes
    assert run.rewritten.step_peak_bytes < run.original.step_peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize(("name", "algorithm"), [("bert", "best"), ("lstm", "path")])
def test_training_steps_keep_their_bits(name: str, algorithm: str) -> None:
    """With as many copies as can be of use; dropout is drawn once."""
    step = tiny_step(name)
    item = GrapplerItem.from_concrete_function(step.function)
    done = run_pass(item, Rematerialization(algorithm=algorithm))
    assert any(edit.added for edit in done.edits)
    program = Program.from_concrete_function(step.function, step.inputs)
    assert verify(program, done.graph_def, steps=3, timing_rounds=0).equal


def test_a_session_with_reference_variables_keeps_its_bits() -> None:
    step = SESSION_MODELS["convnet_v1"](batch=64, image_size=16, width=4, layers=4)
    item = GrapplerItem(step.graph_def, feed=step.feed, fetch=step.fetch)
    done = run_pass(item, Rematerialization())
    assert any(edit.added for edit in done.edits)
    program = Program.from_item(
        item,
        dict(zip(step.feed, step.inputs, strict=True)),
        seed=step.seed,
        initializer=step.initializer,
    )
    assert verify(program, done.graph_def, steps=2, timing_rounds=0).equal
