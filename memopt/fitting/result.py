"""What fitting found: a size, its rewritten step, and how it was found and proved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memopt.display import Overview, Paged, Table, bytes_text
from memopt.graph.op_types import DT_STRING

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.fitting.dimensions import Dimension
    from memopt.fitting.planner import Probe
    from memopt.item import GrapplerItem
    from memopt.result import OptimizationResult


@dataclass(frozen=True, repr=False)
class Fit(Paged):
    """The largest size at which a step keeps to a memory, rewritten.

    Attributes:
        dimensions: What has the size; those with a size of their own have that.
        memory_bytes: What the step may use, everything included.
        limit_bytes: The same in whole MiB, as TensorFlow's allocator takes it.
        max_overhead: The share of time that the rewriting may add.
        size: The size.
        peak_bytes: The most in use at any moment, as planned.
        overhead: The share of time that the rewriting adds, as estimated.
        free_size: The largest size at which the step fits unchanged, as predicted; 0 if none.
        measured_peak_bytes: The most that was in use in a real step; `None` if none was run.
        failed_sizes: Larger sizes whose real step ran out of memory though it was not predicted.
        probes: What was planned, in order.
        seconds: How long the search took, the real step aside.
        result: The rewritten step and the report on it.
        item: The step before it was rewritten, with its sizes.
        only_size: Whether the rewritten step takes this size and no other; of a SavedModel that was
            written it may take others, at which it was not planned.
    """

    dimensions: tuple[Dimension, ...]
    memory_bytes: int
    limit_bytes: int
    max_overhead: float
    size: int
    peak_bytes: int
    overhead: float
    free_size: int
    measured_peak_bytes: int | None
    failed_sizes: tuple[int, ...]
    probes: tuple[Probe, ...]
    seconds: float
    result: OptimizationResult = field(repr=False, compare=False)
    item: GrapplerItem = field(repr=False, compare=False)
    only_size: bool = True

    @property
    def factor(self) -> float | None:
        """How much larger the size is than without a rewriting; `None` if none fits without."""
        return self.size / self.free_size if self.free_size else None

    @property
    def unknown_sizes(self) -> tuple[str, ...]:
        """The tensors whose sizes are not known: they count as little as they can. No strings."""
        properties = self.result.report.properties
        found = ((name, properties.tensor(name)) for name in properties.unknown_sizes())
        return tuple(name for name, tensor in found if tensor and tensor.dtype != DT_STRING)

    @property
    def graph_def(self) -> GraphDef:
        """The rewritten step, for this size only: what was planned are sizes."""
        return self.result.graph_def

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the graphs."""
        return {
            "dimensions": [
                {"tensor": each.node, "axis": each.axis, "size": each.size or self.size}
                for each in self.dimensions
            ],
            "memory_bytes": self.memory_bytes,
            "limit_bytes": self.limit_bytes,
            "max_overhead": self.max_overhead,
            "size": self.size,
            "peak_bytes": self.peak_bytes,
            "measured_peak_bytes": self.measured_peak_bytes,
            "overhead": self.overhead,
            "free_size": self.free_size,
            "factor": self.factor,
            "failed_sizes": list(self.failed_sizes),
            "unknown_sizes": list(self.unknown_sizes),
            "only_size": self.only_size,
            "seconds": self.seconds,
            "probes": [
                {
                    "size": probe.size,
                    "quick": probe.is_quick,
                    "fits": probe.result is not None,
                    "outcome": probe.outcome,
                }
                for probe in self.probes
            ],
        }

    def _overview(self) -> Overview:
        sought = ", ".join(str(dimension) for dimension in self.dimensions if not dimension.size)
        measured = self.measured_peak_bytes
        proof = "not run" if measured is None else f"ran at a peak of {bytes_text(measured)}"
        factor = "" if self.factor is None else f" (x{self.factor:.1f} of what fits unchanged)"
        rows = (
            ("memory", bytes_text(self.memory_bytes)),
            ("planned peak", bytes_text(self.peak_bytes)),
            ("measured peak", "not run" if measured is None else bytes_text(measured)),
            ("overhead", f"{self.overhead:.1%} of at most {self.max_overhead:.1%}"),
            ("largest size unchanged", f"{self.free_size:,}" if self.free_size else "none fits"),
            ("planned in", f"{self.seconds:.1f} s"),
        )
        notes = (f"size {size} RAN OUT OF MEMORY" for size in self.failed_sizes)
        outcome = f"size {self.size:,} of {sought}{factor}, {proof}"
        return Overview("Fit", outcome, (Table(("", ""), rows),), tuple(notes))
