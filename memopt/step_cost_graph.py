"""A training step as a cost graph: what the planner sees of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from memopt.context import Context
from memopt.costs.choice import choose_planning_costs
from memopt.errors import InvalidGraphError, OptionsError
from memopt.graph.graphdef import from_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.optimization.prepared import verify_item
from memopt.optimizer import MemoryOptimizer
from memopt.options import Level
from memopt.passes import Fission, Ordering
from memopt.rematerialization.planned.reduction import Reduction
from memopt.rematerialization.rewriting.eligibility import network_of
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.costs.cost_model import CostModel
    from memopt.item import GrapplerItem
    from memopt.passes import Pass
    from memopt.planning.cost_graph import CostGraph


def cost_graph_of(item: GrapplerItem, costs: CostModel | str, name: str = "") -> CostGraph:
    """The step of an item as the planner sees it: see `memopt.cost_graph`.

    Args:
        item: The graph and its use.
        costs: How long operations take; see `choose_planning_costs`.
        name: What the cost graph is called.

    Raises:
        InvalidGraphError: The graph breaks a rule, has no operation, or sizes are not known.
        OptionsError: XLA compiles all of it.
    """
    if item.compiled:
        raise OptionsError(
            "XLA compiles the function, and then it does not need what its operations need; "
            "memopt.compiled_memory tells what it does"
        )
    graph = from_graph_def(item.graph_def)
    verify_item(graph, item)
    properties = Properties.of(item)
    properties.require()
    known = Context.of_item(item, properties)
    context = replace(known, costs=choose_planning_costs(costs, item))
    rewriter = Rewriter(graph)
    for pass_ in _before_planning():
        pass_.run(rewriter, context)
    order = Ordering().order(graph, context)
    if order is None or not order.sequence:
        raise InvalidGraphError("the graph has no operation that runs")
    network = network_of(graph, order.buffer_graph, order.sequence, context)
    return replace(Reduction.of(network, {}).cost_graph, name=name)


def _before_planning() -> Iterator[Pass]:
    """What is done to a step within a budget before anything is split or planned."""
    once = MemoryOptimizer(Level.ORDERED, budget="100%").pipeline().once
    return takewhile(lambda pass_: pass_.name != Fission.name, once)
