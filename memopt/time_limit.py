"""When planning ends: what was found until then is what is used."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class TimeIsUpError(Exception):
    """An algorithm was stopped before it found anything; never seen outside planning."""


@dataclass(frozen=True, order=True)
class TimeLimit:
    """A moment at which planning ends.

    Attributes:
        end_s: The moment by `time.monotonic`; infinity for no limit.
    """

    end_s: float = math.inf

    @classmethod
    def after(cls, seconds: float) -> TimeLimit:
        """The moment after some seconds; no limit after 0."""
        return cls(time.monotonic() + seconds if seconds else math.inf)

    @property
    def is_endless(self) -> bool:
        """Whether there is no limit."""
        return math.isinf(self.end_s)

    @property
    def left_s(self) -> float:
        """Seconds until then; less than 0 afterwards."""
        return self.end_s - time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.left_s < 0

    def check(self) -> None:
        """Stop what is under way where the time is up.

        Raises:
            TimeIsUpError: It is.
        """
        if self.is_over:
            raise TimeIsUpError

    def after_all(self, something: Callable[[], None]) -> TimeLimit:
        """The moment, later by as much as something takes, which is done now."""
        started_s = time.monotonic()
        something()
        return TimeLimit(self.end_s + time.monotonic() - started_s)

    def share(self, share: float) -> TimeLimit:
        """The moment at which a share of what is left will have passed."""
        if self.is_endless:
            return self
        return TimeLimit(time.monotonic() + max(0.0, self.left_s) * share)


NO_LIMIT = TimeLimit()
