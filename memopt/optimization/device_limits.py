"""What a budget means for each of several devices that a step runs on."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.buffer_graph import simulate
from memopt.errors import OptionsError
from memopt.options import UNLIMITED_BYTES, Budget
from memopt.result import DeviceMemory
from memopt.sequencing.devices import Devices, working_devices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.graph.graph import Node

_SMALLEST_PART = 20
"""Of what the device that needs most adds in a step: what adds less gets no share as its budget,
such as the host beside a GPU."""


class MemoryLimits(NamedTuple):
    """What may be in use at any moment of a step.

    Attributes:
        budget_bytes: On all devices together; 0 where nothing was asked for.
        devices_bytes: Where the step runs on several devices, on each that has a limit, by name.
    """

    budget_bytes: int = 0
    devices_bytes: Mapping[str, int] = MappingProxyType({})

    @property
    def total_bytes(self) -> int:
        """What all devices together may use; 0 if there is no limit."""
        return 0 if self.budget_bytes == UNLIMITED_BYTES else self.budget_bytes

    def missing_bytes(self, peak_bytes: int) -> int:
        """How much more a step needs than all devices together may have; 0 without a limit."""
        return max(0, peak_bytes - self.total_bytes) if self.total_bytes else 0

    def spare_bytes(self, peak_bytes: int) -> int:
        """How much less a step needs than all devices together may have; 0 without a limit."""
        return max(0, self.total_bytes - peak_bytes)


def find_limits(budget: Budget, before: MemoryTimeline) -> MemoryLimits:
    """What a budget means for a step.

    Where it runs on several devices, one figure is the budget of each, and a share that of what the
    step adds on each. Where it adds no more than that share of what it adds where it adds most, it
    need not add less, and may add as much.

    Args:
        budget: What was asked for.
        before: The step when it runs unchanged.

    Raises:
        OptionsError: The budget names devices, and the graph does not say where it runs.
    """
    devices = Devices.of(before.buffer_graph.nodes)
    if devices is None:
        if budget.devices:
            budget = _of_only_device(budget, before.buffer_graph.nodes)
        return MemoryLimits(budget.limit_bytes(before.held_bytes, before.step_peak_bytes))
    limits = _limits_of_devices(budget, _device_peaks(devices, before))
    is_whole = len(limits) == len(devices.names)
    return MemoryLimits(sum(limits.values()) if is_whole else UNLIMITED_BYTES, limits)


class _DevicePeak(NamedTuple):
    """What a device holds before a step, and the most that the step adds there."""

    name: str
    held_bytes: int
    step_peak_bytes: int

    @property
    def peak_bytes(self) -> int:
        return self.held_bytes + self.step_peak_bytes


def _device_peaks(devices: Devices, timeline: MemoryTimeline) -> list[_DevicePeak]:
    found = []
    for number, name in enumerate(devices.names):
        own = simulate(devices.memory_of(number, timeline.buffer_graph), timeline.sequence)
        found.append(_DevicePeak(name, own.held_bytes, own.step_peak_bytes))
    return found


def _limits_of_devices(budget: Budget, peaks: Sequence[_DevicePeak]) -> dict[str, int]:
    most_bytes = max(peak.step_peak_bytes for peak in peaks)
    named = dict(budget.devices)
    limits = {}
    for peak in peaks:
        if named:
            own = named.get(peak.name, named.get(peak.name.rpartition("device:")[2]))
            if own is not None:
                limits[peak.name] = own.limit_bytes(peak.held_bytes, peak.step_peak_bytes)
        elif not budget.percent or peak.step_peak_bytes * _SMALLEST_PART >= most_bytes:
            own_bytes = budget.limit_bytes(peak.held_bytes, peak.step_peak_bytes)
            largest_bytes = budget.limit_bytes(peak.held_bytes, most_bytes)
            limits[peak.name] = own_bytes if peak.peak_bytes > largest_bytes else largest_bytes
    return limits


def _of_only_device(budget: Budget, nodes: Sequence[Node]) -> Budget:
    name, *others = working_devices(nodes) or [""]
    if others or not name:
        raise OptionsError(
            f"the budget {budget} is one of devices, but not all operations are placed on one"
        )
    return dict(budget.devices).get(name, Budget(UNLIMITED_BYTES))


def device_memory(
    before: MemoryTimeline, after: MemoryTimeline, limits_bytes: Mapping[str, int]
) -> tuple[DeviceMemory, ...]:
    """The memory of each device before and after; nothing for a single device."""
    devices = Devices.of(before.buffer_graph.nodes)
    devices_after = Devices.of(after.buffer_graph.nodes)
    if devices is None or devices_after is None:
        return ()
    later = {peak.name: peak for peak in _device_peaks(devices_after, after)}
    return tuple(
        DeviceMemory(
            peak.name,
            peak.held_bytes,
            peak.peak_bytes,
            later[peak.name].peak_bytes,
            limits_bytes.get(peak.name, 0),
        )
        for peak in _device_peaks(devices, before)
        if peak.name in later
    )
