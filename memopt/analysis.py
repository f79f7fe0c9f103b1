"""MemoryAnalysis: where a step's memory goes, by a simulation on described devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.cluster import VirtualCluster
from memopt.costs.choice import AUTO, choose_costs
from memopt.display import Overview, Paged, Table, bytes_text, count_text, short_name, time_text
from memopt.errors import InvalidGraphError, OptionsError
from memopt.graph.graphdef import from_graph_def
from memopt.graph.verify import verify_graph, verify_references
from memopt.io import as_item
from memopt.shapes.properties import Properties
from memopt.simulation.graph_memory import GraphMemory
from memopt.simulation.run_metadata import run_metadata
from memopt.simulation.summary import summarize
from memopt.simulation.virtual_scheduler import SchedulerOptions, VirtualScheduler
from memopt.simulation.wiring import Request, Transfer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tensorflow.core.protobuf.config_pb2 import RunMetadata

    from memopt.cluster import Device
    from memopt.costs.cost_model import CostModel
    from memopt.graph.graph import FunctionLibrary, Graph, Node
    from memopt.io import GraphSource
    from memopt.simulation.graph_memory import LiveTensor
    from memopt.simulation.simulation import Simulation
    from memopt.simulation.summary import DeviceCosts, Summary


class LiveUse(NamedTuple):
    """A tensor that is live at a device's peak.

    Attributes:
        tensor: `node:port`; the name of a receive for a copy from another device.
        size_bytes: Its bytes; what is not known counts as little as it can be.
        op: The op that produces it.
        scope: The name scope of its producer: all but the last part of the name. For a copy that of
            the original.
        allocated_ns: When its producer starts.
        freed_ns: When its last reader has ended.
        first_use: The node that reads it first, or "" if none does, and for a copy: whatever reads
            that counts as a reader of the original.
        last_use: The node that ends last of those that read it, or "".
    """

    tensor: str
    size_bytes: int
    op: str
    scope: str
    allocated_ns: int
    freed_ns: int
    first_use: str
    last_use: str


class DeviceAnalysis(NamedTuple):
    """One device of the cluster.

    Attributes:
        name: Its full name.
        memory_bytes: Its memory; 0 for no limit.
        peak_bytes: The most that is in use at a time, persistent tensors included.
        peak_at_ns: When that is.
        live: What is in use then, the largest first.
        costs: What ran there; `None` if nothing did.
    """

    name: str
    memory_bytes: int
    peak_bytes: int
    peak_at_ns: int
    live: tuple[LiveUse, ...]
    costs: DeviceCosts | None

    def __repr__(self) -> str:
        return _device_overview(self).text()

    def _repr_html_(self) -> str:
        return _device_overview(self).html()


@dataclass(frozen=True, repr=False)
class MemoryAnalysis(Paged):
    """What one step of a graph uses on each device.

    Attributes:
        devices: The cluster's devices, in its order.
        summary: Costs by op and device, and the critical path.
        unknown_sizes: Tensors of unknown size that the step makes; they count as little as they
            can be.
        simulation: The timeline itself.
        library: The functions that the graph's nodes call.
        memory: Whence the peaks are, which knows the life of every tensor.
    """

    devices: tuple[DeviceAnalysis, ...]
    summary: Summary
    unknown_sizes: tuple[str, ...]
    simulation: Simulation = field(repr=False, compare=False)
    library: FunctionLibrary | None = field(default=None, repr=False, compare=False)
    memory: GraphMemory | None = field(default=None, repr=False, compare=False)

    @property
    def peak_bytes(self) -> dict[str, int]:
        """For each device the most that is in use at a time, persistent tensors included."""
        return {device.name: device.peak_bytes for device in self.devices}

    def run_metadata(self) -> RunMetadata:
        """The timeline as TensorFlow's tools read it."""
        return run_metadata(self.simulation, self.library)

    def to_json(self) -> dict[str, Any]:
        """The analysis as plain data."""
        return {
            "critical_path_ns": self.summary.critical_path_ns,
            "critical_device": self.summary.critical_device,
            "devices": [_device_to_json(device) for device in self.devices],
            "channels": [
                _costs_to_json(costs)
                for costs in self.summary.devices
                if costs.name not in self.peak_bytes
            ],
            "operations": [operation._asdict() for operation in self.summary.operations],
            "unknown_sizes": list(self.unknown_sizes),
        }

    def _overview(self) -> Overview:
        fullest = max(self.devices, key=lambda device: device.peak_bytes)
        outcome = (
            f"simulated step of {time_text(self.summary.critical_path_ns)}, highest peak "
            f"{bytes_text(fullest.peak_bytes)} on {short_name(fullest.name)}"
        )
        if fullest.memory_bytes and fullest.peak_bytes > fullest.memory_bytes:
            outcome += ", MORE than its memory"
        unknown = count_text(len(self.unknown_sizes), "tensor")
        return Overview(
            "MemoryAnalysis",
            outcome,
            (Table.of(_DEVICE_COLUMNS, self.devices, _device_row), _live_table(fullest)),
            (f"{unknown} of unknown size count as little as they can be",)
            if self.unknown_sizes
            else (),
        )


