"""The copies of a layout, made among the instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.rematerialization.copies import Copies

if TYPE_CHECKING:
    from memopt.rematerialization.segments.layout import Layout
    from memopt.rematerialization.segments.stage import Stage


def make_copies(stage: Stage, layout: Layout) -> None:
    """Insert the copies of a layout, and let what comes behind the turn read them.

    Whoever gets what is recomputed through a view that has run before the turn gets a copy of the
    view too.
    """
    _Making(stage, layout).make()


class _Making:
    def __init__(self, stage: Stage, layout: Layout) -> None:
        self._table = stage.course.instructions
        self._order = stage.course.order
        self._turn = stage.turn
        self._layout = layout
        behind = frozenset(self._order[stage.turn + 1 :])
        self._copies = Copies(self._table, lambda number: number not in behind)

    def make(self) -> None:
        members_at = {group.anchor: group.members for group in self._layout.groups}
        for position in range(self._turn + 1, len(self._order)):
            number = self._order[position]
            for member in members_at.get(position, ()):
                original = self._order[member]
                self._copies.add_views(self._table.inputs[original], number)
                self._copies.add(original, number)
            self._copies.add_views(self._table.inputs[number], number)
            self._rewire(number)

    def _rewire(self, number: int) -> None:
        """Let an instruction behind the turn read the copies that there are by now."""
        table, copies = self._table, self._copies
        table.inputs[number] = copies.redirect(table.inputs[number])
        if not any(buffer in copies.buffer_of for buffer in table.reads[number]):
            return
        for buffer in table.reads[number]:
            if buffer in copies.buffer_of:
                table.readers[buffer].remove(number)
                table.readers[copies.buffer_of[buffer]].append(number)
        table.reads[number] = copies.replace(table.reads[number])
        table.handed_on[number] = copies.replace(table.handed_on[number])
        for buffer in table.makes[number]:
            table.reusable[buffer] = copies.replace(table.reusable[buffer])
