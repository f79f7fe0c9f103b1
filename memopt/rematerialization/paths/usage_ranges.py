"""Memory in use by position, with ranges that are raised: what keeping something longer costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class UsageRanges:
    """Bytes by position; raising a range and finding its maximum are logarithmic.

    A tree in which each node has the maximum of its stretch and what was added to all of it.
    """

    def __init__(self, usage_bytes: Sequence[int]) -> None:
        self._size = 1 << max(len(usage_bytes) - 1, 0).bit_length()
        padding = [0] * (self._size - len(usage_bytes))
        self._most = [0] * self._size + list(usage_bytes) + padding
        self._added = [0] * (2 * self._size)
        for at in range(self._size - 1, 0, -1):
            self._most[at] = max(self._most[2 * at], self._most[2 * at + 1])

    def most(self, first: int, end: int) -> int:
        """The maximum from a position up to, but not including, another one; 0 for none."""
        if first >= end:
            return 0
        most, added = self._most, self._added
        left, right = self._size + first, self._size + end - 1
        low, high = most[left], most[right]
        while left >> 1 != right >> 1:
            if not left & 1:
                low = max(low, most[left ^ 1])
            if right & 1:
                high = max(high, most[right ^ 1])
            left, right = left >> 1, right >> 1
            low += added[left]
            high += added[right]
        found = max(low, high)
        while left > 1:
            left >>= 1
            found += added[left]
        return found

    def add(self, first: int, end: int, size_bytes: int) -> None:
        """Raise everything from a position up to, but not including, another one."""
        if first >= end:
            return
        left, right = self._size + first, self._size + end
        while left < right:
            if left & 1:
                self._raise(left, size_bytes)
                left += 1
            if right & 1:
                right -= 1
                self._raise(right, size_bytes)
            left, right = left >> 1, right >> 1
        self._renew(self._size + first)
        self._renew(self._size + end - 1)

    def _raise(self, at: int, size_bytes: int) -> None:
        self._most[at] += size_bytes
        self._added[at] += size_bytes

    def _renew(self, at: int) -> None:
        most = self._most
        while at > 1:
            at >>= 1
            most[at] = max(most[2 * at], most[2 * at + 1]) + self._added[at]
