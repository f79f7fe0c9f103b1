"""Windows where branches and loops have chains of their own: no edge between, no turn ahead."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.side_by_side import Execution
from support.small_buffers import LOOP, SIZE_BYTES, equal_buffers, spell

from memopt.buffers.buffer_graph import MemoryTimeline, simulate
from memopt.graph.text import parse_graph
from memopt.sequencing.enforcement import enforce, find_chains, find_pairs
from memopt.sequencing.frames import find_places
from memopt.sequencing.precedence import Precedence
from memopt.sequencing.quickening import Quick, Quickening
from memopt.sequencing.windowed_enforcement import (
    enforce_within,
    find_chains_windows,
    find_waits,
)
from memopt.sequencing.windows import Room

PLENTY_BYTES = 1 << 40
EXECUTIONS = 30


def update_in_branch(layers: int) -> str:
    """Gradients beside each other, and a branch that applies them or does not."""
    lines = ["x = Placeholder() {dtype=float}", "now = Placeholder() {dtype=bool}"]
    before = "x"
    for number in range(layers):
        lines.append(f"gradient{number} = Neg({before}) {{T=float}}")
        lines.append(f"weight{number} = Square({before}) {{T=float}}")
        before = f"gradient{number}"
    for number in range(layers):
        lines.append(f"s{number} = Switch(weight{number}, now) {{T=float}}")
        lines.append(f"then{number} = Neg(s{number}:1) {{T=float}}")
        lines.append(f"applied{number} = Square(then{number}) {{T=float}}")
        lines.append(f"else{number} = Neg(s{number}) {{T=float}}")
        lines.append(f"m{number} = Merge(else{number}, applied{number}) {{N=2, T=float}}")
    return "\n".join(lines)


def ordered(text: str) -> tuple[MemoryTimeline, Precedence]:
    buffers = equal_buffers(parse_graph(text))
    precedence = Precedence(buffers.producers)
    return simulate(buffers, precedence.program), precedence


def edges_within(text: str, limit_bytes: int, threads: int = 2) -> list[str]:
    timeline, precedence = ordered(text)
    chains = enforce_within(timeline, precedence, limit_bytes=limit_bytes, threads=threads)
    return spell(timeline.buffer_graph, chains)


def test_with_room_operations_beside_a_branch_run_side_by_side() -> None:
    text = update_in_branch(6)
    timeline, precedence = ordered(text)
    strict = spell(timeline.buffer_graph, enforce(timeline.buffer_graph, precedence.program))
    assert any(edge.startswith(("gradient", "weight")) for edge in strict)
    assert any(edge.startswith(("then", "applied")) for edge in strict)
    assert edges_within(text, PLENTY_BYTES) == []
    assert edges_within(text, PLENTY_BYTES, threads=1) == strict


def test_without_room_something_waits() -> None:
    text = update_in_branch(6)
    timeline, _ = ordered(text)
    assert edges_within(text, timeline.peak_bytes)


def test_turns_of_a_loop_keep_their_order_however_much_room_there_is() -> None:
    assert sorted(edges_within(LOOP, PLENTY_BYTES)) == ["a>b", "less>also"]


@pytest.mark.parametrize("text", [update_in_branch(5), LOOP], ids=["branch", "loop"])
@settings(max_examples=40, deadline=None)
@given(more=st.integers(0, 6), threads=st.integers(2, 4), seed=st.integers(0, 9))
def test_edges_hold_each_chain_to_its_windows(
    text: str, more: int, threads: int, seed: int
) -> None:
    """In any execution all has ended that should have, and no edge joins two places."""
    timeline, precedence = ordered(text)
    buffers = timeline.buffer_graph
    limit_bytes = timeline.peak_bytes + more * SIZE_BYTES
    chains = enforce_within(timeline, precedence, limit_bytes=limit_bytes, threads=threads)
    places = find_places(buffers.nodes, timeline.sequence)
    producers = [list(before) for before in buffers.producers]
    for before, after in (edge for chain in chains for edge in chain.edges):
        assert places[before] == places[after]
        producers[after].append(before)
    free = find_chains(buffers, timeline.sequence)
    room = Room(limit_bytes, threads)
    pairs = find_pairs(buffers)
    others = [find_waits(timeline, precedence, chain.nodes, pairs) for chain in free]
    found = find_chains_windows(timeline, free, others, pairs, room)
    draw = Random(seed)
    for _ in range(EXECUTIONS):
        run = Execution(buffers, producers, threads, draw)
        for window in found:
            for node, wait in zip(window.chain, window.waits, strict=True):
                assert run.before[node].issuperset(window.chain[: wait + 1])


def test_a_step_with_a_branch_takes_less_time_in_windows_than_one_by_one() -> None:
    timeline, precedence = ordered(update_in_branch(40))
    names = [node.name for node in timeline.buffer_graph.nodes]
    times_ns = [100 if name.startswith(("gradient", "weight")) else 1 for name in names]
    two = Quickening(precedence, times_ns, 2, list)
    one_by_one_ns = two.time_ns(Quick(timeline, 0))
    quick = two.quickest([timeline], [timeline.peak_bytes])
    assert two.time_ns(quick) < 0.8 * one_by_one_ns
