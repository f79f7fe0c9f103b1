"""BufferGraph: what a sequence of nodes has in use, against sums by hand and a slow allocator."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memopt.buffers.buffer_graph import (
    SCRATCH,
    BufferGraph,
    MemoryEvent,
    check_sequence,
    simulate,
)
from memopt.buffers.working_sets import WorkingSet, largest_working_set
from memopt.errors import OptionsError
from memopt.graph.graph import Graph
from memopt.sequencing.threads import ThreadedRun, simulate_threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.graph.graph import Node


def nodes(count: int) -> tuple[Node, ...]:
    graph = Graph()
    return tuple(graph.add_node(f"n{number}", "A", attributes={}) for number in range(count))


def buffer_graph(  # noqa: PLR0913 - all that a buffer graph is, by keyword
    *,
    made: list[list[int]],
    read: list[list[int]],
    size_bytes: list[int],
    producers: list[list[int]] | None = None,
    scratch_bytes: list[int] | None = None,
    lasting: Sequence[int] = (),
    reusable: dict[int, list[int]] | None = None,
) -> BufferGraph:
    return BufferGraph(
        nodes(len(made)),
        producers or [[] for _ in made],
        made,
        read,
        size_bytes,
        scratch_bytes or [0] * len(made),
        [number in lasting for number in range(len(size_bytes))],
        [(reusable or {}).get(number, []) for number in range(len(size_bytes))],
    )


def chain(
    scratch_bytes: list[int] | None = None,
    lasting: Sequence[int] = (),
    producers: list[list[int]] | None = None,
) -> BufferGraph:
    """Three nodes, each of which reads what the one before it makes."""
    return buffer_graph(
        made=[[0], [1], [2]],
        read=[[], [0], [1]],
        size_bytes=[100, 40, 8],
        producers=producers,
        scratch_bytes=scratch_bytes,
        lasting=lasting,
    )


def pieces(*, lasting: Sequence[int] = ()) -> BufferGraph:
    """A node that takes over a piece of what the one before it made; the last makes more of it."""
    return buffer_graph(
        made=[[0], [1], [2], [3]],
        read=[[], [0], [1], [2]],
        size_bytes=[100, 40, 40, 8],
        lasting=lasting,
        reusable={1: [0], 2: [1]},
    )


def test_who_takes_over_a_piece_of_a_buffer_keeps_all_of_it() -> None:
    timeline = simulate(pieces(), (0, 1, 2, 3))
    assert timeline.usage_bytes == [100, 100, 100, 108]
    assert timeline.larger_bytes == {1: 100, 2: 100}
    assert [timeline.memory_bytes(buffer) for buffer in range(4)] == [100, 100, 100, 8]
    assert list(timeline.events()) == [
        MemoryEvent(0, "allocate", 0, 100),
        MemoryEvent(3, "allocate", 3, 8),
        MemoryEvent(3, "free", 2, 100),
        MemoryEvent(3, "free", 3, 8),
    ]


def test_a_piece_that_lasts_keeps_the_whole_buffer_to_the_end() -> None:
    timeline = simulate(pieces(lasting=[2]), (0, 1, 2, 3))
    assert timeline.usage_bytes == [100, 100, 100, 108]
    assert [event for event in timeline.events() if event.kind == "free"] == [
        MemoryEvent(3, "free", 3, 8)
    ]


def test_a_piece_is_taken_over_by_threads_too() -> None:
    run = ThreadedRun([0, 1, 2, 3], [0, 1, 2, 3], [1, 2, 3, 4])
    timeline = simulate_threads(pieces(), run)
    assert timeline.usage_bytes == [100, 100, 100, 108]
    assert timeline.larger_bytes == {1: 100, 2: 100}


def test_a_buffer_is_in_use_from_its_maker_to_the_end_of_its_last_reader() -> None:
    timeline = simulate(chain(), (0, 1, 2))
    assert timeline.usage_bytes == [100, 140, 48]
    assert (timeline.peak_bytes, timeline.peak_position) == (140, 1)
    assert list(timeline.events()) == [
        MemoryEvent(0, "allocate", 0, 100),
        MemoryEvent(1, "allocate", 1, 40),
        MemoryEvent(1, "free", 0, 100),
        MemoryEvent(2, "allocate", 2, 8),
        MemoryEvent(2, "free", 1, 40),
        MemoryEvent(2, "free", 2, 8),
    ]


def test_the_sequence_decides_who_reads_last() -> None:
    """Node 1 and 2 both read buffer 0; only node 2's is large."""
    graph = buffer_graph(
        made=[[0], [1], [2], [3]], read=[[], [0], [0], [1, 2]], size_bytes=[100, 5, 60, 1]
    )
    assert simulate(graph, (0, 1, 2, 3)).usage_bytes == [100, 105, 165, 66]
    assert simulate(graph, (0, 2, 1, 3)).usage_bytes == [100, 160, 165, 66]


