"""Collectives that meet: what waits for one of them waits for all."""

from __future__ import annotations

import pytest

from memopt.errors import InvalidGraphError
from memopt.graph.rewriter import Rewriter
from memopt.graph.text import parse_graph
from memopt.graph.traversal import Numbering
from memopt.sequencing.enforcement import enforce
from memopt.sequencing.meetings import find_meetings
from memopt.sequencing.precedence import Precedence
from memopt.sequencing.standstill import Collectives
from memopt.sequencing.step import Step
from memopt.shapes.properties import Properties


def replica(number: int, *, count: int = 1) -> str:
    device = f"/device:CPU:{number}"
    lines = [f"x{number} = Placeholder() {{dtype=float, shape=[4]}} @{device}"]
    given = f"x{number}"
    for step in range(count):
        name = f"{number}_{step}"
        attributes = "T=float, group_size=2, group_key=1, instance_key=1"
        lines.append(f"c{name} = CollectiveReduce({given}) {{{attributes}}} @{device}")
        lines.append(f"u{name} = Neg(c{name}) {{T=float}} @{device}")
        given = f"u{name}"
    return "\n".join(lines)


def precedence(text: str) -> tuple[list[str], Precedence]:
    graph = parse_graph(text)
    numbering = Numbering.of(graph)
    names = [node.name for node in numbering.nodes]
    by_edges = Precedence(numbering.producers)
    return names, by_edges.with_meetings(numbering.nodes)


def meetings(text: str) -> list[tuple[str, str]]:
    nodes = Numbering.of(parse_graph(text)).nodes
    order = Numbering.of(parse_graph(text)).order
    return [(nodes[a].name, nodes[b].name) for a, b in find_meetings(nodes, order)]


def test_what_waits_for_one_waits_for_the_other() -> None:
    assert meetings(replica(0) + "\n" + replica(1)) == [("c1_0", "u0_0"), ("c0_0", "u1_0")]


def test_the_first_meets_the_first_and_the_second_the_second() -> None:
    found = meetings(replica(0, count=2) + "\n" + replica(1, count=2))
    assert ("c1_1", "u0_1") in found
    assert ("c0_0", "u1_0") in found
    assert ("c1_1", "u0_0") not in found


def test_no_sequence_has_a_result_before_all_have_begun() -> None:
    """As the graph is written, the first replica would end before the second one begins."""
    names, found = precedence(replica(0, count=2) + "\n" + replica(1, count=2))
    program = [names[number] for number in found.program]
    for step in range(2):
        begun = max(program.index(f"c{number}_{step}") for number in range(2))
        assert all(program.index(f"u{number}_{step}") > begun for number in range(2))


def test_no_order_lets_one_device_begin_before_what_the_other_waits_for() -> None:
    """What the first replica reduces waits for the second one, which would reduce before that."""
    graph = parse_graph(
        """
        x0 = Placeholder() {dtype=float, shape=[4000]} @/device:CPU:0
        x1 = Placeholder() {dtype=float, shape=[4000]} @/device:CPU:1
        s1 = Neg(x1) {T=float} @/device:CPU:1
        m0 = AddV2(x0, s1) {T=float} @/device:CPU:0
        """
        + "".join(
            f"c{number} = CollectiveReduce({given}) "
            "{T=float, group_size=2, group_key=1, instance_key=1} "
            f"@/device:CPU:{number}\n"
            f"u{number} = Neg(c{number}) {{T=float}} @/device:CPU:{number}\n"
            for number, given in ((1, "x1"), (0, "m0"))
        )
    )
    step = Step.of(graph, Properties.unknown(), fed=["x0", "x1"])
    place = {node.name: number for number, node in enumerate(step.buffer_graph.nodes)}
    planned = [place[name] for name in ("x0", "x1", "c1", "s1", "m0", "c0", "u0", "u1")]
    settled = step.settle(planned)
    collectives = Collectives(graph)
    rewriter = Rewriter(graph)
    with rewriter.edit("the order of each device"):
        for chain in enforce(step.buffer_graph, settled):
            for before, after in chain.edges:
                rewriter.add_control_input(
                    step.buffer_graph.nodes[after], step.buffer_graph.nodes[before]
                )
    collectives.verify(graph)
    assert settled.index(place["s1"]) < settled.index(place["c1"])


def test_one_device_meets_nobody_and_unequal_counts_do_not_tell_who_meets() -> None:
    assert not meetings(replica(0, count=2))
    assert not meetings(replica(0, count=2) + "\n" + replica(1))


def test_where_they_cannot_meet_the_edges_alone_decide() -> None:
    """The second one reads what the first one gives: they are of two groups."""
    text = replica(0) + "\n" + replica(1).replace("(x1)", "(x1, ^u0_0)")
    names, found = precedence(text)
    program = [names[number] for number in found.program]
    assert program.index("u0_0") < program.index("c1_0")
    assert len(program) == len(names)


def test_a_rewrite_that_lets_devices_wait_for_each_other_is_found() -> None:
    """Each replica's second collective would wait for what comes after the other one's first."""
    graph = parse_graph(replica(0, count=2) + "\n" + replica(1, count=2))
    collectives = Collectives(graph)
    collectives.verify(graph)
    rewriter = Rewriter(graph)
    with rewriter.edit("an order across devices"):
        rewriter.add_control_input(graph["c1_0"], graph["u0_0"])
    with pytest.raises(InvalidGraphError, match=r"would wait for each other for ever: 'c0_0'"):
        collectives.verify(graph)


def test_a_graph_whose_collectives_do_not_meet_is_not_held_to_it() -> None:
    graph = parse_graph(replica(0) + "\n" + replica(1).replace("(x1)", "(x1, ^u0_0)"))
    Collectives(graph).verify(graph)
