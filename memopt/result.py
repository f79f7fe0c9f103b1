"""What an optimization returns: the rewritten graph, and what was done, left alone and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.display import (
    PEAKS,
    Displayed,
    Overview,
    Paged,
    Table,
    budget_text,
    change_text,
    count_text,
    peak_row,
    short_name,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.buffers.buffer_graph import MemoryTimeline, UnknownKernels
    from memopt.graph.rewriter import Declined, Edit
    from memopt.options import Level
    from memopt.shapes.properties import Properties
    from memopt.simulation.simulated_memory import SimulatedMemory


_REASONS_SHOWN = 3


@dataclass(frozen=True, repr=False)
class PassReport(Displayed):
    """What one pass did to one graph.

    Attributes:
        name: The pass with its options.
        function: The function whose body it was, or "" for the main graph.
        edits: What was changed, in order.
        declined: What was considered and left alone, in order.
        seconds: Time taken, verification included.
        failure: Why the pass was undone, or "" if it stands.
        iteration: The iteration that it was part of; 0 for a pass that is not repeated.
        peak_before_bytes: Each device's simulated peak before; empty without devices, and for a
            pass that does not change it.
    """

    name: str
    function: str
    edits: tuple[Edit, ...]
    declined: tuple[Declined, ...]
    seconds: float
    failure: str = ""
    iteration: int = 0
    peak_before_bytes: Mapping[str, int] = field(default_factory=dict)

    def _overview(self) -> Overview:
        where = f"function {self.function}" if self.function else "main graph"
        done = f"UNDONE, {self.failure}" if self.failure else count_text(len(self.edits), "edit")
        outcome = f"{self.name}, {where}: {done}, {len(self.declined):,} declined, "
        edits = Table.of(("edit", "added", "removed", "changed"), self.edits, _edit_row)
        return Overview(
            "PassReport", f"{outcome}{self.seconds:.3f} s", (edits,), _declined((self,))
        )


@dataclass(frozen=True, repr=False)
class GraphReport(Displayed):
    """What an optimization did to one graph.

    Attributes:
        function: The function whose body it was, or "" for the main graph.
        passes: What each pass did, in order.
        iterations: How often the repeated passes ran.
        stopped: Why they did not run again; nothing if the level repeats none.
        simulations: How many simulations it took.
        simulated: The simulated step of what came out, if there are devices.
    """

    function: str
    passes: tuple[PassReport, ...]
    iterations: int
    stopped: str
    simulations: int
    simulated: SimulatedMemory | None = field(default=None, repr=False, compare=False)

    @property
    def peak_before_bytes(self) -> Mapping[str, int]:
        """Each device's simulated peak before; empty if no pass asked for it."""
        return next((done.peak_before_bytes for done in self.passes if done.peak_before_bytes), {})

    @property
    def peak_after_bytes(self) -> Mapping[str, int]:
        """Each device's simulated peak after, simulated when first asked for."""
        if self.simulated is None or not self.peak_before_bytes:
            return {}
        return self.simulated.peak_bytes()

    def _overview(self) -> Overview:
        edits = sum(len(done.edits) for done in self.passes)
        outcome = f"{self.function or 'main graph'}, {count_text(edits, 'edit')}"
        if self.stopped:
            outcome += f", {count_text(self.iterations, 'iteration')}, ended: {self.stopped}"
        tables = (Table(PEAKS, _simulated_rows(self)), _passes_table(self.passes))
        return Overview("GraphReport", outcome, tables, _remarks(self.passes))


class DeviceMemory(NamedTuple):
    """The memory of one of several devices in a step, predicted.

    Attributes:
        name: The device, such as "GPU:0".
        held_bytes: What it holds before the step.
        peak_before_bytes: Its peak in the original graph.
        peak_after_bytes: Its peak in the rewritten graph.
        budget_bytes: What may be in use there at any moment; 0 for no limit.
    """

    name: str
    held_bytes: int
    peak_before_bytes: int
    peak_after_bytes: int
    budget_bytes: int = 0

    @property
    def keeps_budget(self) -> bool:
        """Whether no more is in use than may be."""
        return not self.budget_bytes or self.peak_after_bytes <= self.budget_bytes


