"""The memory in use while instructions are placed one after the other.

XLA's `MemoryUsageTracker` (tensorflow/compiler/xla/service/hlo_rematerialization.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.rematerialization.xla.memory_history import UsageHistory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memopt.rematerialization.instructions import Instructions
    from memopt.rematerialization.xla.insertions import Stored

NOBODY = -1


class MemoryUsageTracker:
    """Follows the memory along the line; instructions are placed in two steps, begin and end.

    Three things that XLA's does not know are followed too, so that what is counted is what the
    allocator has: a buffer takes over the memory of an operand that nobody else reads any more; a
    kernel's scratch memory; and what a buffer that has to live on adds to the moments that are
    past. What is returned counts from its making on, as TensorFlow has it, and not from the
    beginning.

    Attributes:
        usage_bytes: In use now, everything included, but for scratch memory.
        in_progress: The instruction between its begin and its end, or `NOBODY`.
        unfinished: By buffer: how many of its readers have not ended yet.
        placed: By instruction: whether it has begun.
        history: The memory in use at each instruction that was placed, scratch memory included.
        ended_at: By instruction: the moment of that history at which it ran, if it did; what was
            put in between later runs after an instruction and shares its moment.
    """

    def __init__(self, instructions: Instructions) -> None:
        self._instructions = instructions
        self.placed = [False] * len(instructions.origin)
        self.in_progress = NOBODY
        self.usage_bytes = instructions.network.buffer_graph.held_bytes
        self.unfinished = [len(readers) for readers in instructions.readers]
        self.history = UsageHistory(len(instructions.network.sequence))
        self.ended_at = [NOBODY] * len(instructions.origin)
        self._between = UsageHistory(len(instructions.network.sequence))
        self._stored_at: dict[int, int] = {}
        self.has_placed_reader = [False] * len(instructions.size_bytes)
        self._dead_since = [0] * len(instructions.size_bytes)
        self._given: set[int] = set()

    @property
    def usage_now_bytes(self) -> int:
        """In use while the instruction in progress runs."""
        if self.in_progress == NOBODY:
            return self.usage_bytes
        return self.usage_bytes + self._instructions.scratch_bytes(self.in_progress)

    @property
    def most_bytes(self) -> int:
        """The most that was in use at any time."""
        stored = (self._between.at(moment) for moment in self._stored_at)
        return max((self.history.most_since(0), *stored))

    def begin(self, instruction: int) -> None:
        """Start an instruction: the memory for what it makes is allocated."""
        table = self._instructions
        self.in_progress = instruction
        self.placed[instruction] = True
        for buffer in table.makes[instruction]:
            source = self._find_source(buffer)
            if source is None:
                self.usage_bytes += table.size_bytes[buffer]
            else:
                self._given.add(source)
        if not table.is_view(instruction):
            for buffer in table.reads[instruction]:
                self.has_placed_reader[buffer] = True

    def end(self) -> None:
        """Finish the instruction in progress: what nobody reads any more is freed."""
        table, instruction = self._instructions, self.in_progress
        self.ended_at[instruction] = len(self.history)
        self.history.append(self.usage_now_bytes)
        for buffer in table.reads[instruction]:
            self.unfinished[buffer] -= 1
        for buffer in (*table.reads[instruction], *table.makes[instruction]):
            if not self.is_live(buffer):
                self._free(buffer)
        self._given.clear()
        self._between.append(self.usage_bytes)
        self.in_progress = NOBODY

    def is_live(self, buffer: int) -> bool:
        """Whether a buffer that was made is still needed."""
        return self.unfinished[buffer] > 0 or self._instructions.lasting[buffer]

    def is_in_use(self, buffer: int) -> bool:
        """Whether the instruction in progress reads a buffer."""
        if self.in_progress == NOBODY:
            return False
        return buffer in self._instructions.reads[self.in_progress]

    def is_taken_over(self, buffer: int) -> bool:
        """Whether what the instruction in progress makes lies in a buffer's memory."""
        return buffer in self._given

    def is_finished(self, instruction: int) -> bool:
        """Whether an instruction has begun and ended."""
        return self.placed[instruction] and instruction != self.in_progress

    def released_bytes(self, instruction: int) -> int:
        """What goes if an instruction's results are recomputed for those who still need them."""
        return sum(
            self._instructions.size_bytes[buffer]
            for buffer in self._instructions.makes[instruction]
            if self.is_live(buffer) and not self.is_in_use(buffer)
        )

    def extended_bytes(self, buffer: int) -> int:
        """What a buffer adds now if it has to live beyond the instruction in progress."""
        if self.is_live(buffer) and not self.is_taken_over(buffer):
            return 0
        return self._instructions.size_bytes[buffer]

    def most_while_dead(self, buffer: int) -> int:
        """The most that was in use since a dead buffer died; it adds to that if it lives on."""
        return self.history.most_since(self._dead_since[buffer])

    def memory_reduced(self, members: Sequence[int]) -> int:
        """How many bytes less are in use now if instructions are recomputed.

        Args:
            members: Instructions that are copied together, producers first; the last is the one
                whose remaining readers get the copy.
        """
        if not self.is_finished(members[-1]):
            return 0
        reduced_bytes = self.released_bytes(members[-1])
        return reduced_bytes - sum(map(self.extended_bytes, self._outside_reads(members)))

    def last_use(self, instruction: int) -> int:
        """Who was the last to read what an instruction made; itself, if nobody has read it yet."""
        table = self._instructions
        readers = (user for buffer in table.makes[instruction] for user in table.readers[buffer])
        placed = (user for user in readers if self.placed[user])
        return max((instruction, *placed), key=table.line.labels.__getitem__)

    def most_while_stored(self, last_use: int, size_bytes: int) -> int:
        """What would have been in use while, after a last use, something was stored."""
        moment = self.ended_at[last_use]
        return self._between.at(moment) + max(0, size_bytes - self._stored_at.get(moment, 0))

    def add_stored(self, original: int, stored: Stored) -> list[int]:
        """Count what stores and restores a result; called when its readers have been connected.

        Args:
            original: The instruction that made the result.
            stored: What was done.

        Returns:
            The buffers that were dead and live again.
        """
        table, store = self._instructions, stored.store
        self._grow()
        self.placed[store] = True
        moment = self.ended_at[store] = self.ended_at[stored.last_use]
        size_bytes = table.made_bytes(store)
        # Of several forms that are made one after the other, each smaller than what it stands for,
        # only the largest adds to what was in use.
        largest_bytes = self._stored_at.get(moment, 0)
        if size_bytes > largest_bytes:
            self._between.raise_at(moment, size_bytes - largest_bytes)
            self._stored_at[moment] = size_bytes
        self.usage_bytes += size_bytes
        return self._count_copies(original, (store, *stored.copied.copies), stored.copied.moved)

    def add_copies(
        self, original: int, copies: Sequence[int], moved: Iterable[tuple[int, int]]
    ) -> list[int]:
        """Count copies of instructions; called when they and their readers have been connected.

        Args:
            original: The instruction whose remaining readers got a copy.
            copies: The copies, producers first.
            moved: Pairs of a reader and the buffer of the original that it does not read any more.

        Returns:
            The buffers that were dead and live again.
        """
        self._grow()
        return self._count_copies(original, copies, moved)

    def _count_copies(
        self, original: int, copies: Sequence[int], moved: Iterable[tuple[int, int]]
    ) -> list[int]:
        table = self._instructions
        made = {buffer for copy in copies for buffer in table.makes[copy]}
        reads = [b for c in copies if not self.placed[c] for b in table.reads[c] if b not in made]
        revived = [buffer for buffer in dict.fromkeys(reads) if self.extended_bytes(buffer)]
        for buffer in revived:
            self._revive(buffer)
        for buffer in reads:
            self.unfinished[buffer] += 1
        live = [buffer for buffer in table.makes[original] if self.is_live(buffer)]
        for _, buffer in moved:
            self.unfinished[buffer] -= 1
        for buffer in live:
            if not self.is_live(buffer):
                self.usage_bytes -= table.size_bytes[buffer]
                self._dead_since[buffer] = len(self.history)
        return revived

    def _find_source(self, buffer: int) -> int | None:
        """The buffer whose memory one that is made now takes over."""
        sizes = self._instructions.size_bytes
        for source in self._instructions.reusable[buffer]:
            is_last = self.unfinished[source] == 1 and not self._instructions.lasting[source]
            # What keeps a larger piece is counted as if it were copied.
            is_alike = sizes[source] == sizes[buffer]
            if is_last and is_alike and source not in self._given:
                return source
        return None

    def _free(self, buffer: int) -> None:
        moment = len(self.history)
        if buffer in self._given:
            # Had it lived on, what took its memory would have needed its own at once.
            self._dead_since[buffer] = moment - 1
            return
        self._dead_since[buffer] = moment
        self.usage_bytes -= self._instructions.size_bytes[buffer]

    def _revive(self, buffer: int) -> None:
        size_bytes = self._instructions.size_bytes[buffer]
        self.usage_bytes += size_bytes
        if self.is_taken_over(buffer):
            self._given.discard(buffer)
            return
        self.history.raise_since(self._dead_since[buffer], size_bytes)
        self._between.raise_since(max(0, self._dead_since[buffer] - 1), size_bytes)

    def _outside_reads(self, members: Sequence[int]) -> Iterable[int]:
        table = self._instructions
        made = {buffer for member in members for buffer in table.makes[member]}
        reads = (b for member in members for b in table.reads[member])
        return dict.fromkeys(buffer for buffer in reads if buffer not in made)

    def _grow(self) -> None:
        """Make room for the instructions and buffers that came new."""
        table = self._instructions
        new = len(table.origin) - len(self.placed)
        self.placed += [False] * new
        self.ended_at += [NOBODY] * new
        for buffer in range(len(self.unfinished), len(table.size_bytes)):
            self.unfinished.append(len(table.readers[buffer]))
            self.has_placed_reader.append(False)
            self._dead_since.append(0)
