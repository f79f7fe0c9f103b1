"""Orders in which the allocator finds room: what they keep, and that they are found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from support.both_ways import assert_same_without_compiler
from support.remat_networks import random_network

from memopt.allocator.packing import pack
from memopt.allocator.training import AllocatorLimit, least_limit_bytes
from memopt.buffers.buffer_graph import BufferGraph, MemoryTimeline, check_sequence, simulate

SCALE = 60_000
"""What random sizes are multiplied with, so that the allocator's regions are many."""


def timeline_of(seed: int, count: int = 80) -> MemoryTimeline:
    network = random_network(Random(seed), count)
    graph = network.buffer_graph
    graph.size_bytes[:] = [size * SCALE for size in graph.size_bytes]
    return simulate(graph, network.sequence)


def events_of(timeline: MemoryTimeline) -> Counter[tuple[int, str, int]]:
    """What each node asks for and gives back."""
    sequence = timeline.sequence
    return Counter((sequence[e.position], e.kind, e.buffer) for e in timeline.events())


@pytest.mark.parametrize("seed", range(12))
def test_a_packed_step_does_the_same_in_another_order(seed: int) -> None:
    timeline = timeline_of(seed)
    limit_bytes = int(0.97 * least_limit_bytes(timeline))
    allocator = AllocatorLimit(limit_bytes, 1 << 12)
    packed = pack(timeline, allocator, timeline.peak_bytes, {})
    if packed is None:
        return
    check_sequence(timeline.buffer_graph, packed.sequence)
    assert sorted(packed.sequence) == sorted(timeline.sequence)
    assert events_of(packed) == events_of(timeline)
    assert packed.peak_bytes <= timeline.peak_bytes
    assert not allocator.is_short(packed)
    again = pack(timeline, allocator, timeline.peak_bytes, {})
    assert again is not None
    assert again.sequence == packed.sequence


def test_room_is_found_for_many_that_had_none() -> None:
    found = 0
    for seed in range(12):
        timeline = timeline_of(seed)
        limit_bytes = int(0.97 * least_limit_bytes(timeline))
        if AllocatorLimit(limit_bytes).is_short(timeline):
            found += pack(timeline, AllocatorLimit(limit_bytes), limit_bytes, {}) is not None
    assert found >= 4


def test_what_stands_side_by_side_stays_so() -> None:
    found = 0
    for seed in range(12):
        timeline = timeline_of(seed)
        sequence = timeline.sequence
        pairs = {sequence[at]: sequence[at + 1] for at in range(0, len(sequence) - 1, 3)}
        limit_bytes = int(0.99 * least_limit_bytes(timeline))
        packed = pack(timeline, AllocatorLimit(limit_bytes), limit_bytes, pairs)
        if packed is None:
            continue
        found += 1
        place = {node: at for at, node in enumerate(packed.sequence)}
        assert all(place[second] == place[first] + 1 for first, second in pairs.items())
    assert found


def test_there_is_no_room_below_the_peak() -> None:
    timeline = timeline_of(0)
    assert pack(timeline, AllocatorLimit(timeline.peak_bytes // 2), 1 << 40, {}) is None
    assert pack(timeline, AllocatorLimit(1 << 12), 1 << 40, {}) is None


def test_a_step_of_nothing_needs_no_room() -> None:
    empty = BufferGraph((), [], [], [], [], [], [], [])
    packed = pack(simulate(empty, []), AllocatorLimit(1 << 20), 0, {})
    assert packed is not None
    assert packed.sequence == ()


@pytest.mark.slow
def test_without_a_compiler_the_allocator_does_the_same() -> None:
    """Where each training runs out of memory, and the layout that a step leaves."""
    program = (
        "from test_packing import timeline_of\n"
        "from memopt.allocator.training import find_shortage\n"
        "from memopt.compilation.jit import IS_COMPILED\n"
        "timelines = [timeline_of(seed, 40) for seed in range(4)]\n"
        "limits = [[int(t.peak_bytes * s) for s in (0.5, 1, 1.1, 1.2, 1.4)] for t in timelines]\n"
        "found = [find_shortage(t, l) for t, ls in zip(timelines, limits) for l in ls]\n"
        "print(IS_COMPILED, found)\n"
    )
    assert_same_without_compiler(program, Path(__file__).parent)
