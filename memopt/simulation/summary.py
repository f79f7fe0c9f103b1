"""Summary: the costs of a simulated step by operation and by device.

What `SchedulerState::Summary` logs (tensorflow/core/grappler/costs/virtual_scheduler.cc), as
values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.display import Overview, Table, bytes_text, count_text, short_name, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memopt.simulation.simulation import Simulation


class OperationCosts(NamedTuple):
    """All executions of one op.

    Attributes:
        op: Its type.
        executions: How often it ran.
        execution_ns: Time of all executions.
        compute_ns: The part of arithmetic.
        memory_ns: The part of moving inputs and outputs.
        inaccurate: How many of the executions have a guessed time.
    """

    op: str
    executions: int
    execution_ns: int
    compute_ns: int
    memory_ns: int
    inaccurate: int


class DeviceCosts(NamedTuple):
    """What ran on one device or channel.

    Attributes:
        name: Full name of the device.
        executions: How many nodes ran.
        end_ns: When the last of them ended.
        busy_ns: Time in which something ran.
        persistent_bytes: Outputs of variables and constants.
        temporary_peak_bytes: The most of everything else at a time.
        operations: Costs by op, the longest first.
    """

    name: str
    executions: int
    end_ns: int
    busy_ns: int
    persistent_bytes: int
    temporary_peak_bytes: int
    operations: tuple[OperationCosts, ...]

    @property
    def utilisation(self) -> float:
        """The share of the time until `end_ns` in which something ran, from 0 to 1."""
        return self.busy_ns / self.end_ns if self.end_ns else 0.0

    @property
    def inaccurate(self) -> int:
        """How many executions have a guessed time."""
        return sum(operation.inaccurate for operation in self.operations)

    def __repr__(self) -> str:
        return _device_overview(self).text()

    def _repr_html_(self) -> str:
        return _device_overview(self).html()


class Summary(NamedTuple):
    """A simulated step.

    Attributes:
        devices: Costs by device and channel, in order of name.
        operations: Costs by op over all devices, the longest first.
        critical_path_ns: When the last device ended.
        critical_device: That device.
    """

    devices: tuple[DeviceCosts, ...]
    operations: tuple[OperationCosts, ...]
    critical_path_ns: int
    critical_device: str

    def __repr__(self) -> str:
        return _overview(self).text()

    def _repr_html_(self) -> str:
        return _overview(self).html()


def summarize(simulation: Simulation) -> Summary:
    """The costs of a simulated step."""
    wiring = simulation.wiring
    by_device: dict[str, list[int]] = {name: [] for name in simulation.devices}
    for number in simulation.executed:
        by_device[wiring.devices[wiring.device[number]]].append(number)
    devices = tuple(_device_costs(simulation, name, numbers) for name, numbers in by_device.items())
    # The last of equal ones, as TensorFlow has it.
    critical = max(reversed(devices), key=lambda device: device.end_ns, default=None)
    return Summary(
        devices,
        _operation_costs(simulation, simulation.executed),
        critical.end_ns if critical else 0,
        critical.name if critical else "",
    )


def _device_costs(simulation: Simulation, name: str, numbers: list[int]) -> DeviceCosts:
    wiring = simulation.wiring
    persistent = wiring.persistent.intersection(numbers)
    operations = _operation_costs(simulation, numbers)
    return DeviceCosts(
        name,
        len(numbers),
        max((simulation.ends_ns[number] for number in numbers), default=0),
        sum(operation.execution_ns for operation in operations),
        sum(wiring.port_bytes[port] for number in persistent for port in wiring.ports(number)),
        simulation.temporary_peak_bytes(name),
        operations,
    )


def _operation_costs(simulation: Simulation, numbers: Iterable[int]) -> tuple[OperationCosts, ...]:
    totals: dict[str, list[int]] = {}
    for number in numbers:
        cost, count = simulation.costs[number], simulation.counts[number]
        total = totals.setdefault(simulation.wiring.nodes[number].op, [0] * 5)
        total[0] += 1
        total[1] += cost.execution_ns * count
        total[2] += cost.compute_ns * count
        total[3] += cost.memory_ns * count
        total[4] += cost.inaccurate
    found = [OperationCosts(op, *total) for op, total in totals.items()]
    found.sort(key=lambda costs: (-costs.execution_ns, costs.op))
    return tuple(found)


def _overview(summary: Summary) -> Overview:
    outcome = (
        f"{time_text(summary.critical_path_ns)} until {short_name(summary.critical_device)} ends"
    )
    return Overview("Summary", outcome, (_operations_table(summary.operations),))


def _device_overview(device: DeviceCosts) -> Overview:
    outcome = (
        f"{short_name(device.name)}, {count_text(device.executions, 'execution')}, "
        f"{time_text(device.end_ns)}, {device.utilisation:.0%} busy, "
        f"{bytes_text(device.persistent_bytes)} persistent, "
        f"{bytes_text(device.temporary_peak_bytes)} temporary at the peak"
    )
    return Overview("DeviceCosts", outcome, (_operations_table(device.operations),))


def _operations_table(operations: tuple[OperationCosts, ...]) -> Table:
    return Table.of(
        ("op", "executions", "time"),
        operations,
        lambda costs: (costs.op, f"{costs.executions:,}", time_text(costs.execution_ns)),
    )
