"""VirtualScheduler: runs a graph on a described machine, in numbers.

TensorFlow's `SchedulerState` and `VirtualScheduler`
(tensorflow/core/grappler/costs/virtual_scheduler.cc), node by node and nanosecond by nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memopt.costs.cost_model import Cost
from memopt.errors import OptionsError
from memopt.simulation.placer import VirtualPlacer
from memopt.simulation.ready_nodes import FIRST_READY, MANAGERS, ready_nodes
from memopt.simulation.rewiring import rewire
from memopt.simulation.simulation import Prepared, Simulation, Timeline
from memopt.simulation.wiring import Transfer, Wiring

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memopt.cluster import Device, VirtualCluster
    from memopt.costs.cost_model import CostModel
    from memopt.graph.graph import Graph, Node
    from memopt.shapes.properties import Properties
    from memopt.simulation.wiring import Request

PERSISTENT_OPS = frozenset(
    "Const HostConst Variable VariableV2 AutoReloadVariable VarHandleOp ReadVariableOp "
    "_VarHandlesOp _ReadVariablesOp".split()
)
"""Ops whose outputs last beyond the step (`IsPersistent`)."""

VARIABLE_OPS = PERSISTENT_OPS - {"Const", "HostConst"}
"""The same as the first version of the scheduler had it: variables only."""

_EXECUTION_COUNT = "_execution_count"
_TRANSFER_COST = Cost(1, 0, 1)
"""TensorFlow's virtual placer has no rates for channels: a transfer takes a nanosecond."""


@dataclass(frozen=True)
class SchedulerOptions:
    """How the scheduler counts; the defaults are those of TensorFlow 2.21.

    Attributes:
        ready_nodes: The ready-node manager: FirstReady, FIFO, LIFO or Composite.
        persistent_ops: Ops whose outputs are not temporary memory; the first version of the
            scheduler had `VARIABLE_OPS`.
        peak_after_release: Look for the peak after a node's inputs are released, not before, as the
            first version did.
        count_in_memory: Multiply a node's memory by its `_execution_count`, as the first version
            did (added by the producer's, released by the last consumer's).
        control_messages: Send control edges across devices as messages of 4 bytes, as the first
            version did; today they are free.
        transfer_times: Let a transfer take as long as the devices' links make it (latency and
            bandwidth of the slower one) instead of one nanosecond. Beyond TensorFlow.
        host_memory: In `GraphMemory`, count copies on the host there, not on the GPU that makes
            them. Beyond TensorFlow.
    """

    ready_nodes: str = FIRST_READY
    persistent_ops: frozenset[str] = PERSISTENT_OPS
    peak_after_release: bool = False
    count_in_memory: bool = False
    control_messages: bool = False
    transfer_times: bool = False
    host_memory: bool = False

    def __post_init__(self) -> None:
        if self.ready_nodes not in MANAGERS:
            raise OptionsError(
                f"there is no ready-node manager {self.ready_nodes!r}, only {', '.join(MANAGERS)}"
            )


class VirtualScheduler:
    """Simulates steps on a cluster."""

    def __init__(
        self,
        cluster: VirtualCluster,
        costs: CostModel,
        properties: Properties,
        options: SchedulerOptions | None = None,
    ) -> None:
        self.cluster = cluster
        self.costs = costs
        self.properties = properties
        self.options = options or SchedulerOptions()
        self.placer = VirtualPlacer(cluster)

    def run(self, graph: Graph, request: Request) -> Simulation:
        """Simulate one step.

        Args:
            graph: The graph.
            request: What is asked for and what is given.

        Raises:
            InvalidGraphError: A fetched node is missing.
        """
        return _simulate(self._prepare(graph, request), self.options)

    def run_again(
        self, last: Simulation, graph: Graph, request: Request, touched: Iterable[Node]
    ) -> Simulation:
        """Simulate one step of a graph that was simulated before and then edited.

        What did not change is not looked at again. The last simulation must not be used afterwards.

        Args:
            last: The simulation before.
            graph: The graph as it is now.
            request: What is asked for and what is given, the same as then.
            touched: The nodes that were changed, added or taken out since.
        """
        changed = None
        if self.options.ready_nodes == FIRST_READY:
            changed = rewire(last.wiring, graph, request, touched)
        if changed is None:
            return self.run(graph, request)
        prepared = last.prepared
        total = len(prepared.wiring.nodes)
        prepared.costs += [_TRANSFER_COST] * (total - len(prepared.costs))
        prepared.counts += [1] * (total - len(prepared.counts))
        for number in changed:
            prepared.costs[number] = self._cost_under(prepared.wiring, number)
            prepared.counts[number] = _execution_count(prepared.wiring.nodes[number])
        prepared.sort_names()
        return _simulate(prepared, self.options)

    def cost(self, node: Node) -> Cost:
        """The cost of one execution of a node where the placer puts it."""
        device = self.cluster[self.placer.place(node.device)]
        return self.costs.cost(node, device, self.properties)

    def _prepare(self, graph: Graph, request: Request) -> Prepared:
        options = self.options
        wiring = Wiring(
            graph,
            request,
            self.properties,
            self.placer,
            options.persistent_ops,
            sends_controls=options.control_messages,
        )
        prepared = Prepared(
            wiring,
            [self._cost_under(wiring, number) for number in range(len(wiring.nodes))],
            [_execution_count(node) for node in wiring.nodes],
        )
        prepared.sort_names()
        return prepared

    def _cost_under(self, wiring: Wiring, number: int) -> Cost:
        node = wiring.nodes[number]
        if not isinstance(node, Transfer):
            device = self.cluster[self.placer.place(node.device)]
            return self.costs.cost(node, device, self.properties)
        if not self.options.transfer_times or node.op != "_Send":
            return _TRANSFER_COST
        size_bytes = wiring.port_bytes[wiring.first_port[number]]
        return _transfer_cost(size_bytes, self.cluster[node.source], self.cluster[node.destination])


