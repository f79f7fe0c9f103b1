"""Graph, Node and Tensor: both ends of every edge, safe removal, editing while iterating."""

from __future__ import annotations

import pytest

from memopt.errors import InvalidGraphError, RewriteError
from memopt.graph.graph import Graph, Node


def add(
    graph: Graph, name: str, inputs: tuple[Node, ...] = (), controls: tuple[Node, ...] = ()
) -> Node:
    node = graph.add_node(name, "Op", attributes={})
    graph.connect(node, tuple(n.output(0) for n in inputs), dict.fromkeys(controls))
    return node


@pytest.fixture
def chain() -> Graph:
    """A -> b -> c by data, a -> c by control."""
    graph = Graph()
    a = add(graph, "a")
    b = add(graph, "b", (a,))
    add(graph, "c", (b, b), (a,))
    return graph


def test_edges_are_known_from_both_ends(chain: Graph) -> None:
    a, b, c = chain
    assert c.inputs == (b.output(0), b.output(0))
    assert c.control_inputs == (a,)
    assert b.output(0).uses == ((c, 0), (c, 1))
    assert a.users == (b, c)
    assert a.control_users == (c,)
    assert [tensor.name for tensor in b.outputs] == ["b:0"]


def test_changed_inputs_move_both_ends(chain: Graph) -> None:
    a, b, c = chain
    chain.set_state(c, c.state._replace(inputs=(a.output(1),), controls=(b,)))
    assert b.output(0).uses == ()
    assert a.output(1).uses == ((c, 0),)
    assert not a.control_users
    assert b.control_users == (c,)


def test_a_used_node_is_not_removed(chain: Graph) -> None:
    with pytest.raises(RewriteError, match="'c' still uses it"):
        chain.remove_node(chain["b"])
    assert len(chain) == 3


def test_a_removed_node_leaves_no_uses_and_can_come_back(chain: Graph) -> None:
    a, b, c = chain
    chain.remove_node(c)
    assert "c" not in chain
    assert not b.users
    assert list(chain) == [a, b]
    chain.restore_node(c)
    assert list(chain) == [a, b, c]
    assert b.users == (c,)


def test_names_are_unique(chain: Graph) -> None:
    with pytest.raises(InvalidGraphError, match="two nodes are called 'a'"):
        chain.add_node("a", "Op", attributes={})


def test_a_missing_node_is_named(chain: Graph) -> None:
    with pytest.raises(InvalidGraphError, match="no node 'z'"):
        chain["z"]
    assert chain.find("z") is None


def test_a_node_of_another_graph_is_refused(chain: Graph) -> None:
    stranger = add(Graph(), "a")
    with pytest.raises(RewriteError, match="not a node of this graph"):
        chain.remove_node(stranger)


def test_iteration_skips_removed_and_does_not_visit_added_nodes(chain: Graph) -> None:
    visited = []
    for node in chain:
        visited.append(node.name)
        if node.name == "a":
            add(chain, "d")
            chain.remove_node(chain["c"])
    assert visited == ["a", "b"]
    assert [node.name for node in chain] == ["a", "b", "d"]


def test_indices_are_not_reused(chain: Graph) -> None:
    chain.remove_node(chain["c"])
    assert add(chain, "d").index == 3
    assert chain.index_limit == 4


def test_every_change_moves_the_version(chain: Graph) -> None:
    before = chain.version
    add(chain, "d")
    assert chain.version > before


def test_an_unlikely_port_costs_nothing(chain: Graph) -> None:
    assert chain["a"].output(99_999).name == "a:99999"
    assert len(chain["a"].outputs) == 2
