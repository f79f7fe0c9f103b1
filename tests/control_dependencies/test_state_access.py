"""Who uses which state: handles are followed, what may be any state is all of them, calls count."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from memopt.control_dependencies.state_access import find_state_uses
from memopt.graph.graphdef import from_graph_def
from memopt.graph.text import parse_graph

VARIABLES = """
a = VarHandleOp() {dtype=float, shape=[4], shared_name="a"}
b = VarHandleOp() {dtype=float, shape=[4], shared_name="b"}
value = Placeholder() {dtype=float, shape=[4]}
which = Placeholder() {dtype=bool, shape=[]}
"""
ANY_OF_TWO = "either = SelectV2(which, a, b) {T=resource}\n"
OUT_OF_A_LIST = """
list = Placeholder() {dtype=variant, shape=[]}
place = Placeholder() {dtype=int32, shape=[]}
shape = Placeholder() {dtype=int32, shape=[0]}
either = TensorListGetItem(list, place, shape) {element_dtype=resource}
"""
USES = """
read = ReadVariableOp(either) {dtype=float}
write = AssignVariableOp(b, value) {dtype=float}
"""


def uses(text: str) -> set[frozenset[tuple[str, bool]]]:
    """For each state: the names of the nodes that use it, and whether they may write it."""
    graph = parse_graph(text)
    names = [node.name for node in graph]
    found = find_state_uses(graph)
    return {frozenset((names[use.place], use.writes) for use in state) for state in found.states}


def test_two_variables_are_two_states() -> None:
    reads = (
        "read = ReadVariableOp(a) {dtype=float}\nwrite = AssignVariableOp(b, value) {dtype=float}"
    )
    assert uses(VARIABLES + reads) == {
        frozenset({("read", False)}),
        frozenset({("write", True)}),
    }


@pytest.mark.parametrize("between", ["Identity(a) {T=resource}", "IdentityN(b, a) {T=[resource]}"])
def test_a_handle_is_followed_to_its_variable(between: str) -> None:
    port = ":1" if "IdentityN" in between else ""
    between = between.replace("[resource]", "<list { type: DT_RESOURCE type: DT_RESOURCE }>")
    text = f"""
shown = {between}
read = ReadVariableOp(shown{port}) {{dtype=float}}
write = AssignVariableOp(a, value) {{dtype=float}}
"""
    assert uses(VARIABLES + text) == {frozenset({("read", False), ("write", True)})}


@pytest.mark.parametrize("maker", [ANY_OF_TWO, OUT_OF_A_LIST], ids=["select", "list"])
def test_what_may_be_any_variable_makes_one_state_of_all(maker: str) -> None:
    (state,) = uses(VARIABLES + maker + USES)
    assert {("read", False), ("write", True)} <= state


def effects(function: Any) -> set[str]:
    """The ops of the main graph's nodes that may do what no edge tells of."""
    graph = from_graph_def(function.graph.as_graph_def())
    nodes = list(graph)
    return {nodes[place].op for place in find_state_uses(graph).effects}


@pytest.mark.parametrize("prints", [True, False])
def test_calls_are_looked_into_to_the_last(prints: bool) -> None:
    """The function that is called calls another one, that one a third, that one a fourth."""
    variable = tf.Variable(1.0)

    def third(value: tf.Tensor) -> tf.Tensor:
        if prints:
            tf.print(value)
        return value + variable

    def times_two(called: Any) -> Any:
        return tf.function(lambda value: called(value) * 2.0, autograph=False)

    first = times_two(times_two(times_two(tf.function(third, autograph=False))))
    found = effects(first.get_concrete_function(tf.TensorSpec([], tf.float32)))
    assert found == ({"StatefulPartitionedCall"} if prints else set())
