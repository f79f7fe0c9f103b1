"""Copies of instructions and of the views that show them, and what they are copies of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from memopt.rematerialization.instructions import Instructions


class Copies:
    """Makes copies that read one another wherever there are copies to read.

    Args:
        instructions: What runs; the copies are inserted.
        has_run: Whether an instruction has run already where the copies go.

    Attributes:
        copy_of: By instruction: its copy, in the order in which they were made.
        buffer_of: By buffer: the one that a copy makes instead.
    """

    def __init__(self, instructions: Instructions, has_run: Callable[[int], bool]) -> None:
        self._table = instructions
        self._has_run = has_run
        self.copy_of: dict[int, int] = {}
        self.buffer_of: dict[int, int] = {}

    def add(self, original: int, anchor: int) -> None:
        """Copy an instruction, just before another one."""
        table = self._table
        copy = table.add_copy(original, anchor)
        self.copy_of[original] = copy
        table.inputs[copy] = self.redirect(table.inputs[original])
        table.reads[copy] = self.replace(table.reads[original])
        table.handed_on[copy] = self.replace(table.handed_on[original])
        for buffer in table.reads[copy]:
            table.readers[buffer].append(copy)
        for buffer in table.makes[original]:
            self.buffer_of[buffer] = table.add_buffer(copy, buffer)
            table.reusable[self.buffer_of[buffer]] = self.replace(table.reusable[buffer])

    def add_views(self, inputs: Iterable[int], anchor: int) -> None:
        """Copy the views among inputs, and those behind them, that show what is recomputed."""
        pending = list(inputs)
        while pending:
            view = pending[-1]
            if not self._shows_a_copy(view):
                pending.pop()
                continue
            behind = [node for node in self._table.inputs[view] if self._shows_a_copy(node)]
            if behind:
                pending.extend(behind)
                continue
            pending.pop()
            self.add(view, anchor)

    def replace(self, buffers: Sequence[int]) -> list[int]:
        """Buffers, those of copies instead of the originals'."""
        return [self.buffer_of.get(buffer, buffer) for buffer in buffers]

    def redirect(self, inputs: Sequence[int]) -> list[int]:
        """Instructions, copies instead of originals, each once."""
        return list(dict.fromkeys(self.copy_of.get(node, node) for node in inputs))

    def _shows_a_copy(self, instruction: int) -> bool:
        """Whether this is a view of what is recomputed, has run, and has no copy yet."""
        if instruction in self.copy_of or not self._has_run(instruction):
            return False
        return any(buffer in self.buffer_of for buffer in self._table.handed_on[instruction])
