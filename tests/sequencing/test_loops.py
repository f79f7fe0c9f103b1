"""Loops made of Switch and Merge: what runs in them, and what comes before their end."""

from __future__ import annotations

import pytest

from memopt.errors import InvalidGraphError
from memopt.graph.text import parse_graph
from memopt.sequencing.frames import find_loop_entries, verify_loops
from memopt.sequencing.orders import SEQUENCERS
from memopt.sequencing.step import Step
from memopt.shapes.properties import Properties

LOOP = """
zero = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 }>}
late = Neg(zero) {T=int32}
first = Enter(zero) {T=int32, frame_name="f"}
second = Enter(late) {T=int32, frame_name="f"}
head = Merge(first, step) {T=int32, N=2}
kept = Merge(second, grown) {T=int32, N=2}
less = Less(head, head) {T=int32}
goes_on = LoopCond(less)
turn = Switch(head, goes_on) {T=int32}
turn2 = Switch(kept, goes_on) {T=int32}
more = Neg(turn:1) {T=int32}
step = NextIteration(more) {T=int32}
grow = Neg(turn2:1) {T=int32}
grown = NextIteration(grow) {T=int32}
out = Exit(turn) {T=int32}
used = Neg(out) {T=int32}
"""
"""A loop of two values, the second of which nobody asks for."""


@pytest.mark.parametrize("sequencer", SEQUENCERS)
def test_what_enters_comes_before_what_leaves(sequencer: str) -> None:
    graph = parse_graph(LOOP + "given = Neg(turn2) {T=int32}\n")
    step = Step.of(graph, Properties.unknown(), fetched={"used", "given"})
    order = [step.buffer_graph.nodes[place].name for place in step.sequence(sequencer)]
    assert order.index("late") < order.index("second") < order.index("goes_on")
    assert order.index("goes_on") < order.index("out") < order.index("used")


@pytest.mark.parametrize("sequencer", SEQUENCERS)
def test_the_body_of_a_loop_runs(sequencer: str) -> None:
    graph = parse_graph(LOOP)
    step = Step.of(graph, Properties.unknown(), fetched={"used"})
    order = {step.buffer_graph.nodes[place].name for place in step.sequence(sequencer)}
    assert {"more", "step"} <= order


def test_each_loop_has_its_own_entries() -> None:
    graph = parse_graph(LOOP)
    nodes = list(graph)
    pairs = {(nodes[enter].name, nodes[end].name) for enter, end in find_loop_entries(nodes)}
    assert pairs == {("first", "goes_on"), ("second", "goes_on")}


def test_a_loop_that_waits_for_itself_is_refused() -> None:
    verify_loops(parse_graph(LOOP))
    with pytest.raises(InvalidGraphError, match="waits for a loop that waits for it"):
        verify_loops(parse_graph(LOOP.replace("late = Neg(zero)", "late = Neg(zero, ^used)")))
