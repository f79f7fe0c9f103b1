"""Windows where there are branches and loops: no edge out of a branch, and no turn ahead."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.side_by_side import Execution
from support.small_buffers import LOOP, SIZE_BYTES, equal_buffers, spell

from memopt.buffers.buffer_graph import MemoryTimeline, simulate
from memopt.graph.text import parse_graph
from memopt.sequencing.ancestry import Ancestry
from memopt.sequencing.branches import NO_BRANCHES, gather
from memopt.sequencing.enforcement import enforce, find_chains, find_pairs
from memopt.sequencing.frames import Side, find_places
from memopt.sequencing.precedence import Precedence
from memopt.sequencing.quickening import Quick, Quickening
from memopt.sequencing.windowed_enforcement import (
    enforce_within,
    find_chains_windows,
    find_waits,
)
from memopt.sequencing.windows import Room, highest_usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.graph.graph import Graph

PLENTY_BYTES = 1 << 40
EXECUTIONS = 20
SERIAL_LOOP = LOOP.replace("frame_name=", "parallel_iterations=1, frame_name=")


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


def test_where_no_turn_begins_before_the_last_has_ended_operations_run_side_by_side() -> None:
    assert edges_within(SERIAL_LOOP, PLENTY_BYTES) == []
    timeline, precedence = ordered(SERIAL_LOOP)
    strict = spell(timeline.buffer_graph, enforce(timeline.buffer_graph, precedence.program))
    assert edges_within(SERIAL_LOOP, PLENTY_BYTES, threads=1) == strict


@pytest.mark.parametrize(
    "text", [update_in_branch(5), LOOP, SERIAL_LOOP], ids=["branch", "loop", "turns apart"]
)
@settings(max_examples=40, deadline=None)
@given(more=st.integers(0, 6), threads=st.integers(2, 4), seed=st.integers(0, 9))
def test_edges_hold_each_chain_to_its_windows(
    text: str, more: int, threads: int, seed: int
) -> None:
    """In any execution all has ended that should have, and no edge comes out of a branch."""
    timeline, precedence = ordered(text)
    buffers = timeline.buffer_graph
    limit_bytes = timeline.peak_bytes + more * SIZE_BYTES
    chains = enforce_within(timeline, precedence, limit_bytes=limit_bytes, threads=threads)
    places = find_places(buffers.nodes, timeline.sequence)
    producers = [list(before) for before in buffers.producers]
    for before, after in (edge for chain in chains for edge in chain.edges):
        assert places[before].frames == places[after].frames
        assert places[before].conditions <= places[after].conditions
        producers[after].append(before)
    free = find_chains(buffers, timeline.sequence)
    room = Room(limit_bytes, threads)
    pairs = find_pairs(buffers)
    others = [find_waits(timeline, precedence, chain.nodes, pairs) for chain in free]
    found = find_chains_windows(timeline, free, others, pairs, room)
    draw = Random(seed)
    branches = chains[0].branches if chains else NO_BRANCHES
    for _ in range(EXECUTIONS):
        dead = not_taken(buffers, timeline.sequence, draw)
        run = Execution(buffers, producers, threads, draw, dead)
        for window in found:
            for node, wait in zip(window.chain, window.waits, strict=True):
                waited_for = {
                    other
                    for other in window.chain[: wait + 1]
                    if other not in dead and branches.may_wait(node, other)
                }
                assert node in dead or run.before[node] >= waited_for


def not_taken(buffers: BufferGraph, sequence: Sequence[int], draw: Random) -> frozenset[int]:
    """The nodes that do not run, if chance says which sides are taken."""
    taken: dict[tuple[int, int], int] = {}
    dead = set()
    for node, place in enumerate(find_places(buffers.nodes, sequence)):
        for side in place.conditions if not place.frames else ():
            assert isinstance(side, Side)
            if taken.setdefault(side.predicate, draw.randrange(side.sides)) != side.side:
                dead.add(node)
    return frozenset(dead)


@st.composite
def steps_with_branches(draw: st.DrawFn) -> str:
    """Operations beside and inside of branches, one after the other and in each other."""
    lines = ["x = Placeholder() {dtype=float}"]
    lines += [f"p{number} = Placeholder() {{dtype=bool}}" for number in range(3)]
    names = iter(f"n{number}" for number in range(1000))

    def add(values: list[str], count: int, depth: int) -> None:
        for _ in range(count):
            name = next(names)
            if depth < 2 and draw(st.integers(0, 3)) == 0:
                add_branch(name, values, depth)
                continue
            read = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2))
            lines.append(f"{name} = A({', '.join(read)})")
            values.append(name)

    def add_branch(name: str, values: list[str], depth: int) -> None:
        given_values = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        predicate = f"p{depth}" if depth else draw(st.sampled_from(["p0", "p2"]))
        switches = []
        for number, value in enumerate(given_values):
            switches.append(f"{name}/s{number}")
            lines.append(f"{switches[-1]} = Switch({value}, {predicate}) {{T=float}}")
        results = []
        for side in ("", ":1"):
            inner = [switch + side for switch in switches]
            add(inner, draw(st.integers(1, 4)), depth + 1)
            results.append(inner[-2:] if len(inner) > 1 else inner * 2)
        for number, (left, right) in enumerate(zip(*results, strict=True)):
            lines.append(f"{name}/m{number} = Merge({left}, {right}) {{N=2, T=float}}")
            values.append(f"{name}/m{number}")

    add(["x"], draw(st.integers(3, 10)), 0)
    return "\n".join(lines)


def handed_on(graph: Graph) -> BufferGraph:
    """A graph in numbers: Switch and Merge hand on what they read, and feeds are there before."""
    buffers = equal_buffers(graph)
    holds: list[list[int]] = []
    made: list[list[int]] = []
    read: list[list[int]] = []
    for place, node in enumerate(buffers.nodes):
        found = [held for source in buffers.producers[place] for held in holds[source]]
        is_alias = node.op in ("Switch", "Merge")
        read.append(list(dict.fromkeys(found)))
        made.append([] if is_alias or node.op == "Placeholder" else [place])
        holds.append(read[place] if is_alias else [place])
    lasting = [node.op == "Placeholder" for node in buffers.nodes]
    return replace(buffers, made=made, read=read, lasting=lasting)


def test_a_merge_tells_of_what_led_to_it_alone() -> None:
    """Of the side that was taken: `other` leads to another Merge, whichever side comes later."""
    text = """
    x = Placeholder() {dtype=float}
    p = Placeholder() {dtype=bool}
    s = Switch(x, p) {T=float}
    one = A(s:1)
    other = A(s:1)
    no = A(s)
    none = A(s)
    m = Merge(no, one) {N=2, T=float}
    n = Merge(none, other) {N=2, T=float}
    after = A(m)
    last = A(n)
    """
    buffers = handed_on(parse_graph(text))
    number = {node.name: place for place, node in enumerate(buffers.nodes)}
    for order in ("one other no none", "no none one other"):
        names = f"x p s {order} m n after last".split()
        sequence = [number[name] for name in names]
        (chain,) = find_chains(buffers, sequence)
        ancestry = Ancestry(buffers, sequence, chain.nodes, 100, {}, chain.branches)
        place = {node: at for at, node in enumerate(chain.nodes)}
        ended: dict[str, set[str]] = {}
        for name in ("after", "last"):
            bits = ancestry.of(number[name])
            at = place[number[name]]
            found = (
                buffers.nodes[chain.nodes[at - d]].name for d in range(1, at + 1) if bits >> d & 1
            )
            ended[name] = set(found)
        assert ended == {"after": {"one", "no", "m"}, "last": {"other", "none", "n"}}


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(steps_with_branches(), st.integers(2, 3), st.sampled_from([1.0, 1.3]), st.integers(0, 9))
def test_no_execution_needs_more_than_is_told_whichever_sides_are_taken(
    text: str, threads: int, share: float, seed: int
) -> None:
    """In sequences that chance found, once branches are gathered, with edges and without."""
    buffers = handed_on(parse_graph(text))
    precedence = Precedence(buffers.producers)
    draw = Random(seed)
    shuffled = precedence.sorted_by([draw.random() for _ in buffers.nodes])
    sequence = gather(buffers.nodes, precedence, shuffled)[seed % 2]
    timeline = simulate(buffers, sequence)
    limit_bytes = int(share * timeline.peak_bytes)
    for chains in (
        enforce_within(timeline, precedence, limit_bytes=limit_bytes, threads=threads),
        enforce(buffers, sequence),
        [],
    ):
        producers = [list(before) for before in buffers.producers]
        for before, after in (edge for chain in chains for edge in chain.edges):
            producers[after].append(before)
        held = replace(buffers, producers=producers)
        (chain,) = find_chains(held, sequence)
        highest = highest_usage(simulate(held, sequence), chain.nodes, threads, chain.branches)
        assert highest is not None
        for _ in range(EXECUTIONS):
            dead = not_taken(buffers, sequence, draw)
            run = Execution(buffers, producers, threads, draw, dead)
            assert run.peak_bytes <= max(highest.first_bytes)


LATE = (
    "x now weight0 gradient0 weight1 s0 else0 then0 applied0 m0 gradient1 s1 "
    "then1 else1 applied1 m1"
)
EARLY = (
    "x now weight0 s0 else0 then0 applied0 m0 gradient0 weight1 s1 then1 else1 "
    "applied1 m1 gradient1"
)


def test_a_branch_is_gathered_late_or_early() -> None:
    """Where its last operation stands, or where what it reads is there."""
    text = update_in_branch(2)
    buffers = equal_buffers(parse_graph(text))
    precedence = Precedence(buffers.producers)
    place = {node.name: number for number, node in enumerate(buffers.nodes)}
    mixed = (
        "x now weight0 s0 else0 gradient0 then0 weight1 applied0 gradient1 m0 s1 then1 else1 "
        "applied1 m1"
    )
    sequence = [place[name] for name in mixed.split()]
    late, early = gather(buffers.nodes, precedence, sequence)
    assert " ".join(buffers.nodes[node].name for node in late) == LATE
    assert " ".join(buffers.nodes[node].name for node in early) == EARLY


def test_a_step_with_a_branch_takes_less_time_in_windows_than_one_by_one() -> None:
    timeline, precedence = ordered(update_in_branch(40))
    names = [node.name for node in timeline.buffer_graph.nodes]
    times_ns = [100 if name.startswith(("gradient", "weight")) else 1 for name in names]
    two = Quickening(precedence, times_ns, 2, list)
    one_by_one_ns = two.time_ns(Quick(timeline, 0))
    quick = two.quickest([timeline], [timeline.peak_bytes])
    assert two.time_ns(quick) < 0.8 * one_by_one_ns
