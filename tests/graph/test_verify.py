"""The invariants: models keep them, and every way to break one is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.random_graphs import random_training_graph

from memopt.errors import InvalidGraphError
from memopt.graph.graphdef import from_graph_def
from memopt.graph.text import parse_graph
from memopt.graph.verify import verify_graph, verify_references
from memopt.models import MODELS, SESSION_MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.item import GrapplerItem

X = "x = Placeholder() {dtype=float}\n"


@pytest.mark.parametrize("model", [*MODELS, *SESSION_MODELS])
def test_models_are_valid(model: str, tiny_item: Callable[[str], GrapplerItem]) -> None:
    item = tiny_item(model)
    graph = from_graph_def(item.graph_def)
    verify_graph(graph)
    verify_references(graph, item.fetch, "fetch")
    verify_references(graph, item.feed, "feed")


def test_random_graphs_are_valid() -> None:
    for seed in range(100):
        verify_graph(from_graph_def(random_training_graph(seed)))


@pytest.mark.parametrize(
    ("text", "message", "node"),
    [
        ("x = Nothing()", "does not know the op 'Nothing'; .* tf.load_op_library", "x"),
        (X + "y = Relu() {T=float}", "Relu takes 1 inputs, this one has 0", "y"),
        (X + "y = Relu(x, x) {T=float}", "Relu takes 1 inputs, this one has 2", "y"),
        (X + "y = Relu(x:1) {T=float}", "input 'x:1' does not exist: Placeholder has 1 out", "y"),
        (X + "y = Relu(x) {T=half}", "input 'x:0' is float, Relu takes half", "y"),
        (X + "y = Relu(x)", "op 'Relu' needs the attribute 'T'", "y"),
        (X + "y = Assign(x, x) {T=float}", "'x:0' is float, Assign takes float_ref", "y"),
        (X + "y = AddN(x) {T=float, N=-4}", "attribute 'N' is -4", "y"),
        (X + "y = AddN(x) {T=float, N=2}", "AddN takes 2 inputs, this one has 1", "y"),
        (X + "-y = Relu(x) {T=float}", "'-y' is no valid node name", "-y"),
        (X + "y = Relu(x) {T=float} @/gpu:x:y", "'/gpu:x:y' is no device", "y"),
        ("a = NoOp(^b)\nb = NoOp(^c)\nc = NoOp(^a)", "3 nodes form a cycle: ", None),
    ],
)
def test_what_is_broken_is_named(text: str, message: str, node: str | None) -> None:
    graph = parse_graph(text)
    with pytest.raises(InvalidGraphError, match=message) as caught:
        verify_graph(graph)
    if node is not None:
        assert caught.value.node == node


def test_a_reference_can_be_read_as_a_value() -> None:
    verify_graph(parse_graph("v = VariableV2() {dtype=float, shape=[2]}\ny = Relu(v) {T=float}"))


def test_a_loop_of_a_while_is_no_cycle() -> None:
    verify_graph(
        parse_graph(
            "zero = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 }>}\n"
            'enter = Enter(zero) {T=int32, frame_name="f"}\n'
            "merge = Merge(enter, next) {T=int32, N=2}\n"
            "next = NextIteration(merge) {T=int32}\n"
        )
    )


def test_only_the_given_nodes_are_checked_one_by_one() -> None:
    graph = parse_graph(X + "y = Nothing(x)\nz = Relu(x) {T=float}")
    verify_graph(graph, [graph["z"]])
    with pytest.raises(InvalidGraphError, match="Nothing"):
        verify_graph(graph, [graph["y"]])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("y", "the fetch 'y' does not exist in the graph"),
        ("x:1", "the fetch 'x:1' does not exist: Placeholder has 1 outputs"),
        ("x:a", "the fetch 'x:a' does not exist"),
    ],
)
def test_missing_references_are_named(name: str, message: str) -> None:
    with pytest.raises(InvalidGraphError, match=message):
        verify_references(parse_graph(X), [name], "fetch")
