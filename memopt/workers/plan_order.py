"""One plan of a sweep, as an order for another process."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from memopt.workers.orders import plain_fields

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class PlanOrder:
    """A cost graph to be planned for one budget of a sweep.

    Attributes:
        source: The cost graph: a file.
        budget_bytes: What may be in use at any step, everything included.
        seed: Of the search.
        exact: Whether CP-SAT goes on where the search ends.
        most_s: For how long it may go on; `None` for as long as suits the graph's size.
        lowest: The sequence with the lowest peak, operations by index.
        swapped: For each of them, 1 if it is a swap in.
        folder: Of no use here: a plan is an answer.
    """

    reads: ClassVar[None] = None

    source: str
    budget_bytes: int
    seed: int
    exact: bool
    most_s: float | None
    lowest: tuple[int, ...]
    swapped: tuple[int, ...]
    folder: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return plain_fields(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> PlanOrder:
        """The order that `to_json` described."""
        return cls(**dict(plain) | {name: tuple(plain[name]) for name in ("lowest", "swapped")})

    def perform(self) -> dict[str, Any]:
        """Plan.

        Returns:
            The plan as plain data.

        Raises:
            FileError: The cost graph cannot be read.
            InvalidGraphError: It is none.
            BudgetError: There was no time to find a plan.
        """
        import numpy as np

        from memopt.planning.cost_graph import CostGraph
        from memopt.planning.initial_plans import Steps
        from memopt.planning.sweep import Sweep

        deadline_s = math.inf if self.most_s is None else time.monotonic() + self.most_s
        sweep = Sweep(CostGraph.load(Path(self.source)), self.seed, self.exact, deadline_s)
        lowest = Steps(np.array(self.lowest, np.int64), np.array(self.swapped, np.int64))
        return sweep.plan(self.budget_bytes, lowest, sweep.left_s).to_json()
