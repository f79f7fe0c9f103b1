"""Two hundred random graphs in order, one after the other in one real step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.random_graphs import random_training_graph
from support.total_order import chained

from memopt.buffers.assignment import buffer_graph_of
from memopt.buffers.buffer_graph import check_sequence, simulate
from memopt.graph.graphdef import from_graph_def
from memopt.graph.traversal import Numbering
from memopt.item import GrapplerItem
from memopt.runtime.process import step_process
from memopt.runtime.program import Program
from memopt.runtime.step_graph import needed_nodes
from memopt.shapes.properties import Properties

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
    ordered, order = chained(graph_def)
    item = GrapplerItem(ordered, feed, fetch)
    with step_process(Program.from_item(item)) as process:
        process.run(2)
        measurement = process.measure()
    graph = from_graph_def(ordered)
    buffer_graph = buffer_graph_of(graph, Properties.of(item), fed=feed, fetched=fetch)
    needed = needed_nodes(ordered, fetch, ())
    numbering = Numbering.of(graph)
    sequence = [numbering.place(graph[name]) for name in order if name in needed]
    check_sequence(buffer_graph, sequence)
    timeline = simulate(buffer_graph, sequence)
    predicted = [
        (buffer_graph.nodes[node].name, usage - timeline.held_bytes)
        for node, usage in zip(sequence, timeline.usage_bytes, strict=True)
    ]
    real = [
        (entry.operation, entry.in_use_bytes - measurement.held_bytes)
        for entry in measurement.timeline
        if entry.kind == "allocate"
    ]
    expected, found = peaks(real, scopes), peaks(predicted, scopes)
    assert sum(expected.values()) > 100 * GRAPHS
    assert found == expected
