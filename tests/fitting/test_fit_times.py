"""The estimated overhead of a plan: what is recomputed, over all that is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.steps import tiny_step

from memopt.costs.cost_model import Cost
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.optimization.overhead import estimate_overhead
from memopt.optimizer import MemoryOptimizer

if TYPE_CHECKING:
    from memopt.cluster import Device
    from memopt.graph.graph import Node
    from memopt.shapes.properties import Properties


class Dense:
    """Only products of matrices take time, and only those that a profile would know by name."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def cost(self, node: Node, device: Device, properties: Properties) -> Cost:
        del device, properties
        time_ns = 100 if node.name in self.names else 0
        return Cost(time_ns, time_ns, 0)


def test_copies_count_what_their_originals_take() -> None:
    function = MODELS["mlp"](batch=512, width=64, layers=8).function
    item = GrapplerItem.from_concrete_function(function)
    dense = {node.name for node in item.graph_def.node if node.op == "MatMul"}
    result = MemoryOptimizer("ordered", budget="40%").optimize(None, item)
    copies = [
        node.name
        for node in from_graph_def(result.graph_def)
        if node.op == "MatMul" and node.name not in dense
    ]
    assert copies
    overhead = estimate_overhead(item, result, Dense(dense))
    assert overhead == len(copies) / len(dense)


def test_an_order_alone_takes_no_more_time() -> None:
    for model in ("mlp", "lstm"):
        item = GrapplerItem.from_concrete_function(tiny_step(model).function)
        result = MemoryOptimizer("ordered").optimize(None, item)
        dense = {node.name for node in item.graph_def.node if node.op == "MatMul"}
        assert estimate_overhead(item, result, Dense(dense)) == 0