def test_what_nobody_reads_is_free_when_its_maker_has_ended() -> None:
    graph = buffer_graph(made=[[0, 1], [2]], read=[[], [0]], size_bytes=[10, 1000, 1])
    assert simulate(graph, (0, 1)).usage_bytes == [1010, 11]


def test_scratch_memory_counts_while_its_node_runs() -> None:
    graph = chain(scratch_bytes=[0, 0, 500])
    timeline = simulate(graph, (0, 1, 2))
    assert timeline.usage_bytes == [100, 140, 548]
    assert timeline.peak_position == 2
    assert [event for event in timeline.events() if event.buffer == SCRATCH] == [
        MemoryEvent(2, "allocate", SCRATCH, 500),
        MemoryEvent(2, "free", SCRATCH, 500),
    ]


def test_a_fetched_buffer_is_never_freed() -> None:
    graph = chain(lasting=[0])
    assert simulate(graph, (0, 1, 2)).usage_bytes == [100, 140, 148]


def test_what_no_node_makes_is_held_from_the_start() -> None:
    """Buffer 3 is a constant."""
    graph = buffer_graph(made=[[0], [1]], read=[[2], [0, 2]], size_bytes=[100, 40, 7], lasting=[2])
    timeline = simulate(graph, (0, 1))
    assert timeline.held_bytes == 7
    assert timeline.usage_bytes == [107, 147]
    assert timeline.step_peak_bytes == 140


def test_a_variable_keeps_its_new_value_and_loses_its_old_one() -> None:
    """Node 0 computes a value from the old one, node 1 updates, node 2 runs after it."""
    graph = buffer_graph(
        made=[[1], [], [2]], read=[[0], [0, 1], []], size_bytes=[50, 50, 3], lasting=[1]
    )
    timeline = simulate(graph, (0, 1, 2))
    assert timeline.usage_bytes == [100, 100, 53]
    assert MemoryEvent(1, "free", 0, 50) in list(timeline.events())


def test_the_last_reader_puts_its_result_into_what_it_reads() -> None:
    graph = buffer_graph(
        made=[[0], [1], [2]],
        read=[[], [0], [1]],
        size_bytes=[100, 100, 100],
        reusable={1: [0], 2: [1]},
    )
    timeline = simulate(graph, (0, 1, 2))
    assert timeline.usage_bytes == [100, 100, 100]
    assert timeline.reused == {1: 0, 2: 1}
    assert list(timeline.events()) == [
        MemoryEvent(0, "allocate", 0, 100),
        MemoryEvent(2, "free", 2, 100),
    ]


def test_nothing_is_overwritten_that_is_read_later_or_lasts() -> None:
    shared = buffer_graph(
        made=[[0], [1], [2]],
        read=[[], [0], [0, 1]],
        size_bytes=[100, 100, 1],
        reusable={1: [0]},
    )
    assert simulate(shared, (0, 1, 2)).usage_bytes == [100, 200, 201]
    lasting = buffer_graph(
        made=[[0], [1]], read=[[], [0]], size_bytes=[100, 100], lasting=[0], reusable={1: [0]}
    )
    assert simulate(lasting, (0, 1)).usage_bytes == [100, 200]


