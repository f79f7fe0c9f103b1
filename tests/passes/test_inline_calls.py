"""Calls replaced by what they run: the same results and effects, and what is left alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from support.nested import calls_itself, nested_step

import memopt
from memopt.context import Context
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.verify import verify_graph
from memopt.item import GrapplerItem
from memopt.optimization.pipeline import Pipeline
from memopt.passes import InlineCalls
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from memopt.result import PassReport

CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def inlined(item: GrapplerItem) -> tuple[Any, PassReport, Properties]:
    graph = from_graph_def(item.graph_def)
    context = Context.of_item(item, Properties.of(item))
    (report,) = Pipeline((InlineCalls(),), ()).run("", graph, context, math.inf).passes
    verify_graph(graph)
    return to_graph_def(graph), report, context.properties


def test_the_same_is_computed_in_the_same_order() -> None:
    function = nested_step()
    item = GrapplerItem.from_concrete_function(function)
    graph_def, report, properties = inlined(item)
    assert not report.failure
    assert not report.declined
    # Two calls, each of which makes another.
    assert len(report.edits) == 4
    assert not any(node.op in CALLS for node in graph_def.node)
    assert properties.size_bytes("StatefulPartitionedCall/Tanh:0") == 16
    assert memopt.verify(function, graph_def, steps=2, timing_rounds=0).equal


def test_what_stays_a_call_has_a_reason() -> None:
    item = GrapplerItem.from_concrete_function(nested_step())
    calls = [node for node in item.graph_def.node if node.op in CALLS]
    fed = GrapplerItem(item.graph_def, (*item.feed, f"{calls[0].name}:0"), item.fetch)
    _, report, _ = inlined(fed)
    assert [(declined.node, declined.reason) for declined in report.declined] == [
        (calls[0].name, "it is fed")
    ]
    name = calls_itself(item.graph_def)
    graph = from_graph_def(item.graph_def)
    context = Context.of_item(item, Properties.unknown())
    (report,) = Pipeline((InlineCalls(),), ()).run("", graph, context, math.inf).passes
    assert not report.failure
    reasons = {declined.reason for declined in report.declined}
    assert reasons == {f"{name!r} calls itself"}
    assert any(node.op in CALLS for node in graph)
