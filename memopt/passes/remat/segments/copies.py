"""The copies of a layout, made among the instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.passes.remat.segments.layout import Layout
    from memopt.passes.remat.segments.stage import Stage


def make_copies(stage: Stage, layout: Layout) -> None:
    """Insert the copies of a layout, and let what comes behind the turn read them.

    Whoever gets what is made again through a view that has run before the turn gets a copy of the
    view too.
    """
    _Making(stage, layout).make()


class _Making:
    def __init__(self, stage: Stage, layout: Layout) -> None:
        self._table = stage.course.instructions
        self._order = stage.course.order
        self._turn = stage.turn
        self._layout = layout
        self._behind = frozenset(self._order[stage.turn + 1 :])
        self._copy_of: dict[int, int] = {}
        self._buffer_of: dict[int, int] = {}

    def make(self) -> None:
        members_at = {group.anchor: group.members for group in self._layout.groups}
        for position in range(self._turn + 1, len(self._order)):
            number = self._order[position]
            for member in members_at.get(position, ()):
                original = self._order[member]
                self._show(self._table.inputs[original], number)
                self._add(original, number)
            self._show(self._table.inputs[number], number)
            self._rewire(number)

    def _rewire(self, number: int) -> None:
        """Let an instruction behind the turn read the copies that there are by now."""
        table = self._table
        table.inputs[number] = self._redirect(table.inputs[number])
        if not any(buffer in self._buffer_of for buffer in table.reads[number]):
            return
        for buffer in table.reads[number]:
            if buffer in self._buffer_of:
                table.readers[buffer].remove(number)
                table.readers[self._buffer_of[buffer]].append(number)
        table.reads[number] = self._replace(table.reads[number])
        table.handed_on[number] = self._replace(table.handed_on[number])
        for buffer in table.makes[number]:
            table.reusable[buffer] = self._replace(table.reusable[buffer])

    def _show(self, inputs: Sequence[int], anchor: int) -> None:
        """Copy the views among inputs, and those behind them, that show what is made again."""
        pending = list(inputs)
        while pending:
            view = pending[-1]
            if not self._shows_a_copy(view):
                pending.pop()
                continue
            behind = [number for number in self._table.inputs[view] if self._shows_a_copy(number)]
            if behind:
                pending.extend(behind)
                continue
            pending.pop()
            self._add(view, anchor)

    def _shows_a_copy(self, number: int) -> bool:
        """Whether this is a view, before the turn, of what is made again, and has no copy yet."""
        if number in self._copy_of or number in self._behind:
            return False
        return any(buffer in self._buffer_of for buffer in self._table.handed_on[number])

    def _add(self, original: int, anchor: int) -> None:
        table = self._table
        copy = table.add_copy(original, anchor)
        self._copy_of[original] = copy
        table.inputs[copy] = self._redirect(table.inputs[original])
        table.reads[copy] = self._replace(table.reads[original])
        table.handed_on[copy] = self._replace(table.handed_on[original])
        for buffer in table.reads[copy]:
            table.readers[buffer].append(copy)
        for buffer in table.makes[original]:
            self._buffer_of[buffer] = table.add_buffer(copy, buffer)
            table.reusable[self._buffer_of[buffer]] = self._replace(table.reusable[buffer])

    def _replace(self, buffers: Sequence[int]) -> list[int]:
        return [self._buffer_of.get(buffer, buffer) for buffer in buffers]

    def _redirect(self, inputs: Sequence[int]) -> list[int]:
        return list(dict.fromkeys(self._copy_of.get(number, number) for number in inputs))
