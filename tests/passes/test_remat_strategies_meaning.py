"""Compressed and offloaded steps, run for real: the bits, and peaks that are what was planned."""

from __future__ import annotations

import pytest
from support.remat_runs import RematRun, run_remat
from support.steps import tiny_step

from memopt.item import GrapplerItem
from memopt.models import MODELS, SESSION_MODELS
from memopt.rematerialization.rewriting.summary import CHANGES_RESULTS, describe
from memopt.rematerialization.storage.compression import Compressor, Tile
from memopt.rematerialization.storage.offloading import Offloader
from memopt.runtime.entry import verify
from memopt.runtime.program import Program


def rematerialized(
    share: float,
    *,
    recompute: bool = False,
    compressor: Compressor | None = None,
    offloader: Offloader | None = None,
) -> tuple[Program, RematRun]:
    step = MODELS["mlp"](batch=512, width=32, layers=8)
    item = GrapplerItem.from_concrete_function(step.function)
    run = run_remat(item, share, recompute=recompute, compressor=compressor, offloader=offloader)
    assert run.planned_bytes == run.peak_bytes <= int(run.ordered_bytes * share)
    return Program.from_concrete_function(step.function, step.inputs), run


@pytest.mark.slow
@pytest.mark.parametrize("recompute", [False, True])
def test_offloading_keeps_the_planned_peak_to_the_byte(*, recompute: bool) -> None:
    program, planned = rematerialized(0.3, recompute=recompute, offloader=Offloader())
    assert planned.ops("swap_out_")
    assert len(planned.ops("swap_out_")) == len(planned.done.stored)
    run = verify(program, planned.graph_def, steps=2, timing_rounds=0)
    assert run.equal
    assert run.rewritten.step_peak_bytes == planned.peak_bytes
    assert run.rewritten.step_peak_bytes < 0.3 * run.original.step_peak_bytes


def test_transposing_keeps_all_bits() -> None:
    """The device that it is planned for pads; this one does not, so here nothing is saved."""
    program, planned = rematerialized(0.7, compressor=Compressor(Tile(8, 128)))
    assert "Transpose" in planned.ops("Compressed/")
    assert CHANGES_RESULTS not in describe(planned.done)
    assert verify(program, planned.graph_def, steps=2, timing_rounds=0).equal


@pytest.mark.parametrize("name", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_casting_is_near_saves_what_was_planned_and_is_reported(name: str) -> None:
    program, planned = rematerialized(0.75, compressor=Compressor(compress_to=name))
    assert f"({CHANGES_RESULTS})" in describe(planned.done)
    run = verify(program, planned.graph_def, steps=2, timing_rounds=0)
    assert run.rewritten.step_peak_bytes == planned.peak_bytes
    assert not run.equal
    for difference in run.differences:
        assert difference.max_abs_difference is not None
        assert difference.max_abs_difference < 0.01 * max(difference.magnitude, 1)


@pytest.mark.parametrize("name", ["bert", pytest.param("lstm", marks=pytest.mark.slow)])
def test_training_steps_keep_their_bits(name: str) -> None:
    """What is random is drawn once and can be stored, loops' results too."""
    step = tiny_step(name)
    item = GrapplerItem.from_concrete_function(step.function)
    run = run_remat(item, 0.6, recompute=True, offloader=Offloader())
    assert run.ops("swap_out_")
    program = Program.from_concrete_function(step.function, step.inputs)
    assert verify(program, run.graph_def, steps=3, timing_rounds=0).equal


def test_a_session_with_reference_variables_keeps_its_bits() -> None:
    step = SESSION_MODELS["convnet_v1"](batch=64, image_size=16, width=4, layers=4)
    item = GrapplerItem(step.graph_def, feed=step.feed, fetch=step.fetch)
    run = run_remat(item, 0.7, offloader=Offloader())
    assert run.ops("swap_out_")
    program = Program.from_item(
        item,
        dict(zip(step.feed, step.inputs, strict=True)),
        seed=step.seed,
        initializer=step.initializer,
    )
    assert verify(program, run.graph_def, steps=2, timing_rounds=0).equal
