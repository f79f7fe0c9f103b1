"""What an optimization returns: the rewritten graph, and what was done, left alone and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.graph.rewriter import Declined, Edit
    from memopt.options import Level
    from memopt.shapes.properties import Properties
    from memopt.simulation.simulated_memory import SimulatedMemory


@dataclass(frozen=True)
class PassReport:
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


@dataclass(frozen=True)
class GraphReport:
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


@dataclass(frozen=True)
class RuntimeMemory:
    """The memory of a step in TensorFlow's allocator, predicted for one thread of operations.

    Attributes:
        before: The original graph, as TensorFlow would run it.
        after: The rewritten graph, in the order that it is held to.
        budget_bytes: What may be in use at any moment; 0 for no limit.
    """

    before: MemoryTimeline = field(repr=False)
    after: MemoryTimeline = field(repr=False)
    budget_bytes: int = 0

    @property
    def keeps_budget(self) -> bool:
        """Whether no more is in use than may be."""
        return not self.budget_bytes or self.after.peak_bytes <= self.budget_bytes

    def to_json(self) -> dict[str, int]:
        """The peaks, and what is held before the step."""
        return {
            "budget_bytes": self.budget_bytes,
            "held_bytes": self.after.held_bytes,
            "peak_before_bytes": self.before.peak_bytes,
            "peak_after_bytes": self.after.peak_bytes,
        }


@dataclass(frozen=True)
class OptimizationReport:
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
            "runtime": None if self.runtime is None else self.runtime.to_json(),
            "passes": [self._pass_to_json(report) for report in self.passes],
        }

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
                }
                for edit in report.edits
            ],
            "declined": [
                {"node": declined.node, "reason": declined.reason} for declined in report.declined
            ],
        }


@dataclass(frozen=True)
class OptimizationResult:
    """A rewritten graph and the report of what was done.

    Attributes:
        graph_def: The rewritten graph: a new message.
        report: What was done, left alone and why.
    """

    graph_def: GraphDef
    report: OptimizationReport
