"""The search for what is best recomputed or stored, with a heap instead of a scan of it all."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, NamedTuple

from memopt.rematerialization.storage.forms import Strategies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.rematerialization.instructions import Instructions
    from memopt.rematerialization.storage.forms import Form
    from memopt.rematerialization.xla.memory_tracker import MemoryUsageTracker


_RECOMPUTE = Strategies()


class Block(NamedTuple):
    """Instructions that are recomputed together, or one whose result is stored.

    Attributes:
        members: The instructions, producers first; the last one's remaining readers get the copy.
        reduced_bytes: How much less is in use now.
        cost: What decides between blocks; 0 for a move of one instruction.
        is_move: Whether nobody has read the result yet: then the original becomes useless.
        form: In which form the result is stored; `None` if it is recomputed.
    """

    members: list[int]
    reduced_bytes: int
    cost: int
    is_move: bool
    form: Form | None = None


class Candidates:
    """The instructions that have ended and can be recomputed or stored, by the cost of doing so.

    The cost is XLA's: 0 if nobody has read the result yet, since then the instruction is only
    moved; otherwise the memory limit divided by the memory reduced, times the weight of what is
    recomputed. Of equal costs the first in the line wins.

    Operands that are dead by now are recomputed too, with theirs, as long as the block stays
    within its size; beyond that they have to live on. A block of one is XLA's own rule. What would
    raise the past above the limit by living on is no candidate (above the peak without copies, once
    the limit is missed anyway).

    A single result that its makers cannot be asked for, or that it costs too much to recompute,
    may be stored in another form until it is read: what the form saves is reduced, and the cost is
    the limit divided by that, times the weight of both ways. What was restored is not stored a
    second time. Between storing and recomputing the lower cost decides, as in XLA.

    XLA looks at every instruction each time. Here a heap holds a lower bound of each cost: it is
    computed anew only for the top, and what becomes cheaper (because a dead operand lives again)
    is put on top. So the time is near-linear in the candidates that are looked at.

    Args:
        instructions: What runs.
        tracker: Where the walk is.
        limit_bytes: The memory limit, everything included.
        strategies: What may be done.
        largest_block: How many instructions are recomputed together at most.
        smallest_bytes: An instruction that makes no more than this is never a candidate.
    """

    def __init__(
        self,
        instructions: Instructions,
        tracker: MemoryUsageTracker,
        limit_bytes: int,
        strategies: Strategies = _RECOMPUTE,
        *,
        largest_block: int = 1,
        smallest_bytes: int = 0,
    ) -> None:
        self._instructions = instructions
        self._tracker = tracker
        self._limit_bytes = limit_bytes
        self._strategies = strategies
        self._largest_block = largest_block
        self._smallest_bytes = smallest_bytes
        self._heap: list[tuple[int, int, int]] = []
        self._skipped: set[int] = set()
        self._busy: list[int] = []
        self._watchers: dict[int, list[int]] = {}
        self._allowed_bytes = limit_bytes
        self._refused: dict[int, None] = {}
        self._no_room: dict[int, bool] = {}
        self._followed: dict[int, list[int]] = {}
        for node, followers in enumerate(instructions.network.followers):
            for follower in followers:
                self._followed.setdefault(follower, []).append(node)

    def begin(self, instruction: int) -> None:
        """An instruction begins: those that it follows cannot be recomputed any more."""
        table = self._instructions
        for node in self._followed.get(instruction, ()):
            for leader in (node, *table.copies_of.get(node, ())):
                self._look_again(leader)

    def add(self, instruction: int) -> None:
        """Count with an instruction that has just ended; and with those that waited for its end."""
        for candidate in self._busy:
            self._push(candidate)
        self._busy.clear()
        table = self._instructions
        for buffer in table.reads[instruction]:
            # After a later use there may be room to store what it read.
            if self._no_room.pop(table.maker[buffer], False):
                self._push(table.maker[buffer])
        if not self._can_run_again(instruction) and not self._forms(instruction):
            return
        if any(self._tracker.is_live(buffer) for buffer in table.makes[instruction]):
            self._push(instruction)

    def skip(self, instruction: int) -> None:
        """Never recompute an instruction, nor store what it makes."""
        self._skipped.add(instruction)
        self._look_again(instruction)

    def revive(self, buffer: int) -> None:
        """A buffer that was dead lives again: so does its maker, and what needs it is cheaper."""
        if self._instructions.maker[buffer] >= 0:
            self._push(self._instructions.maker[buffer])
        self._wake(buffer)

    def pick(self) -> Block | None:
        """Take the block of least cost, or `None` if nothing reduces what is in use now."""
        heap = self._heap
        self._allow_more()
        while heap:
            cost, label, instruction = heap[0]
            block = self.evaluate(instruction)
            if block is None:
                heappop(heap)
                if self._is_busy(instruction):
                    self._busy.append(instruction)
            elif block.cost > cost:
                heapreplace(heap, (block.cost, label, instruction))
            else:
                heappop(heap)
                return block
        return None

    def evaluate(self, instruction: int) -> Block | None:
        """What is best done with an instruction's results now, or `None` for nothing."""
        tracker = self._tracker
        if not tracker.is_finished(instruction) or not tracker.released_bytes(instruction):
            return None
        # As in XLA, of equal costs storing comes first.
        found = [self._evaluate_form(instruction, form) for form in self._forms(instruction)]
        found.append(self._evaluate_again(instruction))
        blocks = [block for block in found if block is not None]
        return min(blocks, key=lambda block: block.cost, default=None)

    def _evaluate_form(self, instruction: int, form: Form) -> Block | None:
        """What storing an instruction's result in a form would bring now."""
        tracker = self._tracker
        reduced_bytes = tracker.released_bytes(instruction) - form.size_bytes
        if reduced_bytes <= 0:
            return None
        # XLA only compares both sizes together with the peak.
        past_bytes = tracker.most_while_stored(tracker.last_use(instruction), form.size_bytes)
        if past_bytes > self._allowed_bytes:
            self._refused[instruction] = None
            self._no_room[instruction] = True
            return None
        cost = max(self._limit_bytes, 1) * form.weight // reduced_bytes
        return Block([instruction], reduced_bytes, cost, is_move=False, form=form)

    def _evaluate_again(self, instruction: int) -> Block | None:
        """What making an instruction again would bring now."""
        tracker = self._tracker
        if not self._can_run_again(instruction):
            return None
        members, revived = self._close(instruction)
        reduced_bytes = tracker.memory_reduced(members)
        if reduced_bytes <= 0:
            return None
        if self._past_peak_bytes(revived) > self._allowed_bytes:
            self._refused[instruction] = None
            return None
        is_move = self._is_unread(instruction)
        if is_move and len(members) == 1:
            return Block(members, reduced_bytes, 0, is_move)
        table = self._instructions
        weight = sum(map(table.weight, members))
        cost = max(self._limit_bytes, 1) * weight // reduced_bytes
        return Block(members, reduced_bytes, cost, is_move)

    def _is_unread(self, instruction: int) -> bool:
        made = self._instructions.makes[instruction]
        return not any(self._tracker.has_placed_reader[buffer] for buffer in made)

    def _close(self, instruction: int) -> tuple[list[int], list[int]]:
        """An instruction with those that make its dead operands, and what must live on instead."""
        table, tracker = self._instructions, self._tracker
        members = {instruction: None}
        revived: list[int] = []
        pending = [instruction]
        while pending:
            for buffer in table.reads[pending.pop()]:
                if tracker.is_live(buffer):
                    continue
                self._watchers.setdefault(buffer, []).append(instruction)
                maker = table.maker[buffer]
                if maker in members:
                    continue
                is_full = len(members) >= self._largest_block
                if is_full or maker < 0 or not self._can_run_again(maker, as_operand=True):
                    revived.append(buffer)
                    continue
                members[maker] = None
                pending.append(maker)
        labels = table.line.labels
        return sorted(members, key=labels.__getitem__), revived

    def _past_peak_bytes(self, revived: list[int]) -> int:
        """The most that would have been in use before now if buffers lived on."""
        tracker, size_bytes = self._tracker, self._instructions.size_bytes
        added_bytes = sum(size_bytes[buffer] for buffer in dict.fromkeys(revived))
        most = (tracker.most_while_dead(buffer) for buffer in revived)
        return added_bytes + max(most, default=0)

    def _can_run_again(self, instruction: int, *, as_operand: bool = False) -> bool:
        table, tracker = self._instructions, self._tracker
        if not table.can_run_again(instruction) or table.is_view(instruction):
            return False
        if not self._strategies.recompute and instruction not in table.conversions:
            return False
        if not as_operand and table.made_bytes(instruction) <= self._smallest_bytes:
            return False
        if self._must_stay(instruction):
            return False
        return not any(tracker.placed[follower] for follower in table.followers(instruction))

    def _must_stay(self, instruction: int) -> bool:
        """Whether an instruction's results are to be left as they are."""
        table = self._instructions
        if instruction in self._skipped:
            return True
        return any(table.lasting[b] or table.pinned[b] for b in table.makes[instruction])

    def _forms(self, instruction: int) -> Sequence[Form]:
        """The forms in which an instruction's result can be stored."""
        table = self._instructions
        forms = self._strategies.forms.get(table.origin[instruction], ())
        if not forms or instruction in table.conversions or self._must_stay(instruction):
            return ()
        return forms if table.made_bytes(instruction) > self._smallest_bytes else ()

    def _is_busy(self, instruction: int) -> bool:
        """Whether only the instruction in progress may be in the way."""
        table, tracker = self._instructions, self._tracker
        buffers = (*table.makes[instruction], *table.reads[instruction])
        return any(tracker.is_in_use(buffer) for buffer in buffers)

    def _allow_more(self) -> None:
        """Once the limit is missed, the past may rise to the peak that there was without copies."""
        peak_bytes = self._instructions.network.peak_bytes
        if self._allowed_bytes >= peak_bytes:
            return
        if self._tracker.history.most_since(0) > self._limit_bytes:
            self._allowed_bytes = peak_bytes
            for candidate in self._refused:
                self._push(candidate)
            self._refused.clear()

    def _look_again(self, instruction: int) -> None:
        """An instruction cannot be part of a block any more: other blocks may be cheaper."""
        for buffer in self._instructions.makes[instruction]:
            self._wake(buffer)

    def _wake(self, buffer: int) -> None:
        for candidate in self._watchers.pop(buffer, ()):
            self._push(candidate)

    def _push(self, instruction: int) -> None:
        # What a block costs is computed when it comes to the top.
        heappush(self._heap, (0, self._instructions.line.labels[instruction], instruction))
