"""Quickening: of sequences that need about the same, the one that keeps threads busy."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_steps import random_graphs
from support.small_buffers import SmallGraph, Step, small_graph

from memopt.buffers.buffer_graph import MemoryTimeline, simulate
from memopt.sequencing.quickening import Quick, Quickening
from memopt.sequencing.threads import Gates, run_on_threads

LAYERS = 300
"""So many that what is put off to the end lies outside of all windows."""


def layers(count: int) -> SmallGraph:
    """A chain, and beside each of its operations one as long that can wait for the end."""
    steps = [Step("gradient0", (), 8)]
    for number in range(1, count + 1):
        steps.append(Step(f"gradient{number}", (f"gradient{number - 1}",), 8))
        steps.append(Step(f"weight{number}", (f"gradient{number - 1}",), 8))
        steps.append(Step(f"update{number}", (f"weight{number}",), 1, lasting=True))
    return small_graph(steps)


def in_order(graph: SmallGraph, *kinds: str) -> MemoryTimeline:
    """The operations of one kind after the other."""
    names = [node.name for node in graph.buffers.nodes]
    keys = [next(n for n, kind in enumerate(kinds) if name.startswith(kind)) for name in names]
    return simulate(graph.buffers, graph.precedence.sorted_by(keys))


def quickening(graph: SmallGraph, threads: int) -> Quickening:
    times_ns = [10] * len(graph.buffers.nodes)
    return Quickening(graph.precedence, times_ns, threads, list)


GRAPH = layers(LAYERS)
LATE = in_order(GRAPH, "gradient", "weight", "update")
SOON = simulate(GRAPH.buffers, GRAPH.precedence.program)


def test_what_keeps_threads_busy_takes_less_time() -> None:
    two = quickening(GRAPH, 2)
    limit_bytes = LATE.peak_bytes
    late_ns, soon_ns = (two.time_ns(Quick(each, limit_bytes)) for each in (LATE, SOON))
    assert soon_ns == pytest.approx(len(GRAPH.buffers.nodes) / 2 * 10, rel=0.02)
    assert late_ns > 1.1 * soon_ns


def test_a_quicker_sequence_is_taken_only_with_more_threads_than_one() -> None:
    # The quicker one is no candidate for the first limit here.
    limits_bytes = [SOON.peak_bytes, LATE.peak_bytes]
    assert quickening(GRAPH, 1).quickest([SOON, LATE], limits_bytes).timeline is SOON
    assert quickening(GRAPH, 2).quickest([SOON, LATE], limits_bytes).timeline is SOON


def test_what_is_put_off_is_pulled_forward_within_the_limit() -> None:
    two = quickening(GRAPH, 2)
    timeline, limit_bytes = two.quickest([LATE], [LATE.peak_bytes])
    assert timeline.sequence != LATE.sequence
    assert timeline.peak_bytes <= limit_bytes <= LATE.peak_bytes
    late_ns = two.time_ns(Quick(LATE, LATE.peak_bytes))
    assert two.time_ns(Quick(timeline, limit_bytes)) < 0.92 * late_ns


def test_more_memory_is_taken_only_for_less_time() -> None:
    """One chain has one order: no limit makes it quicker."""
    names = [f"n{number}" for number in range(20)]
    reads = [(), *((name,) for name in names)]
    chain = small_graph([Step(name, read, 8) for name, read in zip(names, reads, strict=False)])
    timeline = simulate(chain.buffers, chain.precedence.program)
    limits_bytes = [timeline.peak_bytes, 2 * timeline.peak_bytes]
    found = quickening(chain, 2).quickest([timeline], limits_bytes)
    assert found == Quick(timeline, timeline.peak_bytes)


@settings(max_examples=150, deadline=None)
@given(random_graphs(), st.integers(1, 4), st.integers(0, 1 << 30))
def test_nothing_passes_a_gate_before_it_opens(graph: SmallGraph, threads: int, seed: int) -> None:
    draw = Random(seed)
    chain = graph.precedence.program
    waits = [draw.randint(-1, place - 1) for place in range(len(chain))]
    times_ns = [draw.randint(1, 5) for _ in chain]
    found = run_on_threads(
        graph.buffers, graph.precedence, times_ns, threads, [Gates(chain, waits)]
    )
    assert sorted(found.sequence) == sorted(chain)
    for node, wait in zip(chain, waits, strict=True):
        assert all(found.end_ns[o] <= found.start_ns[node] for o in chain[: wait + 1])
