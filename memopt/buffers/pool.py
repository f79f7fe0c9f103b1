"""Pool: all buffers of a graph and of the functions that it calls, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass
class Pool:
    """The buffers of a graph and of all that it calls, by number.

    Attributes:
        size_bytes: The sizes.
        lasting: Which are kept to the end of the step.
        reusable: For each the buffers that it may be put into.
        contents: For each buffer of a list the buffers of its elements, -1 for one not set.
        numbers: The integers in those buffers that hold one that is known.
        values: By a variable's handle: the buffer of its value by now.
        first_values: Likewise of the value that it has before the step.
        handed_out: The buffers of values of variables that were read, by whomever.
        sparse: The handles of variables of which parts are read or updated: whatever reads or
            updates all of one copies it.
        unknown: By op and name of a node whose kernel no rule knows: the bytes that it reads and
            makes.
    """

    size_bytes: list[int] = field(default_factory=list)
    lasting: list[bool] = field(default_factory=list)
    reusable: list[list[int]] = field(default_factory=list)
    contents: dict[int, tuple[int, ...]] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)
    first_values: dict[int, int] = field(default_factory=dict)
    handed_out: set[int] = field(default_factory=set)
    sparse: set[int] = field(default_factory=set)
    unknown: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def next_values(self) -> dict[int, int]:
        """By value of a variable before the step: the one after it; in the order of the handles."""
        return {value: self.values[handle] for handle, value in sorted(self.first_values.items())}

    def add(self, size_bytes: int, reusable: Sequence[int] = (), *, lasting: bool = False) -> int:
        """A new buffer."""
        self.size_bytes.append(size_bytes)
        self.lasting.append(lasting)
        self.reusable.append(list(reusable))
        return len(self.size_bytes) - 1

    def with_contents(self, buffers: Iterable[int]) -> dict[int, None]:
        """Buffers and the elements of those that are lists, each once."""
        found: dict[int, None] = {}
        for buffer in buffers:
            found[buffer] = None
            for element in self.contents.get(buffer, ()):
                if element >= 0:
                    found[element] = None
        return found
