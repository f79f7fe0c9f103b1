"""Functions that call themselves end in an error, not in a process without a stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.nested import calls_itself, nested_step

import memopt
from memopt.errors import InvalidGraphError
from memopt.item import GrapplerItem
from memopt.shapes.recursion import refuse_recursion

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "use",
    [
        memopt.analyze,
        lambda item: memopt.optimize(item, level="ordered"),
        lambda item: memopt.optimize(item, level="heuristics"),
        lambda item: memopt.optimize(item, level="heuristics", as_grappler=True),
    ],
)
def test_a_graph_with_one_is_refused(use: Callable[[GrapplerItem], Any]) -> None:
    item = GrapplerItem.from_concrete_function(nested_step())
    refuse_recursion(item.graph_def)
    name = calls_itself(item.graph_def)
    with pytest.raises(InvalidGraphError, match="calls itself") as caught:
        use(item)
    assert caught.value.node == name


def test_deep_calls_are_no_recursion() -> None:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    graph_def, depth = GraphDef(), 50_000
    for number in range(depth):
        function = graph_def.library.function.add()
        function.signature.name = f"f{number}"
        function.node_def.add(name="call", op=f"f{number + 1}")
    refuse_recursion(graph_def)
    graph_def.library.function[-1].node_def[0].op = "f0"
    with pytest.raises(InvalidGraphError, match="'f0' calls itself"):
        refuse_recursion(graph_def)
