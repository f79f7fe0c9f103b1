"""Two hundred random graphs in order, one after the other in one real step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.measured_order import measure_in_order
from support.random_graphs import random_training_graph

from memopt.item import GrapplerItem
from memopt.runtime.program import Program

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

GRAPHS = 100


def renamed(spelled: str, scope: str) -> str:
    """An input of a node that moves into a scope."""
    control = "^" if spelled.startswith("^") else ""
    return f"{control}{scope}/{spelled.removeprefix('^')}"


def many_graphs() -> tuple[GraphDef, list[str]]:
    """All of them side by side, each in a scope of its own, and the scopes."""
    from tensorflow.core.framework import graph_pb2

    together: GraphDef = graph_pb2.GraphDef()
    scopes = [f"graph{seed}" for seed in range(GRAPHS)]
    for seed, scope in enumerate(scopes):
        one = random_training_graph(seed)
        together.versions.CopyFrom(one.versions)
        for node in one.node:
            copy = together.node.add()
            copy.CopyFrom(node)
            copy.name = f"{scope}/{node.name}"
            copy.input[:] = [renamed(spelled, scope) for spelled in node.input]
    return together, scopes


def peaks(usage: list[tuple[str, int]], scopes: list[str]) -> dict[str, int]:
    """The largest usage by scope, from operations and what is in use when they run."""
    found = dict.fromkeys(scopes, 0)
    for operation, in_use_bytes in usage:
        scope = operation.partition("/")[0]
        if scope in found:
            found[scope] = max(found[scope], in_use_bytes)
    return found


def test_random_graphs_have_the_peaks_that_are_simulated() -> None:
    graph_def, scopes = many_graphs()
    feed = tuple(f"{node.name}:0" for node in graph_def.node if node.op == "Placeholder")
    fetch = tuple(f"{scope}/train" for scope in scopes)
    item = GrapplerItem(graph_def, feed, fetch)
    timeline, measurement = measure_in_order(Program.from_item(item))
    nodes = timeline.buffer_graph.nodes
    predicted = [
        (nodes[node].name, usage - timeline.held_bytes)
        for node, usage in zip(timeline.sequence, timeline.usage_bytes, strict=True)
    ]
    real = [
        (entry.operation, entry.in_use_bytes - measurement.held_bytes)
        for entry in measurement.timeline
        if entry.kind == "allocate"
    ]
    expected, found = peaks(real, scopes), peaks(predicted, scopes)
    assert sum(expected.values()) > 100 * GRAPHS
    assert found == expected
