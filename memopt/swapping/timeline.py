"""A device's tensors over a simulated step: when each is made, who reads it when, what is in use.

As `GraphMemory` counts it, in whole microseconds, but for two things: a copy on the host is not in
the device's memory, wherever the operation that makes it is said to run, and what is received from
another device counts where an operation hands it on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from memopt.swapping.ops import is_host_copy

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.simulation.simulation import Simulation

_MICROSECOND_NS = 1000


class Read(NamedTuple):
    """One use of a tensor, in nanoseconds of the simulation."""

    start_ns: int
    end_ns: int
    reader: Node
    slot: int


class TensorLife(NamedTuple):
    """A tensor on the device.

    Attributes:
        tensor: The tensor.
        size_bytes: Its bytes.
        made_ns: When the operation that makes it ends.
        reads: Who reads it, by the time at which they start.
    """

    tensor: Tensor
    size_bytes: int
    made_ns: int
    reads: tuple[Read, ...]


class DeviceTimeline:
    """The memory of one device over a simulated step.

    Attributes:
        device: The device's full name.
        nodes: What ran on it, in graph order.
        starts_ns: For each node of the graph, by its index, when it started; -1 if it did not run.
        ends_ns: The same of its end.
        usage: Bytes in use at each point of time at which something starts.
        peak_bytes: The most that is in use; 0 for a device that ran nothing.
    """

    def __init__(self, graph: Graph, simulation: Simulation, device: str) -> None:
        self.device = device
        wiring = simulation.wiring
        place = wiring.devices.index(device) if device in wiring.devices else -1
        self.starts_ns = [-1] * graph.index_limit
        self.ends_ns = [-1] * graph.index_limit
        self.nodes: list[Node] = []
        self._sizes: list[list[int]] = []
        self._here = bytearray(graph.index_limit)
        for node in graph:
            number = wiring.number[node.index]
            if number < 0 or simulation.ends_ns[number] < 0:
                continue
            self.starts_ns[node.index] = simulation.starts_ns[number]
            self.ends_ns[node.index] = simulation.ends_ns[number]
            if wiring.device[number] == place:
                self.nodes.append(node)
                self._here[node.index] = 1
                ports = slice(wiring.first_port[number], wiring.control_port[number])
                self._sizes.append([] if is_host_copy(node) else wiring.port_bytes[ports])
        starts_ns = self.starts_ns
        self._points = sorted({_floor(starts_ns[node.index]) for node in self.nodes})
        self.usage = self._find_usage()
        self.peak_bytes = max(self.usage, default=0)

    def ran_here(self, node: Node) -> bool:
        """Whether a node ran on the device."""
        return self._here[node.index] > 0

    def lives(
        self, smallest_bytes: int = 0, transfer_ns: Callable[[int], int] | None = None
    ) -> list[TensorLife]:
        """The tensors that something reads, in graph order.

        Args:
            smallest_bytes: Only larger ones.
            transfer_ns: Only those that can be copied out and back before their last read: the
                nanoseconds of a transfer by its bytes.
        """
        starts_ns, ends_ns = self.starts_ns, self.ends_ns
        found = []
        for node, sizes in zip(self.nodes, self._sizes, strict=True):
            if not sizes or max(sizes) <= smallest_bytes:
                continue
            made_ns = ends_ns[node.index]
            for tensor in node.outputs:
                size_bytes, uses = sizes[tensor.port], tensor.uses
                if size_bytes <= smallest_bytes:
                    continue
                last_ns = max((starts_ns[reader.index] for reader, _ in uses), default=-1)
                needed_ns = 0 if transfer_ns is None else 2 * transfer_ns(size_bytes)
                if last_ns < made_ns + needed_ns:
                    continue
                reads = [
                    Read(starts_ns[reader.index], ends_ns[reader.index], reader, slot)
                    for reader, slot in uses
                    if ends_ns[reader.index] >= 0
                ]
                reads.sort(key=_by_time)
                found.append(TensorLife(tensor, size_bytes, made_ns, tuple(reads)))
        return found

    def live_at_peak(self, smallest_bytes: int) -> list[Node]:
        """What made the larger tensors that are live at the first of the highest points."""
        if not self._points:
            return []
        peak_ns = self._points[self.usage.index(self.peak_bytes)]
        found = []
        for node, sizes in zip(self.nodes, self._sizes, strict=True):
            if _floor(self.starts_ns[node.index]) > peak_ns:
                continue
            lasts_ns = self._last_reads_ns(node, len(sizes))
            lives = zip(sizes, lasts_ns, strict=True)
            if any(size > smallest_bytes and last >= peak_ns for size, last in lives):
                found.append(node)
        return found

    def point_from(self, time_ns: int) -> int:
        """The first point that is not before a time's microsecond."""
        return bisect_left(self._points, _floor(time_ns))

    def point_after(self, time_ns: int) -> int:
        """The first point that is after a time's microsecond."""
        return bisect_right(self._points, _floor(time_ns))

    def _find_usage(self) -> list[int]:
        changes = [0] * (len(self._points) + 1)
        for node, sizes in zip(self.nodes, self._sizes, strict=True):
            if not any(sizes):
                continue
            changes[self.point_from(self.starts_ns[node.index])] += sum(sizes)
            for size_bytes, last_ns in zip(
                sizes, self._last_reads_ns(node, len(sizes)), strict=True
            ):
                changes[self.point_after(last_ns)] -= size_bytes
        return list(accumulate(changes[:-1]))

    def _last_reads_ns(self, node: Node, ports: int) -> list[int]:
        """For each output of a node that ran, when the last that reads it has ended."""
        ends_ns = self.ends_ns
        lasts_ns = [ends_ns[node.index]] * ports
        for tensor in node.outputs if ports else ():
            for reader, _ in tensor.uses:
                end_ns = ends_ns[reader.index]
                lasts_ns[tensor.port] = max(lasts_ns[tensor.port], end_ns)
        return lasts_ns


def _by_time(read: Read) -> tuple[int, int, int, int]:
    return read.start_ns, read.end_ns, read.reader.index, read.slot


def _floor(time_ns: int) -> int:
    return time_ns // _MICROSECOND_NS * _MICROSECOND_NS