def test_a_kernel_tries_inputs_in_order_and_takes_each_once() -> None:
    """Node 2 makes two buffers; both would take buffer 0, the second has buffer 1 left."""
    graph = buffer_graph(
        made=[[0], [1], [2, 3]],
        read=[[], [], [0, 1]],
        size_bytes=[100, 100, 100, 100],
        reusable={2: [0, 1], 3: [0, 1]},
    )
    timeline = simulate(graph, (0, 1, 2))
    assert timeline.reused == {2: 0, 3: 1}
    assert timeline.usage_bytes == [100, 200, 200]


def test_nodes_that_do_not_run_hold_nothing() -> None:
    timeline = simulate(chain(), (0,))
    assert timeline.usage_bytes == [100]
    assert list(timeline.events())[-1] == MemoryEvent(0, "free", 0, 100)


def test_an_empty_sequence_has_what_is_held() -> None:
    timeline = simulate(buffer_graph(made=[[]], read=[[]], size_bytes=[9]), ())
    assert (timeline.peak_bytes, timeline.peak_position) == (9, -1)
    assert list(timeline.events()) == []


def test_a_sequence_that_cannot_run_is_refused() -> None:
    graph = chain(producers=[[], [0], [1]])
    check_sequence(graph, (0, 1, 2))
    check_sequence(graph, (0,))
    with pytest.raises(OptionsError, match="'n1' comes before 'n0', which it needs"):
        check_sequence(graph, (1, 0, 2))
    with pytest.raises(OptionsError, match="'n0' is in the sequence twice"):
        check_sequence(graph, (0, 0))
    with pytest.raises(OptionsError, match="node 3, but the graph 3 nodes"):
        check_sequence(graph, (3,))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[BufferGraph, list[int]]:
    """A random graph and a sequence of it that can run, which need not have all nodes."""
    sizes = st.sampled_from([0, 8, 8, 16, 100])
    size_bytes = draw(st.lists(sizes, max_size=3))
    made: list[list[int]] = []
    read: list[list[int]] = []
    producers: list[list[int]] = []
    maker: dict[int, int] = {}
    reusable: list[list[int]] = [[] for _ in size_bytes]
    for node in range(draw(st.integers(1, 9))):
        known = list(range(len(size_bytes)))
        reads = draw(st.lists(st.sampled_from(known), unique=True, max_size=4)) if known else []
        read.append(reads)
        producers.append(sorted({maker[buffer] for buffer in reads if buffer in maker}))
        made.append([])
        for size in draw(st.lists(sizes, max_size=2)):
            buffer = len(size_bytes)
            alike = [source for source in reads if size_bytes[source] == size]
            reusable.append(draw(st.permutations(alike))[: draw(st.integers(0, 3))])
            size_bytes.append(size)
            made[-1].append(buffer)
            maker[buffer] = node
    lasting = [draw(st.sampled_from([False, False, True])) for _ in size_bytes]
    scratch_bytes = [draw(st.sampled_from([0, 0, 30])) for _ in made]
    graph = BufferGraph(
        nodes(len(made)), producers, made, read, size_bytes, scratch_bytes, lasting, reusable
    )
    sequence: list[int] = []
    wanted = set(draw(st.lists(st.sampled_from(range(len(made))), max_size=9)))
    while ready := [n for n in sorted(wanted) if set(producers[n]) <= set(sequence)]:
        sequence.append(draw(st.sampled_from(ready)))
        wanted.remove(sequence[-1])
    return graph, sequence


def slow_usage(graph: BufferGraph, sequence: list[int]) -> list[int]:
    """The same by counting pieces of memory: each has the buffers that lie in it."""
    made = {buffer for buffers in graph.made for buffer in buffers}
    memory = {
        buffer: buffer for buffer in range(len(graph.size_bytes)) if buffer not in made
    }  # buffer -> the piece of memory that it lies in
    usage_bytes = []
    for position, node in enumerate(sequence):
        later = {buffer for other in sequence[position + 1 :] for buffer in graph.read[other]}
        held = {buffer for buffer in memory if buffer in later or graph.lasting[buffer]}
        taken: set[int] = set()
        for buffer in graph.made[node]:
            free = [s for s in graph.reusable[buffer] if s not in held and s not in taken]
            memory[buffer] = memory[free[0]] if free else buffer
            taken.update(free[:1])
        pieces = set(memory.values())
        usage_bytes.append(sum(graph.size_bytes[piece] for piece in pieces))
        usage_bytes[-1] += graph.scratch_bytes[node]
        for buffer in list(memory):
            used = buffer in graph.read[node] or buffer in graph.made[node]
            if used and buffer not in later and not graph.lasting[buffer]:
                del memory[buffer]
    return usage_bytes


