"""GraphMemory: each device's peak over a simulated timeline, and what is live there.

TensorFlow's `GraphMemory` (tensorflow/core/grappler/costs/graph_memory.cc). It reads a simulation
in whole microseconds, as TensorFlow reads its step stats.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memopt.graph.graph import Graph
    from memopt.shapes.properties import Properties
    from memopt.simulation.simulation import Simulation

_MICROSECOND_NS = 1000
_COPY_TO_HOST = "_CopyFromGpuToHost"


class LiveTensor(NamedTuple):
    """A tensor with its life on the timeline.

    Attributes:
        tensor: `node:port`.
        node: The node that produces it.
        port: The output port.
        size_bytes: Its bytes.
        allocated_ns: When it comes into being, in whole microseconds.
        freed_ns: When its last reader has ended: a whole microsecond and one nanosecond.
    """

    tensor: str
    node: str
    port: int
    size_bytes: int
    allocated_ns: int
    freed_ns: int


class DeviceMemory(NamedTuple):
    """A device's peak.

    Attributes:
        used_bytes: Bytes of all that is live at the peak, persistent tensors included; -1 for a
            device that ran nothing.
        live: What is live there, by time of allocation, then by name.
        at_ns: The time of the peak.
    """

    used_bytes: int
    live: tuple[LiveTensor, ...]
    at_ns: int


class GraphMemory:
    """The memory that a simulated step uses, on each device.

    A tensor is live from the start of its node to the end of the last node that reads it,
    persistent ones like all others. Transfers between devices hold a copy of their own.

    Args:
        simulation: The simulated step.
        host_memory: Count what `_CopyFromGpuToHost` makes where it lies, on the host. TensorFlow
            counts it on the GPU.

    Attributes:
        simulation: The simulated step.
    """

    def __init__(self, simulation: Simulation, *, host_memory: bool = False) -> None:
        self.simulation = simulation
        self._hosts = _find_hosts(simulation) if host_memory else {}
        self._peaks: dict[str, DeviceMemory] = {}
        self._lives: _Lives | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """Full names of the devices and channels that hold something, in order of name."""
        if not self._hosts:
            return self.simulation.devices
        return tuple(sorted({*self.simulation.devices, *self._hosts.values()}))

    def peak(self, device: str) -> DeviceMemory:
        """The peak of a device (`GetPeakMemoryUsage`); the first one if there are several."""
        if device not in self._peaks:
            self._peaks[device] = self._find_peak(device)
        return self._peaks[device]

    def lives(self, device: str) -> list[LiveTensor]:
        """All that a device holds at some time of the step, by time of allocation, then by name."""
        import numpy as np

        if device not in self.devices:
            return []
        lives = self._all_lives()
        found = [
            self._tensor(
                int(lives.ports[k]),
                int(lives.size_bytes[k]),
                int(lives.allocated_ns[k]),
                int(lives.freed_ns[k]),
            )
            for k in np.flatnonzero(lives.device == lives.places[device])
        ]
        return sorted(found, key=lambda tensor: (tensor.allocated_ns, tensor.node, tensor.port))

    def settle(self) -> None:
        """Find the peaks of all devices now, before the simulation goes on with a changed graph."""
        for device in self.devices:
            self.peak(device)
        self._lives = None

    def _find_peak(self, device: str) -> DeviceMemory:
        import numpy as np

        if device not in self.devices:
            return DeviceMemory(-1, (), 0)
        lives = self._all_lives()
        here = lives.device == lives.places[device]
        ports = lives.ports[here]
        sizes, allocated, freed = (
            array[here] for array in (lives.size_bytes, lives.allocated_ns, lives.freed_ns)
        )
        times = np.concatenate([allocated, freed])
        changes = np.concatenate([sizes, -sizes])
        order = np.argsort(times, kind="stable")
        usage = np.cumsum(changes[order])
        ordered = times[order]
        if not len(ordered):
            return DeviceMemory(0, (), 0)
        # Only what stands after all that happens at one time counts.
        last = np.append(ordered[1:] != ordered[:-1], True)
        settled = usage[last]
        best = int(np.argmax(settled))
        used_bytes = int(settled[best])
        if used_bytes <= 0:
            return DeviceMemory(0, (), 0)
        at_ns = int(ordered[last][best])
        live = np.flatnonzero((allocated <= at_ns) & (freed > at_ns))
        tensors = [
            self._tensor(int(ports[k]), int(sizes[k]), int(allocated[k]), int(freed[k]))
            for k in live
        ]
        tensors.sort(key=lambda tensor: (tensor.allocated_ns, tensor.node, tensor.port))
        return DeviceMemory(used_bytes, tuple(tensors), at_ns)

    def _all_lives(self) -> _Lives:
        if self._lives is None:
            self._lives = _lives(self.simulation, self._hosts)
        return self._lives

    def _tensor(self, port: int, size_bytes: int, allocated_ns: int, freed_ns: int) -> LiveTensor:
        wiring = self.simulation.wiring
        owner = wiring.port_owner[port]
        node, number = wiring.name(owner), port - wiring.first_port[owner]
        return LiveTensor(f"{node}:{number}", node, number, size_bytes, allocated_ns, freed_ns)


class _Lives(NamedTuple):
    """Every output of every node that ran, as arrays, and the numbers of the devices."""

    places: dict[str, int]
    ports: NDArray[np.int64]
    device: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    allocated_ns: NDArray[np.int64]
    freed_ns: NDArray[np.int64]


def _find_hosts(simulation: Simulation) -> dict[int, str]:
    """The nodes that ran and whose output lies on the host, by number, with its full name."""
    wiring = simulation.wiring
    hosts: dict[int, str] = {}
    for number in range(wiring.real):
        if wiring.nodes[number].op == _COPY_TO_HOST and simulation.ends_ns[number] >= 0:
            task = wiring.devices[wiring.device[number]].partition("/device:")[0]
            hosts[number] = f"{task}/device:CPU:0"
    return hosts


def _lives(simulation: Simulation, hosts: dict[int, str]) -> _Lives:
    import numpy as np

    wiring = simulation.wiring
    names = {name: place for place, name in enumerate(wiring.devices)}
    device = np.array(wiring.device, dtype=np.int64)
    for number, host in hosts.items():
        device[number] = names.setdefault(host, len(names))
    owner = np.array(wiring.port_owner, dtype=np.int64)
    end_ns = np.array(simulation.ends_ns, dtype=np.int64)
    start_ns = np.array(simulation.starts_ns, dtype=np.int64)
    ended = end_ns // _MICROSECOND_NS * _MICROSECOND_NS + 1
    freed = ended[owner]
    counts = [len(ports) for ports in wiring.data_ports]
    readers = np.repeat(np.arange(len(counts)), counts)
    read_ports = np.fromiter(chain.from_iterable(wiring.data_ports), np.int64, len(readers))
    read = end_ns[readers] >= 0
    np.maximum.at(freed, read_ports[read], ended[readers[read]])
    ran = end_ns[owner] >= 0
    ran[wiring.control_port] = False
    ports = np.flatnonzero(ran)
    owners = owner[ports]
    return _Lives(
        names,
        ports,
        device[owners],
        np.array(wiring.port_bytes, dtype=np.int64)[ports],
        start_ns[owners] // _MICROSECOND_NS * _MICROSECOND_NS,
        freed[ports],
    )


def worst_case_bytes(graph: Graph, properties: Properties) -> int:
    """What a step would use if nothing were ever freed, in bytes (`GetWorstCaseMemoryUsage`)."""
    return sum(tensor.least_bytes for node in graph for tensor in properties.outputs(node.name))