def analyze(
    graph: GraphSource,
    *,
    devices: VirtualCluster | Iterable[Device | str] | None = None,
    costs: CostModel | str = AUTO,
    scheduler: SchedulerOptions | None = None,
    fetch: Sequence[str] | None = None,
    feed: Sequence[str] | None = None,
) -> MemoryAnalysis:
    """Simulate one step of a graph and tell where its memory goes.

    Args:
        graph: A GraphDef, MetaGraphDef, ConcreteFunction, path of a graph file, or GrapplerItem.
        devices: What the step runs on: a cluster, or devices or their descriptions
            ("GPU:0=GPU:16GiB"). Without, this machine's, as TensorFlow lists them.
        costs: How long operations take: "auto" or "grappler", "native" (the same numbers asked
            from TensorFlow), a file of times or of a profile, or a model of one's own.
        scheduler: How the simulation counts; if not given as TensorFlow 2.21, but for copies on the
            host, which count there.
        fetch: Tensors and operations that the caller asks for; found out if not given.
        feed: Tensors that the caller gives; found out if not given.

    Raises:
        FileError: The path holds no graph, or the file no times.
        InvalidGraphError: The graph breaks a rule, a named node is missing, nothing is fetched, or
            TensorFlow refuses the graph when it is asked for shapes.
        OptionsError: A device is not described as it should be, or two have the same name; or XLA
            compiles the function.
    """
    item = as_item(graph, fetch, feed)
    if item.compiled:
        raise OptionsError(
            "XLA compiles the function, so none of its operations runs by itself; "
            "memopt.compiled_memory(function) tells what it holds"
        )
    loaded = from_graph_def(item.graph_def)
    verify_graph(loaded)
    if not item.fetch:
        raise InvalidGraphError("nothing is fetched, so nothing would run")
    verify_references(loaded, item.fetch, "fetch")
    verify_references(loaded, item.feed, "feed")
    cluster = VirtualCluster.of(devices)
    model = choose_costs(costs, item)
    options = scheduler or SchedulerOptions(host_memory=True)
    runner = VirtualScheduler(cluster, model, Properties.of(item), options)
    simulation = runner.run(loaded, Request.of(item))
    memory = GraphMemory(simulation, host_memory=options.host_memory)
    return _analyze(loaded, cluster, memory)


