"""The threads of TensorFlow's executor: on small graphs by hand, and by laws on random ones."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_steps import random_graphs
from support.small_buffers import SmallGraph, Step, small_graph

from memopt.buffers.buffer_graph import check_sequence, simulate
from memopt.sequencing.threads import ThreadedRun, run_on_threads, simulate_threads


def run(graph: SmallGraph, threads: int, times_ns: dict[str, int] | None = None) -> ThreadedRun:
    times = [(times_ns or {}).get(node.name, 10) for node in graph.buffers.nodes]
    return run_on_threads(graph.buffers, graph.precedence, times, threads)


def spans(graph: SmallGraph, found: ThreadedRun) -> dict[str, tuple[int, int]]:
    return {
        graph.buffers.nodes[node].name: (found.start_ns[node], found.end_ns[node])
        for node in found.sequence
    }


BACKWARD = small_graph(
    [
        Step("loss", (), 8),
        Step("weight1", ("loss",), 100, lasting=True),
        Step("gradient1", ("loss",), 8),
        Step("weight2", ("gradient1",), 100, lasting=True),
        Step("gradient2", ("gradient1",), 8),
        Step("weight3", ("gradient2",), 100, lasting=True),
        Step("gradient3", ("gradient2",), 8),
    ]
)
"""A chain, and beside each of its nodes another one that the same node makes ready."""


def test_one_thread_follows_the_chain_and_comes_back() -> None:
    assert BACKWARD.names(run(BACKWARD, 1).sequence) == [
        "loss",
        "gradient1",
        "gradient2",
        "gradient3",
        "weight3",
        "weight2",
        "weight1",
    ]


def test_another_thread_takes_what_has_waited_longest() -> None:
    assert spans(BACKWARD, run(BACKWARD, 2, {"weight1": 25})) == {
        "loss": (0, 10),
        "gradient1": (10, 20),
        "weight1": (10, 35),
        "gradient2": (20, 30),
        "gradient3": (30, 40),
        "weight2": (35, 45),
        "weight3": (40, 50),
    }


def test_what_is_not_expensive_runs_at_once_on_the_same_thread() -> None:
    graph = small_graph(
        [
            Step("a", (), 8),
            Step("b", ("a",), 8),
            Step("c", ("a",), 0, aliases=True, op="Identity"),
            Step("of_c", ("c",), 8),
        ]
    )
    assert graph.names(run(graph, 1).sequence) == ["a", "c", "of_c", "b"]


def test_memory_is_held_until_all_readers_have_ended() -> None:
    graph = small_graph(
        [
            Step("x", (), 100),
            Step("slow", ("x",), 1, scratch_bytes=30),
            Step("fast", ("x",), 1),
            Step("next", ("fast",), 10),
            Step("last", ("next",), 10),
            Step("end", ("slow", "last"), 1),
        ]
    )
    timeline = simulate_threads(graph.buffers, run(graph, 2, {"slow": 25}))
    assert graph.names(timeline.sequence) == ["x", "fast", "slow", "next", "last", "end"]
    assert timeline.usage_bytes == [100, 101, 132, 142, 151, 12]
    assert timeline.peak_bytes == 151
    names = graph.names(timeline.sequence)
    (x,) = graph.buffers.made[0]
    assert timeline.last_position[x] == names.index("last")


@pytest.mark.parametrize(("threads", "is_reused"), [(1, True), (2, False)])
def test_what_another_thread_still_reads_is_not_taken_over(
    threads: int, *, is_reused: bool
) -> None:
    graph = small_graph(
        [
            Step("x", (), 100),
            Step("over", ("x",), 100, reuses=("x",)),
            Step("reader", ("x",), 4),
            Step("end", ("over", "reader"), 1),
        ]
    )
    timeline = simulate_threads(graph.buffers, run(graph, threads))
    assert bool(timeline.reused) == is_reused
    assert timeline.peak_bytes == (105 if is_reused else 204)


@settings(max_examples=150, deadline=None)
@given(random_graphs(), st.integers(1, 4), st.integers(0, 1 << 30))
def test_threads_run_everything_once_and_are_never_more(
    graph: SmallGraph, threads: int, seed: int
) -> None:
    draw = Random(seed)
    times_ns = [draw.randint(1, 5) for _ in graph.buffers.nodes]
    found = run_on_threads(graph.buffers, graph.precedence, times_ns, threads)
    assert sorted(found.sequence) == sorted(graph.precedence.program)
    check_sequence(graph.buffers, found.sequence)
    for node in found.sequence:
        assert found.end_ns[node] == found.start_ns[node] + times_ns[node]
        assert all(
            found.end_ns[p] <= found.start_ns[node] for p in graph.precedence.producers[node]
        )
        beside = (
            found.start_ns[o] <= found.start_ns[node] < found.end_ns[o] for o in found.sequence
        )
        assert sum(beside) <= threads


@settings(max_examples=150, deadline=None)
@given(random_graphs())
def test_with_one_thread_memory_is_that_of_the_sequence(graph: SmallGraph) -> None:
    found = run(graph, 1)
    alone, threaded = (
        simulate(graph.buffers, found.sequence),
        simulate_threads(graph.buffers, found),
    )
    assert threaded.usage_bytes == alone.usage_bytes
    assert threaded.reused == alone.reused
    assert threaded.peak_position == alone.peak_position
