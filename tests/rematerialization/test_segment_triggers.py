"""What copies in a compiled step wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.bad_inputs import graph_def_of

from memopt.context import Context
from memopt.graph.graphdef import from_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.item import GrapplerItem
from memopt.rematerialization.rewriting.segment_triggers import hold_copies
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.graph.graph import Tensor

STEP = """
x = Placeholder() {dtype=float, shape=[32,32]}
moment = Placeholder() {dtype=float, shape=[32,32]}
a = MatMul(x, x) {T=float}
b = MatMul(a, a) {T=float}
decayed = Mul(moment, moment) {T=float}
old = MatMul(x, moment) {T=float}
Recomputed/t = Tanh(x) {T=float}
read = AddN(b, decayed, old, Recomputed/t) {N=4, T=float}
"""


class Noted:
    """Lets nothing wait, and notes what it would wait for."""

    def __init__(self) -> None:
        self.triggers: list[str] = []

    def hold(self, tensors: Sequence[Tensor], trigger: Tensor) -> dict[Tensor, Tensor]:
        self.triggers.append(trigger.node.name)
        return {tensor: tensor for tensor in tensors}


@pytest.mark.parametrize(
    ("planned", "trigger"),
    [
        ("x moment a b decayed old Recomputed/t read", "b"),
        ("x moment a decayed old Recomputed/t b read", "old"),
        ("x moment decayed Recomputed/t a b old read", "decayed"),
    ],
)
def test_copies_wait_for_what_is_made_latest_not_planned_last(planned: str, trigger: str) -> None:
    """Behind the most kernels; what comes from a moment alone is there from the start."""
    item = GrapplerItem(graph_def_of(STEP), feed=("x:0", "moment:0"), fetch=("read:0",))
    graph = from_graph_def(item.graph_def)
    order = [graph[name] for name in planned.split()]
    noted, rewriter = Noted(), Rewriter(graph)
    with rewriter.edit("copies wait"):
        hold_copies(rewriter, Context.of_item(item, Properties.of(item)), order, noted)
    assert noted.triggers == [trigger]
