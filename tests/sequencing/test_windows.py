"""Windows: what runs side by side within them never has more in use than was worked out."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_steps import random_graphs
from support.side_by_side import Execution
from support.small_buffers import SmallGraph, Step, small_graph, spell

from memopt.buffers.buffer_graph import simulate
from memopt.sequencing import windowed_enforcement, windows
from memopt.sequencing.ancestry import MOST_AHEAD
from memopt.sequencing.enforcement import enforce
from memopt.sequencing.windowed_enforcement import enforce_within
from memopt.sequencing.windows import HighestUsage, highest_usage

if TYPE_CHECKING:
    from memopt.sequencing.enforcement import Chain

EXECUTIONS = 20


def held(graph: SmallGraph, limit_bytes: int, threads: int = 2) -> list[Chain]:
    timeline = simulate(graph.buffers, graph.precedence.program)
    return enforce_within(timeline, graph.precedence, limit_bytes=limit_bytes, threads=threads)


def producers_with(graph: SmallGraph, chains: list[Chain]) -> list[list[int]]:
    producers = [list(before) for before in graph.buffers.producers]
    for chain in chains:
        for before, after in chain.edges:
            producers[after].append(before)
    return producers


def edges_of(graph: SmallGraph, chains: list[Chain]) -> list[str]:
    return spell(graph.buffers, chains)


def highest_of(graph: SmallGraph, chains: list[Chain], threads: int) -> HighestUsage:
    buffers = replace(graph.buffers, producers=producers_with(graph, chains))
    timeline = simulate(buffers, graph.precedence.program)
    highest = highest_usage(timeline, chains[0].nodes, threads)
    assert highest is not None
    return highest


@settings(max_examples=150, deadline=None)
@given(
    random_graphs(),
    st.integers(2, 4),
    st.sampled_from([1.0, 1.2, 2.0]),
    st.integers(0, 9),
    st.sampled_from([2, MOST_AHEAD]),
    st.sampled_from([1, 10]),
)
def test_no_execution_needs_more_than_is_allowed(
    graph: SmallGraph, threads: int, share: float, seed: int, most_ahead: int, most_edges: int
) -> None:
    """However little may run ahead, and however few edges there may be."""
    reach = 2 * (most_ahead + 1)
    with (
        mock.patch.multiple(windows, MOST_AHEAD=most_ahead, REACH=reach),
        mock.patch.multiple(
            windowed_enforcement, REACH=reach, _MOST_EDGES=most_edges, _MORE_EDGES=0
        ),
    ):
        check_executions(graph, threads, share, seed)


def check_executions(graph: SmallGraph, threads: int, share: float, seed: int) -> None:
    timeline = simulate(graph.buffers, graph.precedence.program)
    limit_bytes = int(timeline.held_bytes + share * timeline.step_peak_bytes)
    chains = held(graph, limit_bytes, threads)
    producers = producers_with(graph, chains)
    draw = Random(seed)
    runs = [Execution(graph.buffers, producers, threads, draw) for _ in range(EXECUTIONS)]
    peaks = [run.peak_bytes for run in runs]
    if not chains:
        assert max(peaks) <= timeline.peak_bytes
        return
    # The two of a pair may run side by side even where each waits for the last one.
    strict = enforce(graph.buffers, graph.precedence.program)
    allowed_bytes = max(limit_bytes, *highest_of(graph, strict, threads).first_bytes)
    assert max(peaks) <= allowed_bytes
    highest = highest_of(graph, chains, threads)
    assert max(peaks) <= max(highest.first_bytes) <= allowed_bytes
    for node, most_bytes in zip(chains[0].nodes, highest.running_bytes, strict=True):
        assert max(run.most_bytes[node] for run in runs) <= most_bytes


def branches(count: int) -> SmallGraph:
    """As many results of 100 bytes as there are branches, each read by what makes 10 of it."""
    steps = [Step("x", (), 10)]
    for number in range(count):
        steps.append(Step(f"large{number}", ("x",), 100))
        steps.append(Step(f"small{number}", (f"large{number}",), 10, lasting=True))
    return small_graph(steps)


def test_within_the_peak_of_the_sequence_each_waits_for_the_last_one() -> None:
    graph = branches(3)
    peak_bytes = simulate(graph.buffers, graph.precedence.program).peak_bytes
    chains = held(graph, peak_bytes)
    assert edges_of(graph, chains) == ["small0>large1", "small1>large2"]
    assert chains == enforce(graph.buffers, graph.precedence.program)


def test_with_more_room_two_run_side_by_side() -> None:
    graph = branches(4)
    peak_bytes = simulate(graph.buffers, graph.precedence.program).peak_bytes
    chains = held(graph, peak_bytes + 110)
    # The last one does not wait for the one before it, which waits for the first.
    assert edges_of(graph, chains) == ["small0>large2", "small1>large3", "small0>large3"]
    draw = Random(1)
    producers = producers_with(graph, chains)
    runs = [Execution(graph.buffers, producers, 2, draw) for _ in range(EXECUTIONS)]
    assert max(run.most_running for run in runs) == 2
    # Two large results at once.
    assert max(run.peak_bytes for run in runs) > peak_bytes


def test_with_much_room_nothing_waits_but_for_what_is_far_behind() -> None:
    graph = branches(MOST_AHEAD)
    edges = held(graph, 1 << 40)[0].edges
    assert edges
    assert all(after - before > MOST_AHEAD for before, after in edges)


def test_too_many_edges_make_windows_narrower() -> None:
    graph = branches(500)
    wide = held(graph, 1 << 40)
    with mock.patch.multiple(windowed_enforcement, _MOST_EDGES=2, _MORE_EDGES=0):
        narrow = held(graph, 1 << 40)
    count = len(graph.buffers.nodes)
    assert len(wide[0].edges) > 2 * count >= len(narrow[0].edges) > 0
    # Not one after the other: two of the large results may be there at once.
    before, after = (
        max(highest_of(graph, chains, 2).first_bytes) for chains in (enforced(graph), narrow)
    )
    assert after > before


def enforced(graph: SmallGraph) -> list[Chain]:
    return enforce(graph.buffers, graph.precedence.program)


def test_pairs_wait_for_what_is_far_behind() -> None:
    """The second of them is one place further away."""
    names = ("x", "sizes", "gradient")
    steps = [*(Step(name, (), 8) for name in names), Step("far", (), 100, lasting=True)]
    steps += [Step(f"free{number}", (), 8, lasting=True) for number in range(3 * MOST_AHEAD)]
    steps.append(Step("filter", names, 8, op="Conv2DBackpropFilter", lasting=True))
    steps.append(Step("bias", ("gradient",), 8, op="BiasAddGrad", lasting=True))
    edges = edges_of(graph := small_graph(steps), held(graph, 1 << 40))
    for_filter, for_bias = (
        {edge.split(">")[0] for edge in edges if edge.endswith(name)}
        for name in (">filter", ">bias")
    )
    assert for_filter == for_bias
    assert len(for_filter) > 1


def test_one_thread_leaves_nothing_free() -> None:
    graph = branches(3)
    assert held(graph, 1 << 40, threads=1) == enforce(graph.buffers, graph.precedence.program)


def test_what_takes_over_memory_waits_for_those_that_read_it() -> None:
    """Were the reader to run later, there would be a second buffer."""
    graph = small_graph(
        [
            Step("x", (), 100),
            Step("reader", ("x",), 8, lasting=True),
            Step("over", ("x",), 100, reuses=("x",), lasting=True),
        ]
    )
    assert edges_of(graph, held(graph, 1 << 40)) == ["reader>over"]


def test_what_is_not_ordered_has_no_bound() -> None:
    graph = branches(MOST_AHEAD)
    timeline = simulate(graph.buffers, graph.precedence.program)
    nodes = list(timeline.sequence)
    assert highest_usage(timeline, nodes, 2) is None


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_scratch_memory_counts_for_as_many_as_there_are_threads(threads: int) -> None:
    steps = [Step(f"a{number}", (), 1, scratch_bytes=100 * number) for number in range(1, 5)]
    graph = small_graph(steps)
    timeline = simulate(graph.buffers, graph.precedence.program)
    highest = highest_usage(timeline, list(timeline.sequence), threads)
    assert highest is not None
    assert highest.first_bytes[0] == 4 + sum((400, 300, 200)[:threads])
