"""Simulations of one graph while passes change it, made anew only when it has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.simulation.graph_memory import GraphMemory

if TYPE_CHECKING:
    from memopt.cluster import VirtualCluster
    from memopt.costs.cost_model import Cost, CostModel
    from memopt.graph.graph import Graph, Node
    from memopt.shapes.properties import Properties
    from memopt.simulation.simulation import Simulation
    from memopt.simulation.virtual_scheduler import VirtualScheduler
    from memopt.simulation.wiring import Request


class SimulatedMemory:
    """What a step of a graph uses on a cluster, for passes that ask again and again.

    Attributes:
        cluster: The devices.
        costs: How long operations take.
        properties: Shapes and types; a pass tells it those of the nodes that it adds.
        count: How many simulations were made.
    """

    def __init__(self, graph: Graph, scheduler: VirtualScheduler, request: Request) -> None:
        self.cluster: VirtualCluster = scheduler.cluster
        self.costs: CostModel = scheduler.costs
        self.properties: Properties = scheduler.properties
        self.count = 0
        self._graph = graph
        self._request = request
        self._scheduler = scheduler
        self._simulation: Simulation | None = None
        self._version = -1
        self._latest: GraphMemory | None = None
        self._memory: GraphMemory | None = None

    def simulation(self) -> Simulation:
        """The timeline of the graph as it is now."""
        if self._simulation is None or self._version != self._graph.version:
            self._simulation = self._simulate()
            self._version = self._graph.version
            self.count += 1
        return self._simulation

    def _simulate(self) -> Simulation:
        touched = self._graph.touched_since(self._version)
        if self._simulation is None or touched is None:
            return self._scheduler.run(self._graph, self._request)
        for memory in (self._memory, self._latest):
            if memory is not None and memory.simulation is self._simulation:
                memory.settle()
        return self._scheduler.run_again(self._simulation, self._graph, self._request, touched)

    def memory(self) -> GraphMemory:
        """Each device's peak, of the graph as it was when first asked since `forget`.

        Grappler shares one analysis between its passes in the same way.
        """
        if self._memory is None:
            self._memory = self.memory_now()
        return self._memory

    def forget(self) -> None:
        """Let the next `memory` look at the graph as it is then."""
        self._memory = None

    def peak_bytes(self) -> dict[str, int]:
        """For each device of the cluster its peak, of the graph as it is now."""
        memory = self.memory_now()
        return {device.name: max(memory.peak(device.name).used_bytes, 0) for device in self.cluster}

    def memory_now(self) -> GraphMemory:
        """Each device's memory, of the graph as it is now."""
        simulation = self.simulation()
        if self._latest is None or self._latest.simulation is not simulation:
            host_memory = self._scheduler.options.host_memory
            self._latest = GraphMemory(simulation, host_memory=host_memory)
        return self._latest

    def cost(self, node: Node) -> Cost:
        """The cost of one execution of a node, whether it runs in the simulation or not."""
        if self._simulation is not None and self._version == self._graph.version:
            number = self._simulation.wiring.number[node.index]
            if number >= 0:
                return self._simulation.costs[number]
        return self._scheduler.cost(node)

    def execution_ns(self, node: Node) -> int:
        """The nanoseconds of one execution of a node."""
        return self.cost(node).execution_ns
