"""Simulation: what one run of the virtual scheduler found."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from memopt.costs.cost_model import Cost
    from memopt.graph.graph import Node
    from memopt.simulation.wiring import Wiring


class Prepared:
    """What a simulation needs of a graph, and the next one after an edit may use again.

    Attributes:
        wiring: What runs, as numbers; the lists below are by its numbers.
        costs: The cost of one execution.
        counts: How often a node runs each time (`_execution_count`).
        by_name: The numbers in order of name.
    """

    def __init__(self, wiring: Wiring, costs: list[Cost], counts: list[int]) -> None:
        self.wiring = wiring
        self.costs = costs
        self.counts = counts
        self.by_name: list[int] = []
        self._names: list[str] = []

    def sort_names(self) -> None:
        """Put new numbers in their place by name; quick, since the others are in theirs."""
        start = len(self._names)
        self._names += [node.name for node in self.wiring.nodes[start:]]
        self.by_name += range(start, len(self._names))
        self.by_name.sort(key=self._names.__getitem__)


class Timeline(NamedTuple):
    """What the scheduler's loop leaves behind, by the numbers of nodes and of devices.

    Attributes:
        executed: The nodes in the order of execution.
        start_ns: For each node when its first execution started; -1 if none did.
        end_ns: For each node when its last execution ended; -1 if none did.
        peak_bytes: For each device the peak of temporary memory.
        peak_events: For each device the position in `executed` at which it was; -1 if it was none.
    """

    executed: list[int]
    start_ns: list[int]
    end_ns: list[int]
    peak_bytes: list[int]
    peak_events: list[int]


class Simulation:
    """A timeline: when each node ran, where, and what temporary memory that took.

    Attributes:
        prepared: What ran; the simulation of the graph after an edit uses it again.
        wiring: What ran, as numbers; the lists below are by its numbers.
        costs: The cost of one execution.
        counts: How often a node runs each time (`_execution_count`).
        executed: The numbers in the order of execution; a Merge stands there once for each input.
        starts_ns: When the first execution started; -1 for what did not run.
        ends_ns: When the last execution ended; -1 for what did not run.
    """

    def __init__(self, prepared: Prepared, timeline: Timeline) -> None:
        self.prepared = prepared
        self.wiring = prepared.wiring
        self.costs = prepared.costs
        self.counts = prepared.counts
        self.executed = timeline.executed
        self.starts_ns = timeline.start_ns
        self.ends_ns = timeline.end_ns
        self._peak_bytes = timeline.peak_bytes
        self._peak_events = timeline.peak_events

    @property
    def devices(self) -> tuple[str, ...]:
        """Full names of the devices and channels on which something ran, in order of name."""
        device = self.wiring.device
        used = {device[number] for number in self.executed}
        return tuple(sorted(self.wiring.devices[place] for place in used))

    def ran(self, node: Node) -> bool:
        """Whether a node of the graph ran."""
        number = self._number(node)
        return number >= 0 and self.ends_ns[number] >= 0

    def start_ns(self, node: Node) -> int | None:
        """When a node's first execution started; `None` if it did not run."""
        return self.starts_ns[self._number(node)] if self.ran(node) else None

    def end_ns(self, node: Node) -> int | None:
        """When a node's last execution ended; `None` if it did not run."""
        return self.ends_ns[self._number(node)] if self.ran(node) else None

    def device(self, node: Node) -> str | None:
        """Full name of the device that a node ran on; `None` if it did not run."""
        wiring = self.wiring
        return wiring.devices[wiring.device[self._number(node)]] if self.ran(node) else None

    def temporary_peak_bytes(self, device: str) -> int:
        """The most temporary memory that was in use on a device at a time.

        Persistent tensors (constants, variables) are not in it.
        """
        if device not in self.wiring.devices:
            return 0
        return self._peak_bytes[self.wiring.devices.index(device)]

    def exceeded(self, device: str, memory_bytes: int) -> bool:
        """Whether TensorFlow would say RESOURCE_EXHAUSTED for a device of this size.

        It does as soon as the peak reaches the size (`CheckAvailableMemory`); 0 means no limit.
        """
        return memory_bytes > 0 and self.temporary_peak_bytes(device) >= memory_bytes

    def snapshot(self, device: str) -> tuple[str, ...]:
        """The tensors in temporary memory at a device's peak, as `node:port`, `^node` for control.

        `DeviceState::mem_usage_snapshot_at_peak`: by order of production.
        """
        wiring = self.wiring
        if device not in wiring.devices:
            return ()
        place = wiring.devices.index(device)
        left = list(wiring.port_edges)
        live: dict[int, None] = {}
        for event, number in enumerate(self.executed[: self._peak_events[place] + 1]):
            if wiring.device[number] == place and number not in wiring.persistent:
                ports = range(wiring.first_port[number], wiring.control_port[number] + 1)
                live.update((port, None) for port in ports if wiring.port_edges[port])
            if event < self._peak_events[place]:
                for port in wiring.reads[number]:
                    left[port] -= 1
                    if not left[port]:
                        live.pop(port, None)
        return tuple(self._port_name(port) for port in live)

    def _port_name(self, port: int) -> str:
        wiring = self.wiring
        owner = wiring.port_owner[port]
        if port == wiring.control_port[owner]:
            return f"^{wiring.name(owner)}"
        return f"{wiring.name(owner)}:{port - wiring.first_port[owner]}"

    def _number(self, node: Node) -> int:
        numbers = self.wiring.number
        number = numbers[node.index] if node.index < len(numbers) else -1
        return number if number < len(self.ends_ns) else -1
