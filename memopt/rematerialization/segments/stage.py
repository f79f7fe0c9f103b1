"""A turn in a sequence: what is made before it and read behind it, and what may be recomputed."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.buffer_graph import BufferGraph, simulate
from memopt.rematerialization.dead_code import find_dead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.rematerialization.instructions import Instructions

NEVER = -1
_SHORT = 64
"""What is accessed again within this fraction of the positions does not lie idle."""


class Window(NamedTuple):
    """Neighbouring positions, from the first to the last."""

    first: int
    last: int


class Course:
    """The instructions that run, in their order, and the memory that they use.

    Attributes:
        instructions: What they come from.
        order: The instructions by position; those that nobody needs any more are left out.
        timeline: The memory in use.
        last_read: By buffer: the position of its last reader, or of its maker if nobody reads it.
    """

    def __init__(self, instructions: Instructions) -> None:
        self.instructions = instructions
        dead = frozenset(find_dead(instructions))
        self.order = [number for number in instructions.line if number not in dead]
        self.timeline = simulate(bare_graph(instructions), self.order)
        self.last_read = self.timeline.last_position

    @property
    def peak_bytes(self) -> int:
        """The most in use, what is held included."""
        return self.timeline.peak_bytes

    def find_windows(self, limit_bytes: int) -> list[Window]:
        """Where more than a limit is in use: everywhere, and only around the peak."""
        usage_bytes, peak = self.timeline.usage_bytes, self.timeline.peak_position
        above = [place for place, most in enumerate(usage_bytes) if most > limit_bytes]
        if not above:
            return []
        first = last = peak
        while first > 0 and usage_bytes[first - 1] > limit_bytes:
            first -= 1
        while last + 1 < len(usage_bytes) and usage_bytes[last + 1] > limit_bytes:
            last += 1
        return list(dict.fromkeys((Window(above[0], above[-1]), Window(first, last))))

    def find_turn(self, window: Window) -> int:
        """The position in a window across which the most lies idle; `NEVER` if nothing does.

        A buffer lies idle between two neighbouring accesses, if that is a good part of the window.
        What the forward part of a step makes for the backward part lies idle around the place where
        the one ends and the other begins.
        """
        first, last = window
        idle_bytes = self._idle_bytes((last - first + 1) // _SHORT)
        most = max(idle_bytes[first : last + 1], default=0)
        return idle_bytes.index(most, first) if most else NEVER

    def _idle_bytes(self, shortest: int) -> list[int]:
        """By position: what is there and not accessed for more positions than the shortest."""
        table = self.instructions
        change_bytes = [0] * (len(self.order) + 1)
        accessed = [NEVER] * len(table.size_bytes)
        for position, number in enumerate(self.order):
            for buffer in table.reads[number]:
                since = accessed[buffer]
                is_idle = since != NEVER and position - since > shortest
                if is_idle and not table.lasting[buffer]:
                    change_bytes[since + 1] += table.size_bytes[buffer]
                    change_bytes[position] -= table.size_bytes[buffer]
                accessed[buffer] = position if since != NEVER else NEVER
            for buffer in table.makes[number]:
                accessed[buffer] = position
        return list(accumulate(change_bytes[:-1]))


def bare_graph(instructions: Instructions) -> BufferGraph:
    """What `simulate` needs of instructions, without their names and who waits for whom."""
    table = instructions
    return BufferGraph(
        nodes=(),
        producers=[],
        made=table.makes,
        read=table.reads,
        size_bytes=table.size_bytes,
        scratch_bytes=[table.scratch_bytes(number) for number in range(len(table.origin))],
        lasting=table.lasting,
        reusable=table.reusable,
    )


class Stage:
    """What a course does up to a turn, by position, as far as it matters behind the turn.

    Attributes:
        course: The course.
        turn: The last position before the turn.
        sources: The positions of those that make what is read, without what lasts.
        made_bytes: What is made, without what lasts.
        saved_bytes: What of it is read behind the turn.
        last_read: The last position up to the turn at which something of it is read.
        needed_at: The first position behind the turn at which something of it is read; `NEVER`.
        weights: What running it again costs.
        unit_weights: What running it again costs together with what it takes the memory over from.
        movable: Whether it may be recomputed behind the turn.
    """

    def __init__(self, course: Course, turn: int, smallest_bytes: int) -> None:
        table = course.instructions
        self.course = course
        self.turn = turn
        order = course.order[: turn + 1]
        self._place = [NEVER] * len(table.origin)
        for position, number in enumerate(order):
            self._place[number] = position
        network = table.network
        self.weights = [network.weights[table.origin[number]] for number in order]
        self.made_bytes = [self._made(number) for number in order]
        self.sources = [self._sources(number) for number in order]
        self._find_reads()
        self.movable = [self._can_move(number) for number in order]
        self._keep_what_is_shown_together()
        self._keep_what_holds_more()
        self._keep_small(smallest_bytes)
        self.unit_weights = self._find_unit_weights()

    @property
    def total_saved_bytes(self) -> int:
        """All that is made before the turn and read behind it."""
        return sum(self.saved_bytes)

    def maker_position(self, buffer: int) -> int:
        """Where a buffer is made, if that is before the turn; else `NEVER`."""
        maker = self.course.instructions.maker[buffer]
        return self._place[maker] if maker >= 0 else NEVER

    def _made(self, number: int) -> int:
        table = self.course.instructions
        return sum(table.size_bytes[b] for b in table.makes[number] if not table.lasting[b])

    def _sources(self, number: int) -> list[int]:
        table = self.course.instructions
        found = dict.fromkeys(
            self.maker_position(b) for b in table.reads[number] if not table.lasting[b]
        )
        return [position for position in found if position != NEVER]

    def _find_reads(self) -> None:
        """When what is made is read, before the turn and behind it."""
        table, order = self.course.instructions, self.course.order
        self.last_read = list(range(self.turn + 1))
        self.needed_at = [NEVER] * (self.turn + 1)
        self.saved_bytes = [0] * (self.turn + 1)
        for position, sources in enumerate(self.sources):
            for source in sources:
                self.last_read[source] = position
        seen: set[int] = set()
        for position in range(self.turn + 1, len(order)):
            for buffer in table.reads[order[position]]:
                maker = self.maker_position(buffer)
                if maker == NEVER or table.lasting[buffer] or buffer in seen:
                    continue
                seen.add(buffer)
                self.saved_bytes[maker] += table.size_bytes[buffer]
                if self.needed_at[maker] == NEVER:
                    self.needed_at[maker] = position

    def _can_move(self, number: int) -> bool:
        table = self.course.instructions
        made = table.makes[number]
        if not made or not table.network.recomputable[table.origin[number]]:
            return False
        if any(table.pinned[buffer] or table.lasting[buffer] for buffer in made):
            return False
        return not any(self._place[after] != NEVER for after in table.followers(number))

    def _keep_what_is_shown_together(self) -> None:
        """Keep what a view hands on beside something else: a copy of the view needs all of it."""
        handed_on = self.course.instructions.handed_on
        for number in self.course.order[: self.turn + 1]:
            if len(handed_on[number]) > 1:
                for buffer in handed_on[number]:
                    if self.maker_position(buffer) != NEVER:
                        self.movable[self.maker_position(buffer)] = False

    def _keep_what_holds_more(self) -> None:
        """Keep what would have to keep at least as much, which may not be recomputed, instead."""
        for position, sources in enumerate(self.sources):
            held_bytes = sum(
                self.made_bytes[source]
                for source in sources
                if not self.movable[source] and not self.saved_bytes[source]
            )
            if held_bytes and held_bytes >= self.made_bytes[position]:
                self.movable[position] = False

    def _keep_small(self, smallest_bytes: int) -> None:
        """Keep the smallest of all that is saved: in all a hundredth, and what is too small."""
        saved = sorted(
            (size_bytes, position)
            for position, size_bytes in enumerate(self.saved_bytes)
            if size_bytes and self.movable[position]
        )
        left_bytes = self.total_saved_bytes // 100
        for size_bytes, position in saved:
            left_bytes -= size_bytes
            if left_bytes < 0 and self.made_bytes[position] > smallest_bytes:
                break
            self.movable[position] = False

    def _find_unit_weights(self) -> list[int]:
        """What takes over memory of something that is not saved is recomputed with that."""
        table, order = self.course.instructions, self.course.order
        reused = self.course.timeline.reused
        weights = list(self.weights)
        for position in range(self.turn + 1):
            for buffer in table.makes[order[position]]:
                source = self.maker_position(reused[buffer]) if buffer in reused else NEVER
                if source != NEVER and not self.saved_bytes[source] and self.movable[source]:
                    weights[position] += weights[source]
        return weights


def prefix_sums(values: Sequence[int]) -> list[int]:
    """The sums of the first 0, 1, 2, ... values."""
    return list(accumulate(values, initial=0))


def before_bytes(timeline: MemoryTimeline) -> list[int]:
    """By position: what is in use just before that instruction."""
    change_bytes = [0] * (len(timeline.usage_bytes) + 1)
    for event in timeline.events():
        sign = 1 if event.kind == "allocate" else -1
        change_bytes[event.position + 1] += sign * event.size_bytes
    return list(accumulate(change_bytes[:-1], initial=timeline.held_bytes))[1:]
