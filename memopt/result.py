"""What an optimization returns: the rewritten graph, and what was done, left alone and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.costs.properties import Properties
    from memopt.graph.rewriter import Declined, Edit
    from memopt.options import Level


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
    """

    name: str
    function: str
    edits: tuple[Edit, ...]
    declined: tuple[Declined, ...]
    seconds: float
    failure: str = ""


@dataclass(frozen=True)
class OptimizationReport:
    """What an optimization did.

    Attributes:
        level: The level that was asked for.
        passes: What each pass did to each graph, in order.
        nodes_before: Nodes of the main graph before.
        nodes_after: Nodes of the main graph after.
        properties: Sizes of the original graph's tensors, inferred when first asked for.
    """

    level: Level
    passes: tuple[PassReport, ...]
    nodes_before: int
    nodes_after: int
    properties: Properties = field(repr=False, compare=False)

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
        """The report as plain data, with the expected effect of each edit in bytes."""
        return {
            "level": self.level.value,
            "nodes_before": self.nodes_before,
            "nodes_after": self.nodes_after,
            "unknown_sizes": list(self.properties.unknown_sizes()),
            "passes": [self._pass_to_json(report) for report in self.passes],
        }

    def _pass_to_json(self, report: PassReport) -> dict[str, Any]:
        return {
            "name": report.name,
            "function": report.function,
            "seconds": report.seconds,
            "failure": report.failure,
            "edits": [
                {
                    "reason": edit.reason,
                    "effect_bytes": self.effect_bytes(edit, report.function),
                    "added": list(edit.added),
                    "removed": list(edit.removed),
                    "changed": list(edit.changed),
                    "releases": list(edit.releases),
                    "holds": list(edit.holds),
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