@dataclass(frozen=True, repr=False)
class RuntimeMemory(Displayed):
    """The memory of a step in TensorFlow's allocator, predicted for one thread of operations.

    Attributes:
        before: The original graph, as TensorFlow would run it.
        after: The rewritten graph, in the order that it is held to.
        budget_bytes: What may be in use at any moment; 0 for no limit.
        devices: Where the step runs on several devices, the memory of each; the budgets that count
            are theirs then, and the other figures are of all of them together.
    """

    before: MemoryTimeline = field(repr=False)
    after: MemoryTimeline = field(repr=False)
    budget_bytes: int = 0
    devices: tuple[DeviceMemory, ...] = ()

    @property
    def keeps_budget(self) -> bool:
        """Whether no more is in use than may be."""
        if self.devices:
            return all(device.keeps_budget for device in self.devices)
        return not self.budget_bytes or self.after.peak_bytes <= self.budget_bytes

    @property
    def kept_budget(self) -> bool:
        """Whether the original graph keeps it as well."""
        if self.devices:
            return all(
                not device.budget_bytes or device.peak_before_bytes <= device.budget_bytes
                for device in self.devices
            )
        return not self.budget_bytes or self.before.peak_bytes <= self.budget_bytes

    @property
    def budgeted(self) -> DeviceMemory:
        """What the budget is about: the memory of the one device that has one, or of all."""
        limited = [device for device in self.devices if device.budget_bytes]
        if len(limited) == 1:
            return limited[0]
        before, after = self.before, self.after
        return DeviceMemory(
            "", before.held_bytes, before.peak_bytes, after.peak_bytes, self.budget_bytes
        )

    def to_json(self) -> dict[str, Any]:
        """The peaks, and what is held before the step."""
        devices = [device._asdict() for device in self.devices]
        return {
            **({"devices": devices} if devices else {}),
            "budget_bytes": self.budget_bytes,
            "held_bytes": self.after.held_bytes,
            "peak_before_bytes": self.before.peak_bytes,
            "peak_after_bytes": self.after.peak_bytes,
        }

    def _overview(self) -> Overview:
        return Overview("RuntimeMemory", _runtime_text(self), (Table(PEAKS, _runtime_rows(self)),))


