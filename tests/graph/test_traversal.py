"""Topological order as Grappler's, loops that are no cycles, and cycles that are found."""

from __future__ import annotations

from memopt.graph.text import parse_graph
from memopt.graph.traversal import Numbering

LOOP = """
enter = Enter(zero) {T=int32, frame_name="f"}
zero = Const() {dtype=int32}
merge = Merge(enter, next) {T=int32, N=2}
next = NextIteration(merge) {T=int32}
"""


def ordered(text: str) -> list[str]:
    numbering = Numbering.of(parse_graph(text))
    assert numbering.is_acyclic
    return [numbering.nodes[place].name for place in numbering.order]


def test_ties_are_broken_by_insertion_order() -> None:
    assert ordered("d = A(c)\nc = A()\nb = A(c)\na = A()") == ["c", "a", "d", "b"]


def test_control_edges_count() -> None:
    assert ordered("b = A(^a)\na = A()") == ["a", "b"]


def test_a_loop_is_no_cycle() -> None:
    assert ordered(LOOP) == ["zero", "enter", "merge", "next"]


def test_a_cycle_is_found() -> None:
    numbering = Numbering.of(parse_graph("a = A()\nb = A(a, d)\nc = A(b)\nd = A(c)\ne = A(d)"))
    assert not numbering.is_acyclic
    assert [numbering.nodes[place].name for place in numbering.order] == ["a"]
    assert sorted(node.name for node in numbering.find_cycle()) == ["b", "c", "d"]


def test_the_picture_is_made_once_for_each_version() -> None:
    graph = parse_graph("a = A()\nb = A(a)")
    numbering = Numbering.of(graph)
    assert Numbering.of(graph) is numbering
    added = graph.add_node("c", "A", attributes={})
    assert Numbering.of(graph) is not numbering
    assert numbering.place(added) == -1


def test_component_numbers_fall_along_every_edge() -> None:
    graph = parse_graph("c = A(b)\na = A()\nb = A(a, ^a)")
    numbering = Numbering.of(graph)
    component = {node.name: numbering.component[numbering.place(node)] for node in graph}
    assert component == {"a": 2, "b": 1, "c": 0}


def test_deep_graphs_need_no_recursion() -> None:
    lines = ["n0 = A()", *(f"n{i} = A(n{i - 1})" for i in range(1, 100_000))]
    assert len(ordered("\n".join(lines))) == 100_000
