"""TensorFlow's allocator simulated: its rules, and beside the real one, chunk by chunk."""

from __future__ import annotations

import pytest
from support.steps import tiny_step

from memopt.costs.best_fit import BestFit, has_room, least_limit_bytes
from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.optimizer import MemoryOptimizer
from memopt.runtime.entry import as_program
from memopt.runtime.process import step_process
from memopt.runtime.settings import Settings

MIB = 1 << 20


def test_what_is_freed_is_used_again_and_grows_together() -> None:
    allocator = BestFit(2 * MIB)
    places = [allocator.allocate(MIB // 2) for _ in range(4)]
    assert None not in places
    assert allocator.allocate(1) is None
    for place in places[1:3]:
        allocator.free(place or 0)
    assert allocator.allocate(MIB + 1) is None
    assert allocator.allocate(MIB) == places[1]


def test_a_chunk_is_only_split_if_half_of_it_is_left() -> None:
    allocator = BestFit(2 * MIB)
    assert allocator.allocate(MIB + 256) is not None
    assert allocator.allocate(256) is None, "the rest went to the first"


def test_nothing_reaches_over_the_end_of_a_region() -> None:
    """2, 4 and 8 MiB: of 14 MiB in all, nothing has more than 8."""
    allocator = BestFit(14 * MIB)
    places = [allocator.allocate(2 * MIB) for _ in range(7)]
    assert None not in places
    for place in places:
        allocator.free(place or 0)
    assert allocator.allocate(9 * MIB) is None
    assert allocator.allocate(8 * MIB) is not None


def test_the_smallest_chunk_that_is_large_enough_is_taken() -> None:
    allocator = BestFit(2 * MIB)
    large, _, small, _ = (allocator.allocate(size * 256) for size in (900, 1, 600, 1))
    allocator.free(large or 0)
    allocator.free(small or 0)
    assert allocator.allocate(500 * 256) == small


def test_what_can_be_had_in_one_piece_is_the_largest_hole_or_what_was_not_taken_yet() -> None:
    allocator = BestFit(6 * MIB)
    assert allocator.largest_bytes == 6 * MIB
    places = [allocator.allocate(MIB) for _ in range(2)]
    assert allocator.largest_bytes == 4 * MIB
    assert allocator.allocate(4 * MIB) is not None
    assert allocator.largest_bytes == 0
    allocator.free(places[0] or 0)
    assert allocator.largest_bytes == MIB


def test_what_is_to_be_left_takes_a_higher_limit() -> None:
    item = GrapplerItem.from_concrete_function(tiny_step("mlp").function)
    runtime = MemoryOptimizer("ordered").optimize(None, item).report.runtime
    assert runtime is not None
    limit_bytes = max(least_limit_bytes(runtime.after), 4 * MIB)
    assert has_room(runtime.after, limit_bytes)
    assert not has_room(runtime.after, limit_bytes, spare_bytes=limit_bytes)
    assert least_limit_bytes(runtime.after, limit_bytes) > limit_bytes


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_a_step_runs_where_room_is_predicted(share: float) -> None:
    """A real step under the allocator's limit, 10 % above what is predicted to be enough.

    What runs side by side takes small pieces in an order that differs from run to run.
    """
    step = MODELS["mlp"](batch=4000, width=128, layers=8)
    item = GrapplerItem.from_concrete_function(step.function)
    ordered = MemoryOptimizer("ordered").optimize(None, item).report.runtime
    assert ordered is not None
    budget = int(ordered.after.held_bytes + share * ordered.after.step_peak_bytes)
    result = MemoryOptimizer("ordered", budget=budget).optimize(None, item)
    assert result.report.runtime is not None
    timeline = result.report.runtime.after
    limit_bytes = int(1.1 * least_limit_bytes(timeline)) // MIB * MIB
    assert has_room(timeline, limit_bytes)
    program = as_program(step.function, step.inputs).replace_graph(result.graph_def)
    with step_process(program, Settings(memory_limit_bytes=limit_bytes)) as process:
        process.run(1)
        assert process.measure().peak_bytes == pytest.approx(timeline.peak_bytes, rel=0.01)
    assert not has_room(timeline, timeline.peak_bytes - 1)
    assert limit_bytes < 1.5 * timeline.peak_bytes


def test_a_limit_below_what_is_held_has_no_room() -> None:
    item = GrapplerItem.from_concrete_function(tiny_step("mlp").function)
    runtime = MemoryOptimizer("ordered").optimize(None, item).report.runtime
    assert runtime is not None
    assert not has_room(runtime.after, runtime.after.held_bytes // 2)