@dataclass(frozen=True, repr=False)
class OptimizationReport(Paged):
    """What an optimization did.

    Attributes:
        level: The level that was asked for.
        graphs: What was done to the main graph, which comes first, and to each function's body.
        nodes_before: Nodes of the main graph before.
        nodes_after: Nodes of the main graph after.
        properties: Sizes of the original graph's tensors, inferred when first asked for.
        runtime: The real memory as predicted, at a level that orders operations.
    """

    level: Level
    graphs: tuple[GraphReport, ...]
    nodes_before: int
    nodes_after: int
    properties: Properties = field(repr=False, compare=False)
    runtime: RuntimeMemory | None = field(default=None, compare=False)

    @property
    def passes(self) -> tuple[PassReport, ...]:
        """What each pass did to each graph, in order."""
        return tuple(report for graph in self.graphs for report in graph.passes)

    def named(self, name: str) -> tuple[PassReport, ...]:
        """What the pass of a name, without options, did to each graph, in order."""
        return tuple(report for report in self.passes if report.name.partition("{")[0] == name)

    @property
    def iterations(self) -> int:
        """How often the repeated passes ran over the main graph."""
        return self.graphs[0].iterations

    @property
    def stopped(self) -> str:
        """Why they did not run again."""
        return self.graphs[0].stopped

    @property
    def peak_before_bytes(self) -> Mapping[str, int]:
        """Each device's simulated peak before, main graph; empty without devices."""
        return self.graphs[0].peak_before_bytes

    @property
    def peak_after_bytes(self) -> Mapping[str, int]:
        """Each device's simulated peak after, main graph, simulated when first asked for."""
        return self.graphs[0].peak_after_bytes

    @property
    def modified(self) -> bool:
        """Whether anything was changed."""
        return any(report.edits for report in self.passes)

    def effect_bytes(self, edit: Edit, function: str = "") -> int | None:
        """Bytes to be kept more (or, negative, less) because of an edit.

        What the edit makes the step hold less what it releases; `None` if a size is not known.

        Args:
            edit: The edit.
            function: The function whose body was edited, or "" for the main graph.
        """
        properties = self.properties.function(function)
        held = [properties.size_bytes(name) for name in edit.holds]
        released = [properties.size_bytes(name) for name in edit.releases]
        total = 0
        for sign, sizes in ((1, held), (-1, released)):
            for size in sizes:
                if size is None:
                    return None
                total += sign * size
        return total

    @property
    def unknown_kernels(self) -> tuple[UnknownKernels, ...]:
        """The kernels whose memory is predicted by their outputs alone; see `profile_kernels`."""
        return () if self.runtime is None else self.runtime.before.buffer_graph.unknown

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, with the expected effect of each edit in bytes.

        `sizes_failure` says why no size is known at all, where TensorFlow refuses the graph.
        """
        return {
            "level": self.level.value,
            "nodes_before": self.nodes_before,
            "nodes_after": self.nodes_after,
            "unknown_sizes": list(self.properties.unknown_sizes()),
            "sizes_failure": self.properties.failure,
            "iterations": self.iterations,
            "stopped": self.stopped,
            "peak_before_bytes": dict(self.peak_before_bytes),
            "peak_after_bytes": dict(self.peak_after_bytes),
            "unknown_kernels": [each._asdict() for each in self.unknown_kernels],
            "runtime": None if self.runtime is None else self.runtime.to_json(),
            "passes": [self._pass_to_json(report) for report in self.passes],
        }

    def _overview(self) -> Overview:
        return _report_overview(self)

    def _pass_to_json(self, report: PassReport) -> dict[str, Any]:
        return {
            "name": report.name,
            "function": report.function,
            "seconds": report.seconds,
            "failure": report.failure,
            "iteration": report.iteration,
            "peak_before_bytes": dict(report.peak_before_bytes),
            "edits": [
                {
                    "reason": edit.reason,
                    "effect_bytes": self.effect_bytes(edit, report.function),
                    "added": list(edit.added),
                    "removed": list(edit.removed),
                    "changed": list(edit.changed),
                    "releases": list(edit.releases),
                    "holds": list(edit.holds),
                    "decisions": [
                        {"node": one.node, "reason": one.reason} for one in edit.decisions
                    ],
                    "planned_bytes": edit.planned.step_bytes,
                    "planned_overhead": edit.planned.overhead,
                }
                for edit in report.edits
            ],
            "declined": [
                {"node": declined.node, "reason": declined.reason} for declined in report.declined
            ],
        }


@dataclass(frozen=True, repr=False)
class OptimizationResult(Paged):
    """A rewritten graph and the report of what was done.

    Attributes:
        graph_def: The rewritten graph: a new message.
        report: What was done, left alone and why.
    """

    graph_def: GraphDef
    report: OptimizationReport

    def _overview(self) -> Overview:
        return replace(_report_overview(self.report), kind="OptimizationResult")


def _report_overview(report: OptimizationReport) -> Overview:
    edits = sum(len(done.edits) for done in report.passes)
    outcome = f"level {report.level}, {count_text(edits, 'edit')}"
    if report.runtime is not None:
        outcome += f", {_runtime_text(report.runtime)}"
    failures = sum(bool(done.failure) for done in report.passes)
    if failures:
        outcome += f", {count_text(failures, 'pass', 'passes')} UNDONE"
    runtime = () if report.runtime is None else _runtime_rows(report.runtime)
    simulated = _simulated_rows(report.graphs[0]) if report.graphs else ()
    nodes = f"nodes: {report.nodes_before:,} before, {report.nodes_after:,} after"
    bodies = len(report.graphs) - 1
    if bodies > 0:
        nodes += f"; and {count_text(bodies, 'function')}"
    return Overview(
        "OptimizationReport",
        outcome,
        (Table(PEAKS, (*runtime, *simulated)), _passes_table(report.passes)),
        (nodes, *_remarks(report.passes)),
    )


def _runtime_text(runtime: RuntimeMemory) -> str:
    text = f"predicted peak {change_text(runtime.before.peak_bytes, runtime.after.peak_bytes)}"
    limited = [device for device in runtime.devices if device.budget_bytes]
    if limited:
        budgets = (
            f"{device.name} {budget_text(device.peak_after_bytes, device.budget_bytes)}"
            for device in limited
        )
        return f"{text}, {'; '.join(budgets)}"
    if not runtime.budget_bytes:
        return text
    return f"{text}, {budget_text(runtime.after.peak_bytes, runtime.budget_bytes)}"


def _runtime_rows(runtime: RuntimeMemory) -> tuple[tuple[str, ...], ...]:
    before, after = runtime.before, runtime.after
    return (
        peak_row("predicted peak", before.peak_bytes, after.peak_bytes),
        peak_row("held before the step", before.held_bytes, after.held_bytes),
        peak_row("peak of the step's own", before.step_peak_bytes, after.step_peak_bytes),
        *(
            peak_row(
                f"predicted peak of {device.name}",
                device.peak_before_bytes,
                device.peak_after_bytes,
            )
            for device in runtime.devices
        ),
    )


def _simulated_rows(graph: GraphReport) -> tuple[tuple[str, ...], ...]:
    after = graph.peak_after_bytes
    return tuple(
        peak_row(f"simulated peak of {short_name(device)}", size_bytes, after[device])
        for device, size_bytes in graph.peak_before_bytes.items()
        if device in after
    )


def _passes_table(passes: Sequence[PassReport]) -> Table:
    """A row for each pass: what it did to all graphs, in all iterations."""
    by_name: dict[str, list[PassReport]] = {}
    for done in passes:
        by_name.setdefault(done.name, []).append(done)
    return Table.of(("pass", "edits", "declined", "seconds"), list(by_name.items()), _pass_row)


def _pass_row(named: tuple[str, list[PassReport]]) -> tuple[str, ...]:
    name, runs = named
    edits = sum(len(done.edits) for done in runs)
    declined = sum(len(done.declined) for done in runs)
    return name, f"{edits:,}", f"{declined:,}", f"{sum(done.seconds for done in runs):.3f}"


def _edit_row(edit: Edit) -> tuple[str, ...]:
    counts = (f"{len(names):,}" for names in (edit.added, edit.removed, edit.changed))
    return (edit.reason, *counts)


def _remarks(passes: Sequence[PassReport]) -> tuple[str, ...]:
    failures = (f"UNDONE: {done.name}: {done.failure}" for done in passes if done.failure)
    return (*failures, *_declined(passes))


def _declined(passes: Sequence[PassReport]) -> tuple[str, ...]:
    """The most frequent reasons for which candidates were left alone."""
    reasons = Counter(declined.reason for done in passes for declined in done.declined)
    return tuple(
        f"declined, {count:,} x: {reason}" for reason, count in reasons.most_common(_REASONS_SHOWN)
    )
