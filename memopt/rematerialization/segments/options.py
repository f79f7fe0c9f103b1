"""What each segment between two cuts takes: kept bytes, bytes while it is recomputed, and work."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from memopt.rematerialization.segments.stage import before_bytes, prefix_sums

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.rematerialization.segments.levels import Level
    from memopt.rematerialization.segments.stage import Stage

_MOST_CHUNKS = 1024
"""The part behind the turn is looked at in so many pieces."""


class Option(NamedTuple):
    """One way to treat the segment between two cuts.

    Attributes:
        start: Index of the cut that it comes after.
        level: Rank of the level.
        kept_bytes: What it keeps to the turn and beyond.
        need_bytes: The most in use while it is recomputed and read, without what earlier
            segments keep.
        weight: What recomputing it costs.
        nested: Whether that is only so if its first part is recomputed once more, after the rest
            was read.
    """

    start: int
    level: int
    kept_bytes: int
    need_bytes: int
    weight: int
    nested: bool = False


def find_options(stage: Stage, levels: Sequence[Level], cuts: Sequence[int]) -> list[list[Option]]:
    """By cut: the ways to treat what lies between an earlier cut and this one.

    They are estimates, in most cases above what is simulated: what is recomputed counts as all
    there at the same time, and what an earlier segment hands over counts as kept in any case.

    Quadratic in the number of cuts, linear in nodes and edges.
    """
    tables = [_Table(stage, level, cuts) for level in levels]
    behind = _Behind(stage, cuts)
    options: list[list[Option]] = [[] for _ in cuts]
    for start in range(len(cuts) - 1):
        behind.leave_out(start)
        options[start + 1].append(tables[0].keep(start, behind))
        for table in tables[1:]:
            for end, option in table.recompute(start, behind):
                options[end].append(option)
    return options


def find_nested(options: Sequence[Sequence[Option]]) -> list[list[Option]]:
    """The same options, and for each segment recomputed as a whole: in two parts, if that is less.

    First all of it is recomputed, and the first part given up but for what the second needs; when
    that has been read, the first part comes once more. Cubic in the number of cuts.
    """
    top = max((option.level for found in options for option in found), default=0)
    by_start = [
        {option.start: option for option in found if top and option.level == top}
        for found in options
    ]
    result = [list(found) for found in options]
    for end, found in enumerate(by_start):
        for start, whole in found.items():
            best = whole
            for middle in range(start + 1, end):
                first, second = by_start[middle].get(start), found.get(middle)
                if first is None or second is None:
                    continue
                need_bytes = max(first.need_bytes, first.kept_bytes + second.need_bytes)
                if need_bytes < best.need_bytes:
                    best = whole._replace(
                        need_bytes=need_bytes, weight=whole.weight + first.weight, nested=True
                    )
            if best is not whole:
                result[end].append(best)
    return result


class _Behind:
    """The part behind the turn, without what was saved before some cut."""

    def __init__(self, stage: Stage, cuts: Sequence[int]) -> None:
        self._turn = stage.turn
        timeline = stage.course.timeline
        self._before_bytes = before_bytes(timeline)
        usage_bytes = timeline.usage_bytes[stage.turn + 1 :]
        self._size = -(-len(usage_bytes) // _MOST_CHUNKS) or 1
        self._most = [
            max(usage_bytes[first : first + self._size])
            for first in range(0, len(usage_bytes), self._size)
        ]
        self._alive = self._find_alive(stage, cuts)
        self._suffix: list[int] = []

    def leave_out(self, cut: int) -> None:
        """From now on: without what was saved before that cut."""
        rest = (most - alive for most, alive in zip(self._most, self._alive[cut], strict=True))
        self._suffix = list(accumulate(reversed(list(rest)), max))[::-1]

    def most_since(self, position: int) -> int:
        """The most in use at a position or behind it."""
        chunk = (position - self._turn - 1) // self._size
        return self._suffix[chunk] if chunk < len(self._suffix) else 0

    def base_bytes(self, position: int, cut: int) -> int:
        """In use just before a position, without what was saved before a cut."""
        chunk = (position - self._turn - 1) // self._size
        return self._before_bytes[position] - self._alive[cut][chunk]

    def _find_alive(self, stage: Stage, cuts: Sequence[int]) -> list[list[int]]:
        """By cut, by chunk: what was saved before the cut and is there to the chunk's end."""
        table, order = stage.course.instructions, stage.course.order
        last_read = stage.course.last_read
        rows = [[0] * len(self._most)]
        for first, last in pairwise(cuts):
            change = [0] * (len(self._most) + 1)
            for position in range(first + 1, last + 1):
                for buffer in table.makes[order[position]]:
                    if table.lasting[buffer] or last_read[buffer] <= stage.turn:
                        continue
                    chunk = (last_read[buffer] - stage.turn - 1) // self._size
                    change[0] += table.size_bytes[buffer]
                    change[chunk] -= table.size_bytes[buffer]
            row = accumulate(change[:-1])
            rows.append([old + new for old, new in zip(rows[-1], row, strict=True)])
        return rows


