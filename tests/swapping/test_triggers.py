"""The search for what a copy back waits for, on graphs whose nodes end at given times."""

from __future__ import annotations

import pytest

from memopt.graph.text import parse_graph
from memopt.swapping.triggers import TriggerSearch


def in_trigger(text: str, ends_ns: dict[str, int], transfer_ns: int) -> str:
    """What the copy of `big` to the node `reader` waits for, or why it cannot."""
    graph = parse_graph(text)
    search = TriggerSearch([ends_ns[node.name] for node in graph])
    found = search.in_trigger(graph["reader"], [graph["big"].output()], transfer_ns)
    return found if isinstance(found, str) else found.name


GRAPH = """
big = A()
early = A()
late = A()
both = A(early, late)
reader = A(big, both)
"""
ENDS_NS = {"big": 1, "early": 20, "late": 20, "both": 90, "reader": 100}


LATE_FIRST = GRAPH.replace("early = A()\nlate = A()", "late = A()\nearly = A()")


@pytest.mark.parametrize("text", [GRAPH, LATE_FIRST])
@pytest.mark.parametrize("inputs", ["early, late", "late, early"])
def test_of_nodes_that_end_together_the_last_by_name_is_taken(text: str, inputs: str) -> None:
    """As TensorFlow's search does, whichever stands first in the graph or is read first."""
    assert in_trigger(text.replace("early, late", inputs), ENDS_NS, 50) == "late"


def test_the_last_node_that_leaves_the_time_is_taken() -> None:
    assert in_trigger(GRAPH, {**ENDS_NS, "early": 30}, 50) == "early"
    assert in_trigger(GRAPH, {**ENDS_NS, "late": 30}, 50) == "late"
    # Of what ends at the very deadline the transfer would come too late.
    assert in_trigger(GRAPH, {**ENDS_NS, "late": 40}, 50) == "early"


def test_where_nothing_ends_early_enough_there_is_none() -> None:
    assert "ends early enough" in in_trigger(GRAPH, ENDS_NS, 85)