def _analyze(loaded: Graph, cluster: VirtualCluster, memory: GraphMemory) -> MemoryAnalysis:
    simulation = memory.simulation
    summary = summarize(simulation)
    wiring = simulation.wiring
    transfers = {
        node.name: node for node in wiring.nodes[wiring.real :] if isinstance(node, Transfer)
    }
    ran_on = {device.name: device for device in summary.devices}
    analyzed = []
    for device in cluster:
        peak = memory.peak(device.name)
        live = [
            _live_use(transfers.get(use.node) or loaded[use.node], simulation, use)
            for use in peak.live
        ]
        live.sort(key=lambda use: (-use.size_bytes, use.tensor))
        analyzed.append(
            DeviceAnalysis(
                device.name,
                device.memory_bytes,
                max(peak.used_bytes, 0),
                peak.at_ns,
                tuple(live),
                ran_on.get(device.name),
            )
        )
    unknown = tuple(_unknown_sizes(simulation))
    return MemoryAnalysis(tuple(analyzed), summary, unknown, simulation, loaded.library, memory)


def _live_use(producer: Node | Transfer, simulation: Simulation, tensor: LiveTensor) -> LiveUse:
    original, uses = tensor.node, list[tuple[int, int, str]]()
    if not isinstance(producer, Transfer):
        uses = list(_uses(simulation, producer, tensor.port))
    elif producer.tensor is not None:
        original = producer.tensor.node.name
    return LiveUse(
        tensor.tensor,
        tensor.size_bytes,
        producer.op,
        original.rpartition("/")[0],
        tensor.allocated_ns,
        tensor.freed_ns,
        min(uses)[2] if uses else "",
        max(uses, key=lambda use: use[1:])[2] if uses else "",
    )


def _uses(simulation: Simulation, node: Node, port: int) -> Iterator[tuple[int, int, str]]:
    """The start, the end and the name of every node that reads a tensor and runs."""
    for reader, _ in node.output(port).uses:
        start_ns, end_ns = simulation.start_ns(reader), simulation.end_ns(reader)
        if start_ns is not None and end_ns is not None:
            yield start_ns, end_ns, reader.name


def _unknown_sizes(simulation: Simulation) -> Iterator[str]:
    wiring = simulation.wiring
    for number in range(wiring.real):
        for port, tensor in enumerate(wiring.outputs(number)):
            if tensor.size_bytes is None:
                yield f"{wiring.name(number)}:{port}"


_DEVICE_COLUMNS = ("device", "memory", "peak", "at")


def _device_row(device: DeviceAnalysis) -> tuple[str, ...]:
    return (
        short_name(device.name),
        bytes_text(device.memory_bytes) if device.memory_bytes else "",
        bytes_text(device.peak_bytes),
        time_text(device.peak_at_ns),
    )


def _live_table(device: DeviceAnalysis) -> Table:
    return Table.of(("live at the peak", "size", "op", "last use"), device.live, _live_row)


def _live_row(use: LiveUse) -> tuple[str, ...]:
    return use.tensor, bytes_text(use.size_bytes), use.op, use.last_use


def _device_overview(device: DeviceAnalysis) -> Overview:
    outcome = f"{short_name(device.name)}, peak {bytes_text(device.peak_bytes)}"
    if device.memory_bytes:
        outcome += f" of {bytes_text(device.memory_bytes)}"
    at = f" at {time_text(device.peak_at_ns)}, {count_text(len(device.live), 'tensor')} live"
    return Overview("DeviceAnalysis", outcome + at, (_live_table(device),))


def _device_to_json(device: DeviceAnalysis) -> dict[str, Any]:
    return {
        "name": device.name,
        "memory_bytes": device.memory_bytes,
        "peak_bytes": device.peak_bytes,
        "peak_at_ns": device.peak_at_ns,
        "live": [use._asdict() for use in device.live],
        "costs": None if device.costs is None else _costs_to_json(device.costs),
    }


def _costs_to_json(costs: DeviceCosts) -> dict[str, Any]:
    return {
        **costs._asdict(),
        "utilisation": costs.utilisation,
        "inaccurate": costs.inaccurate,
        "operations": [operation._asdict() for operation in costs.operations],
    }
