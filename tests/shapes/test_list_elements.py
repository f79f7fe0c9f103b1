"""What loops take out of lists has the shape of what others have put in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memopt.shapes.list_elements import takes_unknown, with_told_shapes
from memopt.shapes.tensor_properties import TensorProperties, tensor_properties

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

FLOAT = 1

NODES = """
x Placeholder
empty EmptyTensorList
enter Enter empty
merge Merge enter next
switch Switch merge condition
push TensorListPushBack switch:1 pushed
next NextIteration push
pushed Identity x
exit Exit switch
enter_back Enter exit
merge_back Merge enter_back next_back
switch_back Switch merge_back condition_back
pop TensorListPopBack switch_back:1 shape
next_back NextIteration pop
reader Neg pop:1
"""


def graph_def(text: str = NODES) -> GraphDef:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    found = GraphDef()
    for line in text.split("\n"):
        if line:
            name, op, *inputs = line.split()
            found.node.add(name=name, op=op, input=inputs)
    return found


def known(node: str, port: int) -> TensorProperties | None:
    if node in ("x", "pushed"):
        return tensor_properties(FLOAT, (2, 3))
    return tensor_properties(FLOAT, None) if (node, port) == ("pop", 1) else None


def test_what_is_taken_out_is_as_large_as_what_was_put_in() -> None:
    given = graph_def()
    assert takes_unknown(given, known)
    completed, shaped = with_told_shapes(given, known)
    by_name = {node.name: node for node in completed.node}
    assert list(shaped) == ["pop"]
    assert list(by_name["reader"].input) == [shaped["pop"]]
    added = by_name[shaped["pop"]]
    assert added.op == "EnsureShape"
    assert [dimension.size for dimension in added.attr["shape"].shape.dim] == [2, 3]
    assert given == graph_def()


def test_a_state_is_as_large_as_the_next_one() -> None:
    """What the first turn begins with need not be known."""
    text = NODES.replace(
        "push TensorListPushBack switch:1 pushed", "push TensorListPushBack s:1 h:1"
    )
    text += "h Switch h_merge condition\nh_merge Merge h_enter h_next\nh_enter Enter start\n"
    text = text.replace(" s:1", " switch:1") + "h_next NextIteration pushed\n"
    _, shaped = with_told_shapes(graph_def(text), known)
    assert list(shaped) == ["pop"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("enter_back Enter exit", "enter_back Enter somewhere"),
        ("next NextIteration push", "next NextIteration merge"),
        ("push TensorListPushBack switch:1 pushed", "push Other switch:1 pushed"),
        ("merge Merge enter next", "merge Merge enter"),
    ],
)
def test_a_list_of_which_nobody_knows_is_left_alone(old: str, new: str) -> None:
    given = graph_def(NODES.replace(old, new))
    completed, shaped = with_told_shapes(given, known)
    assert not shaped
    assert completed == given


def test_graphs_without_such_loops_are_not_looked_at() -> None:
    assert not takes_unknown(graph_def("a Neg b\npop TensorListPopBack a b"), known)


STACKED = """
sizes Const
condition LoopCond
count Const
reserve TensorListReserve shape count
enter Enter reserve
merge Merge enter next
switch Switch merge condition
set TensorListSetItem switch:1 index element
next NextIteration set
exit Exit switch
stack TensorListStack exit shape
reader Neg stack
waits NoOp ^stack
sizes_enter Enter sizes
sizes_merge Merge sizes_enter sizes_next
sizes_switch Switch sizes_merge condition
sizes_next NextIteration sizes_switch:1
element Make sizes_switch:1
get_enter Enter exit
get_merge Merge get_enter get_next
get_switch Switch get_merge other_condition
got TensorListGetItem get_switch:1 index shape
get_next NextIteration get_switch:1
got_reader Neg got
"""


def stacked(text: str = STACKED, **constants: tuple[int, ...]) -> GraphDef:
    from tensorflow.python.framework import tensor_util

    found = graph_def(text)
    for node in found.node:
        if node.op == "Const":
            numbers = constants.get(node.name, (4,))
            value: list[int] | int = list(numbers) if len(numbers) > 1 else numbers[0]
            proto = tensor_util.make_tensor_proto(value, dtype="int32")
            node.attr["dtype"].type = 3
            node.attr["value"].tensor.CopyFrom(proto)
    return found


def knows_elements(node: str, port: int) -> TensorProperties | None:
    del port
    return tensor_properties(FLOAT, (2, 3) if node == "element" else None)


def shapes_of(completed: GraphDef) -> dict[str, list[int]]:
    return {
        node.input[0]: [dimension.size for dimension in node.attr["shape"].shape.dim]
        for node in completed.node
        if node.op == "EnsureShape"
    }


def test_what_is_stacked_behind_a_loop_is_as_many_elements_as_were_set() -> None:
    given = stacked(count=(5,))
    before = given.SerializeToString(deterministic=True)
    assert takes_unknown(given, knows_elements)
    completed, shaped = with_told_shapes(given, knows_elements)
    assert shapes_of(completed) == {"stack:0": [5, 2, 3], "got:0": [2, 3]}
    by_name = {node.name: node for node in completed.node}
    assert list(by_name["reader"].input) == [shaped["stack"]]
    assert list(by_name["got_reader"].input) == [shaped["got"]]
    assert list(by_name["waits"].input) == ["^stack"]
    assert given.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("count Const", "count Placeholder"),
        ("enter Enter reserve", "enter Enter somewhere"),
        ("set TensorListSetItem switch:1 index element", "set Other switch:1 index element"),
    ],
)
def test_a_list_of_unknown_length_is_not_stacked(old: str, new: str) -> None:
    completed, shaped = with_told_shapes(stacked(STACKED.replace(old, new)), knows_elements)
    assert "stack" not in shaped
    assert "stack:0" not in shapes_of(completed)


def test_integers_that_every_turn_is_given_are_constants_to_it() -> None:
    completed, _ = with_told_shapes(stacked(sizes=(3, 3, 1, 8)), knows_elements)
    by_name = {node.name: node for node in completed.node}
    (source,) = by_name["element"].input
    assert by_name[source].op == "Const"
    assert by_name[source].attr["value"] == by_name["sizes"].attr["value"]
    # The loop itself goes on as it is.
    assert list(by_name["sizes_merge"].input) == ["sizes_enter", "sizes_next"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sizes_next NextIteration sizes_switch:1", "sizes_next NextIteration element"),
        ("sizes_next NextIteration sizes_switch:1", "sizes_next NextIteration switch:1"),
        ("sizes Const", "sizes Placeholder"),
    ],
)
def test_what_may_change_from_turn_to_turn_is_no_constant(old: str, new: str) -> None:
    completed, _ = with_told_shapes(stacked(STACKED.replace(old, new)), knows_elements)
    by_name = {node.name: node for node in completed.node}
    assert list(by_name["element"].input) == ["sizes_switch:1"]


def test_a_constant_may_enter_for_all_turns_at_once() -> None:
    text = STACKED.replace("element Make sizes_switch:1", "element Make sizes_enter")
    given = stacked(text, sizes=(2, 3))
    next(node for node in given.node if node.name == "sizes_enter").attr["is_constant"].b = True
    completed, _ = with_told_shapes(given, knows_elements)
    by_name = {node.name: node for node in completed.node}
    assert by_name[by_name["element"].input[0]].op == "Const"