def _transfer_cost(size_bytes: int, source: Device, destination: Device) -> Cost:
    """The time of a transfer over the slower of two links."""
    rate = min(source.link_bytes_per_s, destination.link_bytes_per_s)
    latency_ns = max(source.link_latency_ns, destination.link_latency_ns)
    time_ns = latency_ns + -(-size_bytes * 1_000_000_000 // rate)
    return Cost(time_ns, 0, time_ns)


def _execution_count(node: Node | Transfer) -> int:
    if isinstance(node, Transfer) or _EXECUTION_COUNT not in node.attributes:
        return 1
    count: int = node.attributes[_EXECUTION_COUNT].i
    return count


def _simulate(  # noqa: C901, PLR0915 - the hottest loop; calls would double it
    prepared: Prepared, options: SchedulerOptions
) -> Simulation:
    """Run what is ready until nothing is (`MarkNodeExecuted`)."""
    wiring, costs, counts = prepared.wiring, prepared.costs, prepared.counts
    total = len(wiring.nodes)
    rank = [0] * total
    for place, number in enumerate(prepared.by_name):
        rank[number] = place
    ready_ns = [0] * total
    start_ns = [-1] * total
    end_ns = [-1] * total
    executed: list[int] = []
    device, users, reads, merges = wiring.device, wiring.users, wiring.reads, wiring.merges
    waits, left, owner = list(wiring.waits), list(wiring.port_edges), wiring.port_owner
    temporary = wiring.temporary_bytes
    produced = wiring.produced_bytes
    if options.count_in_memory:
        produced = [size * count for size, count in zip(produced, counts, strict=True)]
    duration = [cost.execution_ns * count for cost, count in zip(costs, counts, strict=True)]
    clock = [0] * len(wiring.devices)
    used = [0] * len(wiring.devices)
    peak = [0] * len(wiring.devices)
    peak_event = [-1] * len(wiring.devices)
    scales = options.count_in_memory
    after_release = options.peak_after_release
    ready = ready_nodes(options.ready_nodes, ready_ns, rank, wiring)
    push, pop = ready.push, ready.pop
    for number in wiring.initial:
        push(number)
    while ready:
        number = pop()
        place = device[number]
        ran_before = start_ns[number] >= 0
        if not ran_before:
            start_ns[number] = max(clock[place], ready_ns[number])
            clock[place] = start_ns[number]
        finish = clock[place] + duration[number]
        clock[place] = finish
        end_ns[number] = finish
        now = used[place] + produced[number]
        used[place] = now
        if not (ran_before and number in merges):
            for user in users[number]:
                waiting = waits[user] - 1
                waits[user] = waiting
                if not waiting or user in merges:
                    ready_ns[user] = finish
                    push(user)
        if now > peak[place] and not after_release:
            peak[place] = now
            peak_event[place] = len(executed)
        for port in reads[number]:
            left[port] -= 1
            if not left[port]:
                size = temporary[port] * counts[number] if scales else temporary[port]
                used[device[owner[port]]] -= size
        if after_release and used[place] > peak[place] and number not in wiring.persistent:
            peak[place] = used[place]
            peak_event[place] = len(executed)
        executed.append(number)
    return Simulation(prepared, Timeline(executed, start_ns, end_ns, peak, peak_event))
