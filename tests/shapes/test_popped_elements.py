"""What loops take out of lists has the shape of what others have put in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memopt.shapes.popped_elements import pops_unknown, with_popped_shapes
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
    assert pops_unknown(given, known)
    completed, shaped = with_popped_shapes(given, known)
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
    _, shaped = with_popped_shapes(graph_def(text), known)
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
    completed, shaped = with_popped_shapes(given, known)
    assert not shaped
    assert completed == given


def test_graphs_without_such_loops_are_not_looked_at() -> None:
    assert not pops_unknown(graph_def("a Neg b\npop TensorListPopBack a b"), known)
