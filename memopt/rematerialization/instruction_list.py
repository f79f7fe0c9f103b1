"""The instructions in their order: inserting before any of them, and which of two comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SPACING = 1 << 40


class Line:
    """A linked list of numbers, each with a label that grows along the list.

    XLA's `InstructionList` gives an inserted instruction the label of the one behind it and looks
    for the first of equals; here a label is between those of its neighbours, and a stretch where
    none is left gets new ones.

    Attributes:
        labels: By number: larger than those of all before it in the line.
    """

    def __init__(self, sequence: Sequence[int], count: int) -> None:
        self.labels = [0] * count
        self._next = [-1] * count
        self._previous = [-1] * count
        self.first = sequence[0] if sequence else -1
        for rank, number in enumerate(sequence):
            self.labels[number] = (rank + 1) * _SPACING
            if rank:
                self._previous[number] = sequence[rank - 1]
                self._next[sequence[rank - 1]] = number

    def __iter__(self) -> Iterator[int]:
        number = self.first
        while number >= 0:
            yield number
            number = self._next[number]

    def insert_before(self, anchor: int) -> int:
        """A new number, in the line just before another one."""
        number = len(self.labels)
        previous = self._previous[anchor]
        self.labels.append(0)
        self._next.append(anchor)
        self._previous.append(previous)
        self._previous[anchor] = number
        if previous < 0:
            self.first = number
        else:
            self._next[previous] = number
        low = self.labels[previous] if previous >= 0 else 0
        self.labels[number] = (low + self.labels[anchor]) // 2
        if self.labels[number] == low:
            self._spread(number)
        return number

    def insert_after(self, anchor: int) -> int:
        """A new number, in the line just after another one, which is not the last."""
        return self.insert_before(self._next[anchor])

    def _spread(self, number: int) -> None:
        """Give a number and as many around it new labels as it takes to make room for more."""
        first = last = number
        count = 1
        while True:
            # Twice as many each time: the work is paid by the insertions that filled the stretch.
            for _ in range(count):
                first = self._previous[first] if self._previous[first] >= 0 else first
                last = self._next[last] if self._next[last] >= 0 else last
            count *= 2
            low = self.labels[self._previous[first]] if self._previous[first] >= 0 else 0
            at_end = self._next[last] < 0
            high = low + (2 * count + 2) * _SPACING if at_end else self.labels[self._next[last]]
            step = (high - low) // (2 * count + 2)
            if step > count:
                break
        label, at = low, first
        while True:
            label += step
            self.labels[at] = label
            if at == last:
                return
            at = self._next[at]
