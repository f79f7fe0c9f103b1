"""A memory analysis as a page: the simulated step on each device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.display import bytes_text, count_text, short_name, time_text
from memopt.report.page.grouping import HELD, Layers, find_backward, kind_of_name
from memopt.report.page.model import Chart, Fact, Line, Operation, Page, Tensor, Track, shown
from memopt.report.page.predicted import GIVES
from memopt.simulation.graph_memory import GraphMemory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memopt.analysis import MemoryAnalysis
    from memopt.simulation.graph_memory import DeviceMemory, LiveTensor
    from memopt.simulation.simulation import Simulation

_NS_PER_MS = 1_000_000
_READERS_SHOWN = 12
_NAMES_SHOWN = 3


def page_of_analysis(analysis: MemoryAnalysis) -> Page:
    """The page of a memory analysis: a chart for each device on which something ran."""
    memory = analysis.memory or GraphMemory(analysis.simulation)
    limits = {device.name: device.memory_bytes for device in analysis.devices}
    summary = analysis.summary
    return Page(
        "Memory analysis",
        f"simulated step of {time_text(summary.critical_path_ns)}, which ends on "
        f"{short_name(summary.critical_device)}",
        tuple(_facts(analysis)),
        tuple(charts_of(memory, limits, {})),
        notes=tuple(_notes(analysis)),
    )


def _facts(analysis: MemoryAnalysis) -> Iterator[Fact]:
    for device in analysis.devices:
        limit = device.memory_bytes
        is_over = bool(limit) and device.peak_bytes > limit
        hint = f"of {bytes_text(limit)}" if limit else ""
        label = f"peak of {short_name(device.name)}"
        yield Fact(label, bytes_text(device.peak_bytes), hint, "bad" if is_over else "")
    summary = analysis.summary
    yield Fact("simulated step", time_text(summary.critical_path_ns))
    ran = sum(device.executions for device in summary.devices)
    yield Fact("executions", f"{ran:,}")


def _notes(analysis: MemoryAnalysis) -> Iterator[str]:
    yield "Times and sizes are simulated; every output counts as a tensor of its own."
    unknown = analysis.unknown_sizes
    if unknown:
        such = ", ".join(shown(name) for name in unknown[:_NAMES_SHOWN])
        count = count_text(len(unknown), "tensor")
        yield f"{count} of unknown size count as little as they can be, such as {such}."


def charts_of(
    memory: GraphMemory, limits: Mapping[str, int], peaks_before: Mapping[str, int]
) -> Iterator[Chart]:
    """A chart for each device that holds something.

    Args:
        memory: The memory of the step.
        limits: By full name of each device its memory; 0 for no limit.
        peaks_before: Likewise its peak before a rewriting, if there was one.
    """
    step = _SimulatedStep(memory.simulation)
    for device, memory_bytes in limits.items():
        lives = memory.lives(device)
        if not lives:
            continue
        name = short_name(device)
        given = (("memory of the device", memory_bytes), ("before", peaks_before.get(device, 0)))
        lines = tuple(Line(title, size_bytes) for title, size_bytes in given if size_bytes)
        track = step.track(name, memory.peak(device), lives)
        yield Chart(name, "simulated time", "ms", (track,), (), lines)


class _SimulatedStep:
    """What all devices have in common: what runs, when, and who reads what."""

    def __init__(self, simulation: Simulation) -> None:
        wiring = simulation.wiring
        self._simulation = simulation
        executed = list(dict.fromkeys(simulation.executed))
        self._numbers = {wiring.name(number): at for at, number in enumerate(executed)}
        self._readers: dict[int, list[int]] = {}
        for at, number in enumerate(executed):
            for port in wiring.data_ports[number]:
                self._readers.setdefault(port, []).append(at)
        names = [node.name for node in wiring.nodes]
        producers = [[wiring.port_owner[port] for port in ports] for ports in wiring.data_ports]
        backward = find_backward(names, producers, executed)
        self._kinds = [
            kind_of_name(name, is_backward=is_backward)
            for name, is_backward in zip(names, backward, strict=True)
        ]
        self._executed = executed
        self.operations = tuple(self._operation(number) for number in executed)

    def _operation(self, number: int) -> Operation:
        simulation, wiring = self._simulation, self._simulation.wiring
        node = wiring.nodes[number]
        return Operation(
            shown(node.name),
            node.op,
            short_name(wiring.devices[wiring.device[number]]),
            self._kinds[number],
            simulation.starts_ns[number] / _NS_PER_MS,
            simulation.ends_ns[number] / _NS_PER_MS,
        )

    def track(self, title: str, peak: DeviceMemory, lives: Sequence[LiveTensor]) -> Track:
        layers = Layers((live.node, live.size_bytes) for live in lives)
        times = sorted({time for live in lives for time in (live.allocated_ns, live.freed_ns)})
        moment = {time: at for at, time in enumerate(times)}
        return Track(
            title,
            len(times),
            self.operations,
            tuple(self._tensor(live, moment, layers) for live in lives if live.size_bytes),
            max(peak.used_bytes, 0),
            moment.get(peak.at_ns, 0),
            tuple(time / _NS_PER_MS for time in times),
        )

    def _is_given(self, number: int) -> bool:
        wiring = self._simulation.wiring
        return number in wiring.persistent or wiring.nodes[number].op in GIVES

    def _tensor(self, live: LiveTensor, moment: dict[int, int], layers: Layers) -> Tensor:
        wiring = self._simulation.wiring
        at = self._numbers[live.node]
        number = self._executed[at]
        readers = self._readers.get(wiring.first_port[number] + live.port, [])
        return Tensor(
            shown(live.tensor),
            at,
            live.size_bytes,
            moment[live.allocated_ns],
            moment[live.freed_ns],
            HELD if self._is_given(number) else self._kinds[number],
            layers.of(live.node),
            tuple(readers[:_READERS_SHOWN]),
            len(readers),
        )
