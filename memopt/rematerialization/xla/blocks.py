"""Blocks of instructions recomputed: where the copies go, and who reads them instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.rematerialization.copies import Copies
from memopt.rematerialization.xla.insertions import Copied, Stored
from memopt.rematerialization.xla.memory_tracker import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.rematerialization.instructions import Instructions
    from memopt.rematerialization.storage.forms import Form
    from memopt.rematerialization.xla.memory_tracker import MemoryUsageTracker


def copy_block(
    instructions: Instructions, tracker: MemoryUsageTracker, members: Sequence[int]
) -> Copied:
    """Copy instructions and let the remaining readers of the last one read its copy.

    A reader that gets the result through a view that has run already gets a copy of the view too.

    Args:
        instructions: What runs; the copies are inserted.
        tracker: Tells what has begun.
        members: What to copy, producers first.
    """
    return _Copying(instructions, tracker, members).copy()


def store_result(
    instructions: Instructions, tracker: MemoryUsageTracker, original: int, form: Form
) -> Stored:
    """Store the only result of an instruction in a form, and restore it for its remaining readers.

    It is stored after its last use so far (XLA does so right after its definition, and then has it
    twice in between), and restored before the first of its remaining readers.

    Args:
        instructions: What runs; what stores and restores is inserted.
        tracker: Tells what has begun.
        original: The instruction.
        form: The form.
    """
    last_use = tracker.last_use(original)
    copying = _Copying(instructions, tracker, [original])
    store = instructions.add_store(original, form, last_use)
    return Stored(store, last_use, copying.restore(store))


class _Copying:
    def __init__(
        self, instructions: Instructions, tracker: MemoryUsageTracker, members: Sequence[int]
    ) -> None:
        self._table = instructions
        self._tracker = tracker
        self._members = members
        self._copies = Copies(instructions, tracker.placed.__getitem__)
        made = instructions.makes[members[-1]]
        self._users = list(
            dict.fromkeys(
                user
                for buffer in made
                for user in instructions.readers[buffer]
                if not tracker.placed[user]
            )
        )
        self._anchor = NOBODY

    def copy(self) -> Copied:
        """Copy the members."""
        self._anchor = self._find_anchor(self._members)
        for member in self._members:
            self._copies.add_views(self._table.inputs[member], self._anchor)
            self._copies.add(member, self._anchor)
        return self._connect()

    def restore(self, store: int) -> Copied:
        """Restore the result of the only member instead of recomputing it."""
        self._anchor = self._find_anchor(())
        (original,) = self._members
        restore = self._table.add_restore(store, self._anchor)
        self._copies.copy_of[original] = restore
        for buffer in self._table.makes[original]:
            self._copies.buffer_of[buffer] = self._table.add_buffer(restore, buffer)
        return self._connect()

    def _connect(self) -> Copied:
        """Let the remaining readers read the copy."""
        table = self._table
        moved = self._move_readers()
        for user in self._users:
            self._copies.add_views(table.inputs[user], self._anchor)
        for user in self._users:
            table.inputs[user] = self._copies.redirect(table.inputs[user])
            for column in (table.reads, table.handed_on):
                column[user] = self._replace(column[user])
            for buffer in table.makes[user]:
                table.reusable[buffer] = self._replace(table.reusable[buffer])
        copy_of = self._copies.copy_of
        return Copied(list(copy_of.values()), copy_of[self._members[-1]], moved)

    def _move_readers(self) -> list[tuple[int, int]]:
        """Let the readers that have not begun read what the copy makes."""
        table, users = self._table, frozenset(self._users)
        moved: list[tuple[int, int]] = []
        for buffer in table.makes[self._members[-1]]:
            left = [user for user in table.readers[buffer] if user in users]
            moved += [(user, buffer) for user in left]
            table.readers[buffer] = [user for user in table.readers[buffer] if user not in users]
            table.readers[self._copies.buffer_of[buffer]] += left
        return moved

    def _replace(self, buffers: Sequence[int]) -> list[int]:
        """What a remaining reader has instead of the original's buffers."""
        original = self._members[-1]
        maker = self._table.maker
        return [self._copies.buffer_of[b] if maker[b] == original else b for b in buffers]

    def _find_anchor(self, members: Sequence[int]) -> int:
        """Before whom copies go: their first reader, follower or last reader of an operand."""
        table, tracker = self._table, self._tracker
        labels = table.line.labels
        before = list(self._users)
        before += (f for member in members for f in table.followers(member))
        made = {buffer for member in members for buffer in table.makes[member]}
        operands = dict.fromkeys(
            buffer
            for member in members
            for buffer in table.reads[member]
            if buffer not in made and not table.lasting[buffer]
        )
        for buffer in operands:
            left = [user for user in table.readers[buffer] if not tracker.placed[user]]
            if left:
                before.append(max(left, key=labels.__getitem__))
        return min(before, key=labels.__getitem__)
