"""Budgets of single devices: what each may have in use while they run side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from memopt.rematerialization.rewriting.part_budget import PartBudget
from memopt.sequencing.devices import Devices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.rematerialization.network import Network


@dataclass(frozen=True)
class DeviceBudget(PartBudget):
    """What a device may have in use at any moment, everything included.

    Attributes:
        device: Its name, such as "GPU:0".
        limit_bytes: What it may have in use.
    """

    device: str
    limit_bytes: int

    def __str__(self) -> str:
        return self.device

    def buffers(self, buffer_graph: BufferGraph) -> BufferGraph:
        """The same buffers, of which those that the device does not hold take nothing."""
        devices = Devices.of(buffer_graph.nodes)
        if devices is None or self.device not in devices.names:
            return buffer_graph
        return devices.memory_of(devices.names.index(self.device), buffer_graph)

    def narrow(self, network: Network, kept: Sequence[PartBudget]) -> Network:
        """The device's buffers; computed again is what it makes, or has copies of.

        What other devices have in use does not count here, so their operations could go anywhere:
        those of devices that keep their budgets stay in the order in which they do.
        """
        devices = Devices.of(network.buffer_graph.nodes)
        if devices is None or self.device not in devices.names:
            return super().narrow(network, kept)
        own = devices.names.index(self.device)
        graph = devices.memory_of(own, network.buffer_graph)
        recomputable = [
            may_run and (device == own or any(graph.size_bytes[buffer] for buffer in made))
            for may_run, device, made in zip(
                network.recomputable, devices.of_node, graph.made, strict=True
            )
        ]
        kept_devices = {part.device for part in kept if isinstance(part, DeviceBudget)}
        followers = [list(after) for after in network.followers]
        for number, name in enumerate(devices.names):
            if name in kept_devices - {self.device}:
                working = _working(network, [device == number for device in devices.of_node])
                # What follows another node follows its copies as well.
                for before, after in pairwise(n for n in working if not recomputable[n]):
                    followers[before].append(after)
        return replace(
            network,
            buffer_graph=graph,
            recomputable=recomputable,
            followers=[list(dict.fromkeys(after)) for after in followers],
        )


def _working(network: Network, is_there: Sequence[bool]) -> list[int]:
    """The operations of a device that take memory there, in their order."""
    graph = network.buffer_graph
    return [
        node
        for node in network.sequence
        if is_there[node] and (graph.made[node] or graph.scratch_bytes[node])
    ]


def device_budgets(limits_bytes: Mapping[str, int]) -> tuple[DeviceBudget, ...]:
    """The budgets of devices, by name."""
    return tuple(DeviceBudget(name, limit) for name, limit in sorted(limits_bytes.items()))
