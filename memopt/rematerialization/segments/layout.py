"""Where what is dropped at a turn is recomputed, and how much memory that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.buffer_graph import BufferGraph, simulate
from memopt.rematerialization.segments.stage import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.rematerialization.segments.stage import Stage, Window


class Group(NamedTuple):
    """What is recomputed at one place.

    Attributes:
        anchor: The position before which it is.
        members: The positions of the originals, in order.
    """

    anchor: int
    members: list[int]


class Layout(NamedTuple):
    """Everything that is recomputed, each thing once.

    Attributes:
        groups: In order.
        weight: What it costs, in the unit of `Network.weights`.
        late: Positions of what cannot be recomputed so late, since a follower comes before.
    """

    groups: list[Group]
    weight: int
    late: list[int]


def lay_out(stage: Stage, dropped: Sequence[bool]) -> Layout:
    """Recompute what is dropped just before it is first read behind the turn.

    Together with it comes what it needs and is dropped too. Linear.

    Args:
        stage: The turn.
        dropped: By position up to the turn: whether it is not to be kept.
    """
    table, order = stage.course.instructions, stage.course.order
    place = {number: position for position, number in enumerate(order)}
    groups: list[Group] = []
    late: list[int] = []
    done = [not drop for drop in dropped]
    for position in range(stage.turn + 1, len(order)):
        members: list[int] = []
        for buffer in table.reads[order[position]]:
            maker = stage.maker_position(buffer)
            if maker != NEVER and not done[maker]:
                members += _gather(stage, maker, done)
        if not members:
            continue
        members.sort()
        groups.append(Group(position, members))
        late += (
            member
            for member in members
            if any(
                place.get(after, position) < position for after in table.followers(order[member])
            )
        )
    weight = sum(stage.weights[member] for group in groups for member in group.members)
    return Layout(groups, weight, late)


def _gather(stage: Stage, start: int, done: list[bool]) -> list[int]:
    """Something dropped and all dropped things that it needs, which are done with that."""
    done[start] = True
    members = [start]
    for member in members:
        for source in stage.sources[member]:
            if not done[source]:
                done[source] = True
                members.append(source)
    return members


class Outlook(NamedTuple):
    """The memory that a layout takes.

    Attributes:
        usage_bytes: By number in the new sequence.
        positions: By number in the new sequence: the position of what was there before, `NEVER`
            for a copy.
        worst: The number in the new sequence at which the most is in use, but for what is another
            matter: what was above the limit outside of the window and is not more now.
        peak_bytes: What is in use there.
    """

    usage_bytes: list[int]
    positions: list[int]
    worst: int
    peak_bytes: int


def follow(stage: Stage, layout: Layout, limit_bytes: int, window: Window) -> Outlook:
    """The memory that a layout takes, copies of views left out; linear.

    Args:
        stage: The turn.
        layout: What is recomputed where.
        limit_bytes: What may be in use.
        window: Where the limit is to be kept.
    """
    usage_bytes, positions = _Following(stage).follow(layout)
    before_bytes = stage.course.timeline.usage_bytes
    worst = peak_bytes = 0
    for index, position in enumerate(positions):
        now_bytes = usage_bytes[index]
        if now_bytes <= peak_bytes:
            continue
        is_other = position != NEVER and not window.first <= position <= window.last
        if is_other and limit_bytes < before_bytes[position] >= now_bytes:
            continue
        worst, peak_bytes = index, now_bytes
    return Outlook(usage_bytes, positions, worst, peak_bytes)


class _Following:
    """Instructions with the copies of a layout, in numbers of their own."""

    def __init__(self, stage: Stage) -> None:
        table = stage.course.instructions
        self._table = table
        self._turn = stage.turn
        self._order = stage.course.order
        self._read, self._made = list(table.reads), list(table.makes)
        self._size_bytes, self._reusable = list(table.size_bytes), list(table.reusable)
        self._scratch_bytes = [table.scratch_bytes(number) for number in range(len(table.origin))]
        self._copy_of: dict[int, int] = {}

    def follow(self, layout: Layout) -> tuple[list[int], list[int]]:
        """By number in the new sequence: bytes in use, and the position before."""
        table, order = self._table, self._order
        start = self._turn + 1
        sequence = order[:start]
        positions = list(range(start))
        for anchor, members in (*layout.groups, Group(len(order), [])):
            for number in order[start:anchor]:
                self._redirect(number)
            sequence += order[start:anchor]
            positions += range(start, anchor)
            start = anchor
            for member in members:
                sequence.append(len(self._read))
                positions.append(NEVER)
                self._copy(order[member])
        extra = len(self._size_bytes) - len(table.size_bytes)
        graph = BufferGraph(
            nodes=(),
            producers=[],
            made=self._made,
            read=self._read,
            size_bytes=self._size_bytes,
            scratch_bytes=self._scratch_bytes,
            lasting=table.lasting + [False] * extra,
            reusable=self._reusable,
        )
        return simulate(graph, sequence).usage_bytes, positions

    def _redirect(self, number: int) -> None:
        """Let an instruction read the copies that there are by now."""
        if not any(buffer in self._copy_of for buffer in self._read[number]):
            return
        self._read[number] = self._replace(self._read[number])
        for buffer in self._made[number]:
            self._reusable[buffer] = self._replace(self._reusable[buffer])

    def _copy(self, number: int) -> None:
        table = self._table
        self._read.append(self._replace(table.reads[number]))
        self._scratch_bytes.append(table.scratch_bytes(number))
        for buffer in table.makes[number]:
            self._copy_of[buffer] = len(self._size_bytes)
            self._size_bytes.append(table.size_bytes[buffer])
            self._reusable.append(self._replace(table.reusable[buffer]))
        self._made.append([self._copy_of[buffer] for buffer in table.makes[number]])

    def _replace(self, buffers: Sequence[int]) -> list[int]:
        return [self._copy_of.get(buffer, buffer) for buffer in buffers]
