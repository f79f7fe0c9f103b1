"""Constant folding: what is computed before the first step, and what still runs."""

from __future__ import annotations

from memopt.graph.text import parse_graph
from memopt.graph.traversal import Numbering
from memopt.shapes.constant_folding import Folding
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import tensor_properties

FLOAT = 1


def folding_of(
    text: str, *, kept: tuple[str, ...] = (), sizes: dict[str, int] | None = None
) -> tuple[list[str], list[str]]:
    """The names of the nodes that are folded, and of those that run."""
    graph = parse_graph(text)
    known = Properties.unknown()
    for node in graph:
        known.add(node.name, (tensor_properties(FLOAT, ((sizes or {}).get(node.name, 4),)),))
    folding = Folding.of(graph, known, kept)
    nodes = Numbering.of(graph).nodes
    return (
        [node.name for node, folded in zip(nodes, folding.is_folded, strict=True) if folded],
        [node.name for node, runs in zip(nodes, folding.runs, strict=True) if runs],
    )


def test_what_depends_on_constants_alone_is_folded() -> None:
    text = "c = Const()\na = Neg(c)\nb = Neg(a)\nx = Placeholder()\ny = Mul(b, x)"
    assert folding_of(text) == (["a", "b"], ["x", "y"])


def test_what_others_wait_for_runs_and_all_that_it_needs() -> None:
    text = "c = Const()\na = Neg(c)\nb = Neg(a)\nx = Placeholder()\ny = Neg(x, ^b)"
    folded, runs = folding_of(text)
    assert folded == ["a", "b"]
    assert runs == ["c", "a", "b", "x", "y"]


def test_who_reads_a_replaced_tensor_does_not_need_its_node() -> None:
    """`a` has a reader that is not folded, so `b` reads the constant as well."""
    text = "c = Const()\na = Neg(c)\nb = Neg(a)\nx = Placeholder()\ny = Mul(a, x)\nz = Neg(y, ^b)"
    folded, runs = folding_of(text)
    assert folded == ["a", "b"]
    assert runs == ["b", "x", "y", "z"]


def test_random_and_large_and_kept_nodes_stay() -> None:
    random = "c = Const()\nr = RandomUniform(c) {T=int32, dtype=float}\ny = Neg(r)"
    assert folding_of(random)[0] == []
    text = "c = Const()\na = Neg(c)"
    assert folding_of(text)[0] == ["a"]
    assert folding_of(text, kept=("a",))[0] == []
    limit = 10 * 2**20 // 4
    assert folding_of(text, sizes={"a": limit})[0] == ["a"]
    assert folding_of(text, sizes={"a": limit + 1})[0] == []
