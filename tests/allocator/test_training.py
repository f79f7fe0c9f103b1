"""Steps in the simulated allocator, beside real steps under the real one's limit."""

from __future__ import annotations

import pytest
from support.small_buffers import Step, small_graph
from support.steps import tiny_step

from memopt.allocator.training import (
    AllocatorLimit,
    Shortage,
    find_shortage,
    has_room,
    least_limit_bytes,
)
from memopt.buffers.buffer_graph import MemoryTimeline, simulate
from memopt.errors import OutOfMemoryError
from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.optimizer import MemoryOptimizer
from memopt.runtime.entry import as_program
from memopt.runtime.process import step_process
from memopt.runtime.settings import Settings

MIB = 1 << 20


@pytest.fixture(scope="module")
def tiny() -> MemoryTimeline:
    item = GrapplerItem.from_concrete_function(tiny_step("mlp").function)
    runtime = MemoryOptimizer("ordered").optimize(None, item).report.runtime
    assert runtime is not None
    return runtime.after


def test_what_is_to_be_left_takes_a_higher_limit(tiny: MemoryTimeline) -> None:
    limit_bytes = max(least_limit_bytes(tiny), 4 * MIB)
    assert has_room(tiny, limit_bytes)
    assert not has_room(tiny, limit_bytes, spare_bytes=limit_bytes)
    assert least_limit_bytes(tiny, limit_bytes) > limit_bytes


def test_a_limit_below_what_is_held_has_no_room(tiny: MemoryTimeline) -> None:
    assert find_shortage(tiny, tiny.held_bytes // 2) == Shortage(-1, -1)
    assert not has_room(tiny, tiny.peak_bytes - 1)


def test_what_is_missing_is_what_the_least_limit_is_above(tiny: MemoryTimeline) -> None:
    least_bytes = least_limit_bytes(tiny)
    assert AllocatorLimit(least_bytes).missing_bytes(tiny) == 0
    short = AllocatorLimit(tiny.peak_bytes - 256)
    assert short.is_short(tiny)
    assert short.missing_bytes(tiny) == least_bytes - short.limit_bytes > 0


def test_a_new_value_elsewhere_is_what_the_next_step_finds() -> None:
    """Each step puts the variable where the other half of the memory was free."""
    graph = small_graph([Step("old", (), 8 * MIB), Step("new", ("old",), 8 * MIB, lasting=True)])
    moved = graph.buffers
    moved.made[0].clear()
    moved.next_values[0] = 1
    timeline = simulate(moved, [0, 1])
    assert timeline.peak_bytes == 16 * MIB
    # 2, 4 and 8 MiB are too small in all; then there is one region for each value.
    assert has_room(timeline, 32 * MIB)
    assert find_shortage(timeline, 12 * MIB) == Shortage(0, 1)


@pytest.mark.parametrize("share", [pytest.param(1.0, marks=pytest.mark.slow), 0.7])
def test_a_step_runs_where_room_is_predicted(share: float) -> None:
    """A real step under the lowest limit that is predicted to be enough, in whole MiB."""
    step = MODELS["mlp"](batch=4000, width=128, layers=8)
    item = GrapplerItem.from_concrete_function(step.function)
    ordered = MemoryOptimizer("ordered").optimize(None, item).report.runtime
    assert ordered is not None
    budget = int(ordered.after.held_bytes + share * ordered.after.step_peak_bytes)
    result = MemoryOptimizer("ordered", budget=budget).optimize(None, item)
    assert result.report.runtime is not None
    timeline = result.report.runtime.after
    limit_bytes = next(
        limit for limit in range(MIB, 1 << 30, MIB) if has_room(timeline, limit, MIB // 8)
    )
    assert limit_bytes < 1.5 * timeline.peak_bytes
    program = as_program(step.function, step.inputs).replace_graph(result.graph_def)
    with step_process(program, Settings(memory_limit_bytes=limit_bytes)) as process:
        process.run(3)
        assert process.measure().peak_bytes == pytest.approx(timeline.peak_bytes, rel=0.01)


@pytest.mark.parametrize(
    ("limit_mebibytes", "steps"),
    [
        (20, (0, 0)),
        (21, (2, 2)),
        pytest.param(22, (3, 30), marks=pytest.mark.slow),
        pytest.param(28, (40, 40), marks=pytest.mark.slow),
    ],
)
def test_training_runs_out_of_memory_about_when_it_is_predicted(
    limit_mebibytes: int, steps: tuple[int, int]
) -> None:
    """Momentum gets its new value elsewhere in each step, until no hole is large enough.

    In the first steps it is told exactly; small constants, whose places are not known, tell later.
    """
    step = MODELS["mlp"](batch=64, width=512, layers=8)
    item = GrapplerItem.from_concrete_function(step.function)
    result = MemoryOptimizer("ordered").optimize(None, item)
    assert result.report.runtime is not None
    shortage = find_shortage(result.report.runtime.after, limit_mebibytes * MIB)
    first, last = steps
    assert first <= (40 if shortage is None else shortage.step) <= last
    program = as_program(step.function, step.inputs).replace_graph(result.graph_def)
    settings = Settings(memory_limit_bytes=limit_mebibytes * MIB)
    with step_process(program, settings) as process:
        ran = 0
        try:
            while ran < 40:
                process.run(1)
                ran += 1
        except OutOfMemoryError:
            pass
    assert first <= ran <= last