@given(graphs())
def test_usage_is_that_of_an_allocator_that_counts_pieces(
    example: tuple[BufferGraph, list[int]],
) -> None:
    graph, sequence = example
    check_sequence(graph, sequence)
    timeline = simulate(graph, sequence)
    assert timeline.usage_bytes == slow_usage(graph, sequence)
    assert timeline.peak_bytes == max(timeline.usage_bytes, default=timeline.held_bytes)
    assert timeline.peak_position == (
        timeline.usage_bytes.index(timeline.peak_bytes) if sequence else -1
    )


@given(graphs())
def test_events_add_up_to_the_usage(example: tuple[BufferGraph, list[int]]) -> None:
    graph, sequence = example
    timeline = simulate(graph, sequence)
    events = list(timeline.events())
    changes = [e.size_bytes if e.kind == "allocate" else -e.size_bytes for e in events]
    totals = list(accumulate(changes, initial=timeline.held_bytes))
    for position, usage in enumerate(timeline.usage_bytes):
        first = sum(event.position < position for event in events)
        last = sum(event.position <= position for event in events)
        assert usage == max(totals[first : last + 1])
    assert timeline.peak_bytes == max(totals)


@given(graphs())
def test_what_is_live_adds_up_to_the_usage(example: tuple[BufferGraph, list[int]]) -> None:
    graph, sequence = example
    timeline = simulate(graph, sequence)
    for position, usage in enumerate(timeline.usage_bytes):
        sizes = [graph.size_bytes[buffer] for buffer in timeline.live_at(position)]
        assert sizes == sorted(sizes, reverse=True)
        assert usage == sum(sizes) + graph.scratch_bytes[sequence[position]]


def test_the_results_at_the_peak_are_the_steps_own() -> None:
    graph = buffer_graph(
        made=[[1], [2], [3]], read=[[0], [1], [2]], size_bytes=[1000, 30, 40, 5], lasting=[0]
    )
    timeline = simulate(graph, (0, 1, 2))
    assert timeline.results_at_peak() == [2, 1]
    assert simulate(graph, ()).results_at_peak() == []


# --- working sets --------------------------------------------------------------------------------


def test_the_largest_working_set_is_what_one_node_needs() -> None:
    """Node 1 reads 100 and makes 40; with a constant and scratch memory beside."""
    assert largest_working_set(chain(), range(3)) == WorkingSet(1, 140)
    assert largest_working_set(chain(scratch_bytes=[0, 0, 95]), range(3)) == WorkingSet(2, 143)
    held = buffer_graph(made=[[0], [1]], read=[[2], [0]], size_bytes=[9, 4, 7], lasting=[2])
    assert largest_working_set(held, range(2)) == WorkingSet(1, 20)
    assert largest_working_set(held, ()) == WorkingSet(-1, 7)


def test_what_takes_over_memory_needs_none() -> None:
    graph = buffer_graph(made=[[0], [1]], read=[[], [0]], size_bytes=[100, 100], reusable={1: [0]})
    assert largest_working_set(graph, range(2)).size_bytes == 100


def test_one_value_of_each_variable_is_always_there() -> None:
    """Node 2 reads nothing, but the variable's old value or its new one is in use."""
    graph = buffer_graph(
        made=[[1], [], [2]], read=[[0], [0, 1], []], size_bytes=[50, 50, 30], lasting=[1]
    )
    assert largest_working_set(graph, (2,)).size_bytes == 30
    assert largest_working_set(graph, range(3)) == WorkingSet(2, 80)


@given(graphs())
def test_no_sequence_is_below_the_largest_working_set(
    example: tuple[BufferGraph, list[int]],
) -> None:
    graph, sequence = example
    assert simulate(graph, sequence).peak_bytes >= largest_working_set(graph, sequence).size_bytes
