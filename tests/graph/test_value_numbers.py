"""Which nodes of a graph compute the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.text import parse_graph
from memopt.graph.value_numbers import find_equal

if TYPE_CHECKING:
    from memopt.graph.graph import Graph


def names(graph: Graph, *fed: str) -> list[list[str]]:
    return [[node.name for node in group] for group in find_equal(graph, fed)]


CHAINS = """
x = Placeholder() {dtype=float, shape=[4]}
y = Placeholder() {dtype=float, shape=[4]}
a = Neg(x) {T=float}
b = Exp(a) {T=float}
c = Sub(b, y) {T=float}
d = Neg(x) {T=float}
e = Exp(d) {T=float}
f = Sub(y, e) {T=float}
g = Sub(e, y, ^a) {T=float}
h = Sub(b, y, ^d) {T=float}
"""


def test_operations_are_equal_along_chains() -> None:
    assert names(parse_graph(CHAINS)) == [["a", "d"], ["b", "e"], ["g", "h"]]


def test_what_is_fed_is_equal_to_nothing() -> None:
    assert names(parse_graph(CHAINS), "d") == []


def test_outputs_of_one_operation_are_not_equal() -> None:
    graph = parse_graph(
        "x = Placeholder() {dtype=float, shape=[4]}\n"
        "u = Unpack(x) {T=float, axis=0, num=4}\n"
        "a = Neg(u) {T=float}\n"
        "b = Neg(u:1) {T=float}\n"
        "c = Neg(u:1) {T=float}\n"
    )
    assert names(graph) == [["b", "c"]]


def test_a_loop_is_compared_from_where_it_begins() -> None:
    graph = parse_graph(
        "x = Placeholder() {dtype=float, shape=[]}\n"
        'e = Enter(x) {T=float, frame_name="loop"}\n'
        "m = Merge(e, n) {T=float, N=2}\n"
        "k = Merge(e, n) {T=float, N=2}\n"
        "a = Neg(m) {T=float}\n"
        "b = Neg(k) {T=float}\n"
        "c = Neg(m) {T=float}\n"
        "n = NextIteration(a) {T=float}\n"
    )
    assert names(graph) == [["a", "c"]]
