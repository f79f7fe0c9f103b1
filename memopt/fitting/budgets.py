"""Which budgets a size is planned within: what fits by its sum may find no room for its parts."""

from __future__ import annotations

import math
from dataclasses import dataclass

_LOWER = 0.96
"""Of a budget whose plan finds no room, the most that the next one is."""
_NEAR = 1.01
"""How much larger than one that takes too much time another budget has to be."""
_HOPELESS = 0.5
"""The excess of time that somewhat more memory does not make up for."""


@dataclass
class Budgets:
    """The budgets that are tried for one size, all in bytes.

    A lower one leaves the allocator more room, a higher one takes less time: between one that is
    too high and one that is too low the middle comes next.

    Attributes:
        limit_bytes: What the allocator may hand out.
        next_bytes: What is tried next; at first, what the size before was planned within.
        too_high: The lowest one whose plan the allocator finds no room for, if there is one.
        too_low: The highest one whose plan takes too much time, 0 if there is none.
    """

    limit_bytes: int
    next_bytes: int
    too_high: int | None = None
    too_low: int = 0

    def learn(self, peak_bytes: int, needed_bytes: int, excess: float) -> bool:
        """Take what came of the last budget, and say whether there is another one to try.

        Args:
            peak_bytes: What its plan has in use at most.
            needed_bytes: What the allocator needs to have for that; no more than the limit if it is
                the time that is too much.
            excess: By what share the plan is over what is allowed.
        """
        if needed_bytes > self.limit_bytes:
            self.too_high = self.next_bytes
            # What is needed beyond the sum differs a lot from plan to plan: half of the way.
            share = math.sqrt(self.limit_bytes / needed_bytes)
            lower = int(min(peak_bytes * share, self.next_bytes * _LOWER))
            self.next_bytes = lower if lower > self.too_low else self._middle(self.too_high)
        elif self.too_high is None and excess > _HOPELESS:
            return False
        else:
            self.too_low = self.next_bytes
            self.next_bytes = self._middle(self.too_high or self.limit_bytes)
        return self.next_bytes > self.too_low * _NEAR

    def _middle(self, high: int) -> int:
        return -(-(self.too_low + high) // 2)
