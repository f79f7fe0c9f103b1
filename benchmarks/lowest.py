"""The lowest peak that a rewriting can find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import memopt
from memopt.errors import BudgetError

if TYPE_CHECKING:
    from memopt.item import GrapplerItem
    from memopt.result import OptimizationResult


def optimize_lowest(item: GrapplerItem, **options: Any) -> OptimizationResult:
    """The result with the lowest peak that can be found.

    Args:
        item: The step.
        options: Of `memopt.optimize`, but for the budget.
    """
    try:
        return memopt.optimize(item, budget=1, **options)
    except BudgetError as error:
        return memopt.optimize(item, budget=error.lowest_bytes, **options)
