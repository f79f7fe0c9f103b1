"""The memory in use so far, where what is kept longer adds to every moment since."""

from __future__ import annotations


class UsageHistory:
    """Bytes in use by moment; a buffer that has to live on raises all moments from one on.

    A tree over the differences from moment to moment, with the sum and the largest sum from the
    left of every stretch: each operation is logarithmic.
    """

    def __init__(self, moments: int = 1) -> None:
        self._count = 0
        self._last_bytes = 0
        self._resize(max(moments, 1))

    def __len__(self) -> int:
        return self._count

    def append(self, usage_bytes: int) -> None:
        """The next moment, with all that is in use in it."""
        if self._count == self._size:
            self._grow()
        self._count += 1
        self._add(self._count - 1, usage_bytes - self._last_bytes)
        self._last_bytes = usage_bytes

    def raise_since(self, moment: int, size_bytes: int) -> None:
        """Something was in use from a moment to the last one, too."""
        if moment < self._count:
            self._add(moment, size_bytes)
            self._last_bytes += size_bytes

    def raise_at(self, moment: int, size_bytes: int) -> None:
        """Something was in use at a moment, too."""
        self.raise_since(moment, size_bytes)
        self.raise_since(moment + 1, -size_bytes)

    def at(self, moment: int) -> int:
        """What was in use at a moment."""
        at = self._size + moment
        usage_bytes = self._sum[at]
        while at > 1:
            if at & 1:
                usage_bytes += self._sum[at - 1]
            at >>= 1
        return usage_bytes

    def most_since(self, moment: int) -> int:
        """The most that was in use from a moment to the last one; 0 if there is none."""
        if moment >= self._count:
            return 0
        before = 0
        stretches: list[int] = []
        left, right = self._size, self._size + moment
        # What lies to the left of the moment, and, from left to right, what covers the rest.
        low = right
        while left < right:
            if right & 1:
                right -= 1
                before += self._sum[right]
            left, right = (left + 1) >> 1, right >> 1
        left, right = low, self._size + self._count
        tail: list[int] = []
        while left < right:
            if left & 1:
                stretches.append(left)
                left += 1
            if right & 1:
                right -= 1
                tail.append(right)
            left, right = left >> 1, right >> 1
        most: int | None = None
        for stretch in (*stretches, *reversed(tail)):
            here = before + self._most[stretch]
            most = here if most is None else max(most, here)
            before += self._sum[stretch]
        return most or 0

    def _add(self, moment: int, difference: int) -> None:
        at = self._size + moment
        self._sum[at] += difference
        self._most[at] = self._sum[at]
        at >>= 1
        sums, most = self._sum, self._most
        while at:
            left = 2 * at
            sums[at] = sums[left] + sums[left + 1]
            most[at] = max(most[left], sums[left] + most[left + 1])
            at >>= 1

    def _resize(self, moments: int) -> None:
        self._size = 1 << (moments - 1).bit_length()
        self._sum = [0] * (2 * self._size)
        self._most = [0] * (2 * self._size)

    def _grow(self) -> None:
        differences = self._sum[self._size :]
        self._resize(2 * self._size)
        self._sum[self._size : self._size + len(differences)] = differences
        self._most[self._size : self._size + len(differences)] = differences
        for at in range(self._size - 1, 0, -1):
            left = 2 * at
            self._sum[at] = self._sum[left] + self._sum[left + 1]
            self._most[at] = max(self._most[left], self._sum[left] + self._most[left + 1])
