"""Calls bypassed: the same results out of fewer copies, and what is left alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from support.compiled_calls import (
    LAYERS,
    step_of_compiled_layers,
    step_that_hands_on_twice,
    step_that_writes_what_is_handed_on,
)

import memopt
from memopt.context import Context
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.verify import verify_graph
from memopt.item import GrapplerItem
from memopt.optimization.pipeline import Pipeline
from memopt.passes import BypassCalls
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.result import PassReport

CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def bypassed(item: GrapplerItem) -> tuple[Any, PassReport]:
    graph = from_graph_def(item.graph_def)
    context = Context.of_item(item, Properties.unknown())
    (report,) = Pipeline((BypassCalls(),), ()).run("", graph, context, math.inf).passes
    assert not report.failure
    verify_graph(graph)
    return to_graph_def(graph), report


def reasons_of(item: GrapplerItem) -> set[str]:
    _, report = bypassed(item)
    assert not report.edits
    return {declined.reason for declined in report.declined}


def calls_in(graph_def: Any) -> list[Any]:
    return [node for node in graph_def.node if node.op in CALLS]


def test_gradients_read_what_calls_were_given_with_the_same_results() -> None:
    function = step_of_compiled_layers()
    item = GrapplerItem.from_concrete_function(function)
    forward, backward = (
        [node for node in calls_in(item.graph_def) if node.op == op] for op in CALLS[::-1]
    )
    names = {node.name for node in forward}
    assert len(names) == len(backward) == LAYERS
    # The third result is the input, the second the weights as they were read.
    handed_on = {f"{name}:2" for name in names}
    assert handed_on < {source for node in backward for source in node.input}
    graph_def, report = bypassed(item)
    assert len(report.edits) == LAYERS
    after = {node.name: node for node in graph_def.node}
    for node in backward:
        assert not {*after[node.name].input} & handed_on
    for node in forward:
        assert after[node.name] == node
    verification = memopt.verify(function, graph_def, steps=2, timing_rounds=0)
    assert verification.equal
    # What is handed on is kept for the gradients of Relu as well, so that it was there twice.
    assert verification.rewritten.peak_bytes < verification.original.peak_bytes


def test_what_calls_hand_on_to_each_other_is_read_where_it_begins() -> None:
    function = step_that_hands_on_twice()
    graph_def, report = bypassed(GrapplerItem.from_concrete_function(function))
    assert len(report.edits) == 2
    assert not {source for node in graph_def.node for source in node.input} & {
        f"{node.name}:1" for node in calls_in(graph_def)
    }
    assert memopt.verify(function, graph_def, steps=2, timing_rounds=0).equal


def test_what_is_handed_on_may_not_be_written_before_the_call_has_read() -> None:
    item = GrapplerItem.from_concrete_function(step_that_writes_what_is_handed_on())
    _, report = bypassed(item)
    # The assignment waits for the call by an edge of its own.
    assert len(report.edits) == 1
    (assignment,) = (node for node in item.graph_def.node if node.op == "AssignVariableOp")
    (call,) = calls_in(item.graph_def)
    assert f"^{call.name}" in assignment.input
    # Grappler takes such an edge out, since the data lead there as well.
    assignment.input.remove(f"^{call.name}")
    assert reasons_of(item) == {"uses of state could lose their order without"}


def on_another_device(item: GrapplerItem) -> GrapplerItem:
    for node in calls_in(item.graph_def):
        node.device = "/device:CPU:1"
    return item


def read_by_sums(item: GrapplerItem) -> GrapplerItem:
    """Every result of a call that is read is an addend, too."""
    read = dict.fromkeys(
        source for node in calls_in(item.graph_def) for source in node.input if ":" in source
    )
    for number, source in enumerate(read):
        total = item.graph_def.node.add(name=f"total_{number}", op="AddN", input=[source] * 3)
        total.attr["N"].i, total.attr["T"].type = 3, 1
    return item


def fed_by_the_caller(item: GrapplerItem) -> GrapplerItem:
    fed = tuple(f"{node.name}:0" for node in calls_in(item.graph_def))
    return GrapplerItem(item.graph_def, (*item.feed, *fed), item.fetch)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (on_another_device, "is on another device"),
        (read_by_sums, "a sum of many goes by who else reads its addends"),
        (fed_by_the_caller, ""),
    ],
)
def test_what_stays_has_a_reason(
    change: Callable[[GrapplerItem], GrapplerItem], reason: str
) -> None:
    item = GrapplerItem.from_concrete_function(step_of_compiled_layers())
    reasons = reasons_of(change(item))
    assert all(each.endswith(reason) for each in reasons)
    assert bool(reasons) is bool(reason)


def test_calls_that_tensorflow_dissolves_are_left_alone() -> None:
    """What they hand on is no copy."""
    item = GrapplerItem.from_concrete_function(step_of_compiled_layers())
    for node in calls_in(item.graph_def):
        del node.attr["_XlaMustCompile"]
    assert not reasons_of(item)
