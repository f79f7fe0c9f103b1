"""One size of a step that is to fit, as an order for another process."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from memopt.workers.orders import plain_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.fitting.planner import Probe

_LEFT_OUT = "result"


@dataclass(frozen=True)
class SizeOrder:
    """A step to be planned at one size of its open dimensions.

    Attributes:
        source: The step: a folder with the files of an item and, if `costs` names it, one of costs.
        size: The size.
        is_quick: Whether by the quick algorithm alone.
        dimensions: Node, axis and size of each open dimension; 0 for the size that is looked for.
        limit_bytes: What the allocator may hand out.
        spare_bytes: What is left to it on top of what is planned.
        max_overhead: The share of time that a plan may add.
        costs: How long operations take: a name, or a file of the folder.
        onednn: Whether it is planned for oneDNN's kernels.
        keep_open: Whether the graph that is rewritten has its dimensions open still.
        folder: Of no use here: figures are an answer, and who wants the graph makes it.
    """

    reads: ClassVar[None] = None

    source: str
    size: int
    is_quick: bool
    dimensions: tuple[tuple[str, int, int], ...]
    limit_bytes: int
    spare_bytes: int
    max_overhead: float
    costs: str
    onednn: bool
    keep_open: bool
    folder: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return plain_fields(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> SizeOrder:
        """The order that `to_json` described."""
        return cls(**dict(plain) | {"dimensions": tuple(map(tuple, plain["dimensions"]))})

    def perform(self) -> dict[str, Any]:
        """Plan.

        Returns:
            What came of it: see `probe_of`.

        Raises:
            InvalidGraphError: TensorFlow refuses the step at that size.
        """
        from memopt.buffers.kernel_call import Runtime
        from memopt.fitting.dimensions import Dimension
        from memopt.fitting.planner import SizePlanner
        from memopt.runtime.item_files import load_item

        folder = Path(self.source)
        costs = folder / self.costs
        planner = SizePlanner(
            load_item(folder),
            [Dimension(*one) for one in self.dimensions],
            self.limit_bytes,
            self.max_overhead,
            str(costs) if costs.is_file() else self.costs,
            say=lambda _: None,
            runtime=Runtime(onednn=self.onednn),
            keep_open=self.keep_open,
            spare_bytes=self.spare_bytes,
        )
        probe = planner.probe_here(self.size, self.is_quick)
        return {
            each.name: getattr(probe, each.name) for each in fields(probe) if each.name != _LEFT_OUT
        }


def probe_of(answer: Mapping[str, Any]) -> Probe:
    """What came of a size, without the graph that was made."""
    from memopt.fitting.planner import Probe

    return Probe(**answer)
