"""The rewriter: every edit has a reason, all can be undone, the record says what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.random_graphs import random_training_graph

from memopt.errors import InvalidGraphError, RewriteError
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter, Touches
from memopt.graph.text import format_graph, parse_graph

if TYPE_CHECKING:
    import random

    from memopt.graph.graph import Graph


@pytest.fixture
def graph() -> Graph:
    return parse_graph("a = A()\nb = B(a, ^a) {N=1}\nc = C(b, a, b)")


def test_an_edit_is_recorded_with_its_reason_and_effect(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    b, c = graph["b"], graph["c"]
    with rewriter.edit("to test", releases=[b.output(0)], holds=[graph["a"].output(1)]):
        d = rewriter.add_node("d", "D", inputs=[b.output(0)])
        rewriter.set_input(c, 0, d.output(0))
    (edit,) = rewriter.edits
    assert edit.reason == "to test"
    assert (edit.added, edit.removed, edit.changed) == (("d",), (), ("c",))
    assert (edit.releases, edit.holds) == (("b:0",), ("a:1",))
    assert edit.touches == {Touches.NODES, Touches.DATA_EDGES}
    assert rewriter.modified
    assert format_graph(graph).endswith("c = C(d, a, b)\nd = D(b)\n")


def test_every_kind_of_change(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    a, b, c = graph
    with rewriter.edit("to test"):
        rewriter.replace_uses(b.output(0), a.output(1))
        rewriter.add_control_input(c, b)
        rewriter.add_control_input(c, b)
        rewriter.set_device(c, "/device:CPU:0")
        rewriter.set_op(c, "E", {})
        rewriter.set_attribute(c, "M", b.attributes["N"])
        rewriter.set_control_inputs(b, [])
    assert format_graph(graph) == (
        "a = A()\nb = B(a) {N=1}\nc = E(a:1, a, a:1, ^b) {M=1} @/device:CPU:0\n"
    )
    assert rewriter.edits[0].touches == set(Touches) - {Touches.NODES, Touches.FUNCTIONS}


def test_changes_need_an_open_edit(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    with pytest.raises(RewriteError, match=r"inside `with rewriter.edit"):
        rewriter.add_node("d", "D")
    with pytest.raises(RewriteError, match=r"inside `with rewriter.edit"):
        rewriter.set_device(graph["a"], "x")
    with rewriter.edit("one"), pytest.raises(RewriteError, match="already open"):
        rewriter.edit("two").__enter__()


def test_an_edit_without_changes_is_none(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    with rewriter.edit("nothing"):
        rewriter.set_inputs(graph["b"], graph["b"].inputs)
        rewriter.set_device(graph["b"], "")
    assert not rewriter.modified
    assert not graph.changed


def test_an_exception_undoes_its_edit(graph: Graph) -> None:
    before = format_graph(graph)
    rewriter = Rewriter(graph)
    with pytest.raises(InvalidGraphError), rewriter.edit("fails"):  # noqa: PT012 - one edit
        rewriter.set_device(graph["c"], "/device:CPU:0")
        rewriter.add_node("d", "D")
        rewriter.add_node("a", "A")
    assert format_graph(graph) == before
    assert rewriter.edits == ()
    with rewriter.edit("works"):
        rewriter.add_node("d", "D")
    assert "d" in graph


def test_used_nodes_are_not_removed(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    with pytest.raises(RewriteError, match="still uses it"), rewriter.edit("remove"):
        rewriter.remove_node(graph["b"])
    with rewriter.edit("remove"):
        rewriter.remove_node(graph["c"])
        rewriter.remove_node(graph["b"])
    assert rewriter.edits[0].removed == ("c", "b")
    assert format_graph(graph) == "a = A()\n"


def test_revert_goes_back_to_the_checkpoint(graph: Graph) -> None:
    rewriter = Rewriter(graph)
    with rewriter.edit("stays"):
        rewriter.set_device(graph["c"], "/device:CPU:0")
    before = format_graph(graph)
    checkpoint = rewriter.checkpoint()
    with rewriter.edit("goes"):
        rewriter.remove_node(graph["c"])
    rewriter.decline(graph["a"], "a reason")
    rewriter.revert(checkpoint)
    assert format_graph(graph) == before
    assert [edit.reason for edit in rewriter.edits] == ["stays"]
    assert rewriter.declined == ()


@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_any_changes_can_be_undone(seed: int, choice: random.Random) -> None:
    graph_def = random_training_graph(seed)
    graph = from_graph_def(graph_def)
    rewriter = Rewriter(graph)
    start = rewriter.checkpoint()
    for step in range(10):
        nodes = list(graph)
        node = choice.choice(nodes)
        with rewriter.edit("random"):
            if choice.random() < 0.3 and not node.users:
                rewriter.remove_node(node)
            elif choice.random() < 0.5:
                rewriter.set_inputs(node, [choice.choice(nodes).output(0)])
                rewriter.add_control_input(node, choice.choice(nodes))
            else:
                rewriter.add_node(f"new{step}", "A", inputs=[node.output(choice.randint(0, 2))])
                rewriter.set_device(node, f"/device:CPU:{step}")

    rewriter.revert(start)

    assert to_graph_def(graph).SerializeToString(deterministic=True) == (
        graph_def.SerializeToString(deterministic=True)
    )
    expected = from_graph_def(graph_def)
    for node, other in zip(graph, expected, strict=True):
        assert {user.name for user in node.users} == {user.name for user in other.users}
