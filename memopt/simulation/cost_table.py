"""A table of what a cost model says of a graph's nodes, to save it or edit it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.costs.fixed import FixedCosts
from memopt.simulation.placer import VirtualPlacer

if TYPE_CHECKING:
    from memopt.cluster import VirtualCluster
    from memopt.costs.cost_model import CostModel
    from memopt.graph.graph import Graph
    from memopt.shapes.properties import Properties


def tabulate_costs(
    graph: Graph, cluster: VirtualCluster, costs: CostModel, properties: Properties
) -> FixedCosts:
    """What a cost model says of each node on the device where it is placed.

    That model is also the fallback of the table.
    """
    placer = VirtualPlacer(cluster)
    times_ns = {
        node.name: costs.cost(node, cluster[placer.place(node.device)], properties).execution_ns
        for node in graph
    }
    return FixedCosts(costs, nodes=times_ns)
