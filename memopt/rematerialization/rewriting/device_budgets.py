"""Budgets of single devices: what each may have in use while they run side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memopt.rematerialization.rewriting.part_budget import PartBudget
from memopt.sequencing.devices import Devices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.buffers.buffer_graph import BufferGraph


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


def device_budgets(limits_bytes: Mapping[str, int]) -> tuple[DeviceBudget, ...]:
    """The budgets of devices, by name."""
    return tuple(DeviceBudget(name, limit) for name, limit in sorted(limits_bytes.items()))
