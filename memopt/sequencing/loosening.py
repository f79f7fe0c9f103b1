"""Loosens a sequence: what threads would run sooner is pulled forward, within a limit of memory.

The orders that need least memory put off what can wait, such as the gradients of weights, until
nothing else is left: then one thread has a chain to follow and the others have nothing to do. Where
there is room it can be done at once. Windows alone do not help, since what is put off is far away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.sequencing.precedence import Precedence

    Bytes = npt.NDArray[np.int64]

_FURTHEST = 16_384
"""So many places forward an operation is pulled at most, which keeps this near linear."""
_TRIES = 8
"""So many of the operations that are wanted next are looked at, if there is no room for some."""
_GONE = -(1 << 60)


def loosen(
    timeline: MemoryTimeline, precedence: Precedence, wanted: Sequence[int], limit_bytes: int
) -> list[int]:
    """A sequence that is nearer to another one, and needs no more than a limit one by one.

    At each place runs what the other sequence has next, if it may run and leaves room for the rest
    of the given sequence; else what the given sequence has next. What oneDNN may fuse stays side by
    side. Near linear in nodes.

    Args:
        timeline: The sequence, with its memory, which keeps the limit.
        precedence: What must come before what.
        wanted: The same nodes in the order that threads prefer.
        limit_bytes: What may be in use.
    """
    return _Loosening(timeline, precedence, limit_bytes).run(wanted)


class _Loosening:
    """The sequence as far as it has been made anew, and what is left of the old one."""

    def __init__(self, timeline: MemoryTimeline, precedence: Precedence, limit_bytes: int) -> None:
        self._timeline = timeline
        self._graph = timeline.buffer_graph
        self._users = precedence.users
        self._limit_bytes = limit_bytes
        self._old = timeline.sequence
        self._place = {node: place for place, node in enumerate(self._old)}
        self._waiting = [len(producers) for producers in precedence.producers]
        self._usage: Bytes = np.array(timeline.usage_bytes, np.int64)
        self._last = list(timeline.last_position)
        self._readers: dict[int, list[int]] = {}
        for place, node in enumerate(self._old):
            for buffer in {*self._graph.read[node]}:
                self._readers.setdefault(buffer, []).append(place)
        pairs = self._graph.fused_pairs
        follows = zip(self._old, self._old[1:], strict=False)
        self._second = {first: second for first, second in follows if pairs.get(first) == second}
        self._is_second = {*self._second.values()}
        self._is_done = [False] * len(self._old)
        self._new: list[int] = []

    def run(self, wanted: Sequence[int]) -> list[int]:
        """Make the sequence anew."""
        place = next_wanted = 0
        while place < len(self._old):
            if self._is_done[place]:
                place += 1
                continue
            while self._is_done[self._place[wanted[next_wanted]]]:
                next_wanted += 1
            for unit in self._candidates(wanted, next_wanted):
                if unit[0] == self._old[place] or self._pull(unit, place):
                    self._do(unit)
                    break
            else:
                self._do(self._unit(self._old[place]))
        return self._new

    def _unit(self, node: int) -> list[int]:
        return [node, self._second[node]] if node in self._second else [node]

    def _candidates(self, wanted: Sequence[int], start: int) -> Iterator[list[int]]:
        """What is wanted next and may run."""
        tries = 0
        for node in wanted[start : start + 4 * _TRIES]:
            if self._is_done[self._place[node]] or node in self._is_second:
                continue
            tries += 1
            if not self._waiting[node] and self._may_follow(node):
                yield self._unit(node)
            if tries == _TRIES:
                return

    def _may_follow(self, node: int) -> bool:
        """Whether the second of a pair, if this is a first, waits for the first only."""
        second = self._second.get(node)
        return second is None or self._waiting[second] == (second in self._users[node])

    def _do(self, unit: Sequence[int]) -> None:
        for node in unit:
            self._usage[self._place[node]] = _GONE
            self._is_done[self._place[node]] = True
            self._new.append(node)
            for user in self._users[node]:
                self._waiting[user] -= 1

    def _pull(self, unit: Sequence[int], to: int) -> bool:
        """Let operations run before a place already, if that leaves room for what is between."""
        end = self._place[unit[-1]]
        if end - to > _FURTHEST:
            return False
        usage = self._usage[to : end + 1].copy()
        last: dict[int, int] = {}
        for node in unit:
            if not self._fits(node, usage, to, last):
                return False
            self._usage_after(node, usage, to, last)
        if usage.max() > self._limit_bytes:
            return False
        self._usage[to : end + 1] = usage
        for buffer, place in last.items():
            self._last[buffer] = place
        return True

    def _fits(self, node: int, usage: Bytes, to: int, last: dict[int, int]) -> bool:
        """Whether a node has room to run before a place."""
        graph = self._graph
        in_use_bytes = int(usage[0]) - self._allocated_bytes(self._old[to])
        made = sum(
            graph.size_bytes[buffer]
            for buffer in graph.made[node]
            if not self._takes_over(buffer, node, to, last)
        )
        return in_use_bytes + made + graph.scratch_bytes[node] <= self._limit_bytes

    def _allocated_bytes(self, node: int) -> int:
        """What a node of the old sequence takes in its place, over what is in use before."""
        graph, reused = self._graph, self._timeline.reused
        made = (buffer for buffer in graph.made[node] if buffer not in reused)
        return sum(graph.size_bytes[buffer] for buffer in made) + graph.scratch_bytes[node]

    def _takes_over(self, buffer: int, node: int, to: int, last: dict[int, int]) -> bool:
        source = self._timeline.reused.get(buffer)
        return source is not None and self._last_of(source, node, to, last) < to

    def _usage_after(self, node: int, usage: Bytes, to: int, last: dict[int, int]) -> None:
        """Change what is in use from a place on, if a node runs before that and not in its own."""
        graph, place = self._graph, self._place[node]
        taken = set()
        for buffer in graph.made[node]:
            if self._takes_over(buffer, node, to, last):
                taken.add(self._timeline.reused[buffer])
            elif self._last[buffer] != place or graph.lasting[buffer]:
                usage[: place - to] += graph.size_bytes[buffer]
        for buffer in {*graph.read[node]}:
            if last.get(buffer, self._last[buffer]) != place or graph.lasting[buffer]:
                continue
            last[buffer] = self._last_of(buffer, node, to, last)
            if buffer not in taken:
                usage[last[buffer] + 1 - to : place - to] -= graph.size_bytes[buffer]
        usage[place - to] = _GONE

    def _last_of(self, buffer: int, node: int, to: int, last: dict[int, int]) -> int:
        """The place of the last reader of a buffer without a node; the one before if none is."""
        own = self._place[node]
        if last.get(buffer, self._last[buffer]) != own:
            return max(to, last.get(buffer, self._last[buffer]))
        for place in reversed(self._readers.get(buffer, ())):
            # The first of a pair that is pulled together with its second runs before it.
            if (
                not self._is_done[place]
                and place != own
                and self._second.get(self._old[place]) != node
            ):
                return place
        return to - 1