class _Table:
    """The sums of one level over the blocks between neighbouring cuts."""

    def __init__(self, stage: Stage, level: Level, cuts: Sequence[int]) -> None:
        self._rank = level.rank
        self._count = len(cuts)
        self._never = len(stage.course.order)
        self._first_behind = stage.turn + 1
        spent = [w if a else 0 for w, a in zip(stage.weights, level.again, strict=True)]
        self._weight = _at_cuts(spent, cuts)
        self._kept_bytes = _at_cuts(level.kept_bytes, cuts)
        self._dropped_bytes = _at_cuts(level.dropped_bytes, cuts)
        self._crossing = _find_crossing(stage, level, cuts)
        self._most_bytes = _find_most(stage, level, cuts)
        self._needed_at = [self._never] * (len(cuts) - 1)
        for block, first, last in _blocks(cuts):
            for position in range(first, last):
                if level.again[position] and stage.saved_bytes[position]:
                    at = stage.needed_at[position]
                    self._needed_at[block] = min(self._needed_at[block], at)

    def keep(self, start: int, behind: _Behind) -> Option:
        """To keep all that is saved in the block after a cut."""
        kept_bytes = self._kept_bytes[start + 1] - self._kept_bytes[start]
        need_bytes = max(
            self._most_bytes[start] + kept_bytes, behind.most_since(self._first_behind)
        )
        return Option(start, self._rank, kept_bytes, need_bytes, 0)

    def recompute(self, start: int, behind: _Behind) -> Iterator[tuple[int, Option]]:
        """To make the segment between a cut and each one behind it again."""
        anchor, most_bytes = self._never, 0
        for end in range(start + 1, self._count):
            anchor = min(anchor, self._needed_at[end - 1])
            dropped_bytes = self._dropped_bytes[end - 1] - self._dropped_bytes[start]
            most_bytes = max(most_bytes, dropped_bytes + self._most_bytes[end - 1])
            if anchor == self._never:
                continue
            kept_bytes = self._kept_bytes[end] - self._kept_bytes[start]
            crossing_bytes, crossing_weight = self._crossing[end][start]
            need_bytes = behind.most_since(anchor)
            if end == self._count - 1:
                need_bytes = behind.most_since(self._first_behind)
            again_bytes = behind.base_bytes(anchor, end) + kept_bytes + most_bytes
            yield (
                end,
                Option(
                    start,
                    self._rank,
                    kept_bytes + crossing_bytes,
                    max(need_bytes, again_bytes),
                    max(self._weight[end] - self._weight[start] - crossing_weight, 0),
                ),
            )


def _blocks(cuts: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Each block's number, first position, and the one behind its last."""
    for block in range(len(cuts) - 1):
        yield block, cuts[block] + 1, cuts[block + 1] + 1


def _at_cuts(values: Sequence[int], cuts: Sequence[int]) -> list[int]:
    """By cut: the sum of all before it."""
    sums = prefix_sums(values)
    return [sums[cut + 1] for cut in cuts]


def _find_most(stage: Stage, level: Level, cuts: Sequence[int]) -> list[int]:
    """By block: the most in use while it is recomputed, without what was there before it."""
    table, order = stage.course.instructions, stage.course.order
    usage_bytes = stage.course.timeline.usage_bytes
    most: list[int] = []
    saved_bytes = 0
    lasting_bytes = stage.course.timeline.held_bytes
    for _, first, last in _blocks(cuts):
        most.append(0)
        dropped_bytes = 0
        for position in range(first, last):
            made = table.makes[order[position]]
            lasting_bytes += sum(table.size_bytes[b] for b in made if table.lasting[b])
            saved_bytes += stage.saved_bytes[position]
            dropped_bytes += level.dropped_bytes[position]
            rest_bytes = usage_bytes[position] - saved_bytes - lasting_bytes
            most[-1] = max(most[-1], rest_bytes + dropped_bytes)
    return most


def _find_crossing(stage: Stage, level: Level, cuts: Sequence[int]) -> list[list[tuple[int, int]]]:
    """By the cut at a segment's end, by that at its start: what has to be kept on top.

    That is what is read between the end and the turn: its bytes, and what they would have cost.
    """
    by_end: list[list[list[int]]] = [[[0, 0] for _ in range(end + 1)] for end in range(len(cuts))]
    for block, first, last in _blocks(cuts):
        for position in range(first, last):
            end = block + 1
            if level.kept_bytes[position] or not stage.made_bytes[position]:
                continue
            while end < len(cuts) and cuts[end] < stage.last_read[position]:
                by_end[end][block][0] += stage.made_bytes[position]
                by_end[end][block][1] += stage.weights[position] if level.again[position] else 0
                end += 1
    return [
        [
            (size_bytes, weight)
            for size_bytes, weight in zip(
                *(accumulate(reversed([b[n] for b in row])) for n in (0, 1)), strict=True
            )
        ][::-1]
        for row in by_end
    ]
