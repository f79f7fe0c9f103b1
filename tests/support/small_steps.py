"""Small steps written as text, simulated with sizes and times that a person can add up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.cluster import VirtualCluster
from memopt.costs.cost_model import Cost
from memopt.graph.text import parse_graph
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import TensorProperties
from memopt.simulation.virtual_scheduler import SchedulerOptions, VirtualScheduler
from memopt.simulation.wiring import Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.cluster import Device
    from memopt.graph.graph import Graph, Node
    from memopt.simulation.simulation import Simulation

DEFAULT_NS = 10
"""The time of a node that a test does not tell."""

DT_UINT8 = 4
_LOCAL = ("/job:localhost/replica:0/task:0/device:", "/job_localhost/replica_0/task_0/device_")


class TableCosts:
    """A cost model that looks the times of nodes up by name, on whatever device."""

    def __init__(self, times: Mapping[str, int | Cost]) -> None:
        self._times = times
        self.asked: list[tuple[str, str]] = []
        """The nodes and devices whose costs were asked for, in order."""

    def cost(self, node: Node, device: Device, properties: Properties) -> Cost:
        """The cost of one execution; all of a plain time is arithmetic."""
        del properties
        self.asked.append((node.name, device.name))
        time = self._times.get(node.name, DEFAULT_NS)
        return time if isinstance(time, Cost) else Cost(time, time, 0)


def sized(sizes: Mapping[str, int | tuple[int, ...]]) -> Properties:
    """Properties of nodes whose outputs have so many bytes; of others nothing is known."""
    properties = Properties.unknown()
    for name, given in sizes.items():
        ports = given if isinstance(given, tuple) else (given,)
        outputs = (TensorProperties(DT_UINT8, (size,), size) for size in ports)
        properties.add(name, tuple(outputs))
    return properties


def simulate(  # noqa: PLR0913 - all that a step is, by keyword
    step: str | Graph,
    *,
    fetch: str | Sequence[str],
    feed: Sequence[str] = (),
    sizes: Mapping[str, int | tuple[int, ...]] | None = None,
    times: Mapping[str, int | Cost] | None = None,
    devices: Sequence[Device | str] = ("CPU:0=CPU",),
    options: SchedulerOptions | None = None,
) -> Simulation:
    """Simulate a step.

    Args:
        step: The graph, or its text.
        fetch: Names of the nodes that are asked for.
        feed: Names of the nodes that are given.
        sizes: Bytes of each output, by node; nothing is known of others, which counts as none.
        times: Nanoseconds of each node; `DEFAULT_NS` for others.
        devices: What it runs on.
        options: How the scheduler counts.
    """
    graph = parse_graph(step) if isinstance(step, str) else step
    scheduler = VirtualScheduler(
        VirtualCluster(devices), TableCosts(times or {}), sized(sizes or {}), options
    )
    fetched = (fetch,) if isinstance(fetch, str) else tuple(fetch)
    return scheduler.run(graph, Request(fetched, frozenset(feed)))


def short(name: str) -> str:
    """A device's or a transfer's name without job, replica and task."""
    for local in _LOCAL:
        name = name.replace(local, "")
    return name


def spans(simulation: Simulation) -> dict[str, tuple[int, int]]:
    """When each node that ran started first and ended last, transfers included."""
    return {
        short(node.name): (start_ns, end_ns)
        for node, start_ns, end_ns in zip(
            simulation.wiring.nodes, simulation.starts_ns, simulation.ends_ns, strict=True
        )
        if end_ns >= 0
    }


def order(simulation: Simulation) -> list[str]:
    """What ran, in order; a Merge once for each of its inputs."""
    return [short(simulation.wiring.name(number)) for number in simulation.executed]
