"""TensorFlow's allocator with a limit: whether a step finds room for every tensor when it asks."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.costs.buffer_graph import BufferGraph, MemoryTimeline

_UNIT_BYTES = 256
_FIRST_REGION_BYTES = 2 << 20
_LARGEST_REST_BYTES = 128 << 20
"""A rest that is no less is split off in any case."""
_HANDLE_BYTES = 200
"""What TensorFlow keeps for each variable beside its value."""
_VARIABLE_OPS = ("ReadVariableOp", "Assign", "ResourceApply")


class _Chunk:
    """A part of a region, free or in use, between its neighbours."""

    __slots__ = ("after", "before", "is_free", "place", "size_bytes")

    def __init__(self, place: int, size_bytes: int) -> None:
        self.place = place
        self.size_bytes = size_bytes
        self.is_free = True
        self.before: _Chunk | None = None
        self.after: _Chunk | None = None


class BestFit:
    """Best fit with coalescing (`BFCAllocator` in tensorflow/core/framework/bfc_allocator.cc).

    Memory comes in regions, each twice as large as the last, until the limit; nothing reaches over
    the end of one. What is asked for gets the smallest chunk that is large enough, the rest of
    which is split off only if it is as large again: so memory can run out long before the sum of
    what was asked for reaches the limit.

    Args:
        limit_bytes: The most that all regions have together.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._taken_bytes = 0
        self._lowest_place = 0
        self._next_region_bytes = min(_FIRST_REGION_BYTES, _rounded(limit_bytes))
        self._free: list[tuple[float, float]] = []
        self._chunks: dict[int, _Chunk] = {}

    def allocate(self, size_bytes: int) -> int | None:
        """The place of memory of a size, to give back; `None` if there is no room."""
        needed_bytes = _rounded(size_bytes)
        chunk = self._find(needed_bytes)
        if chunk is None and self._extend(needed_bytes):
            chunk = self._find(needed_bytes)
        if chunk is None:
            return None
        rest_bytes = chunk.size_bytes - needed_bytes
        if rest_bytes >= min(needed_bytes, _LARGEST_REST_BYTES):
            self._split(chunk, needed_bytes)
        chunk.is_free = False
        return chunk.place

    @property
    def largest_bytes(self) -> int:
        """The most that can be had in one piece."""
        return max(int(self._free[-1][0]) if self._free else 0, self._left_bytes)

    def free(self, place: int) -> None:
        """Give memory back."""
        chunk = self._chunks[place]
        after, before = chunk.after, chunk.before
        if after is not None and after.is_free:
            self._remove(after)
            self._merge(chunk, after)
        if before is not None and before.is_free:
            self._remove(before)
            self._merge(before, chunk)
            chunk = before
        chunk.is_free = True
        insort(self._free, (chunk.size_bytes, chunk.place))

    @property
    def _left_bytes(self) -> int:
        """What no region has taken yet."""
        return (self._limit_bytes - self._taken_bytes) // _UNIT_BYTES * _UNIT_BYTES

    def _find(self, needed_bytes: int) -> _Chunk | None:
        """Take the smallest free chunk that is large enough, of equal ones the first in memory."""
        position = bisect_left(self._free, (needed_bytes, -math.inf))
        if position == len(self._free):
            return None
        return self._chunks[int(self._free.pop(position)[1])]

    def _extend(self, needed_bytes: int) -> bool:
        left_bytes = self._left_bytes
        if needed_bytes > left_bytes:
            return False
        grown = False
        while needed_bytes > self._next_region_bytes:
            self._next_region_bytes *= 2
            grown = True
        size_bytes = min(self._next_region_bytes, left_bytes)
        if not grown:
            self._next_region_bytes *= 2
        # The system maps each region below the last; a unit between them keeps them apart.
        self._lowest_place -= size_bytes + _UNIT_BYTES
        place = self._lowest_place
        self._taken_bytes += size_bytes
        self._chunks[place] = _Chunk(place, size_bytes)
        insort(self._free, (size_bytes, place))
        return True

    def _split(self, chunk: _Chunk, size_bytes: int) -> None:
        rest = _Chunk(chunk.place + size_bytes, chunk.size_bytes - size_bytes)
        rest.before, rest.after = chunk, chunk.after
        if rest.after is not None:
            rest.after.before = rest
        chunk.after, chunk.size_bytes = rest, size_bytes
        self._chunks[rest.place] = rest
        insort(self._free, (rest.size_bytes, rest.place))

    def _merge(self, chunk: _Chunk, after: _Chunk) -> None:
        chunk.size_bytes += after.size_bytes
        chunk.after = after.after
        if after.after is not None:
            after.after.before = chunk
        del self._chunks[after.place]

    def _remove(self, chunk: _Chunk) -> None:
        position = bisect_left(self._free, (chunk.size_bytes, chunk.place))
        del self._free[position]


def _rounded(size_bytes: int) -> int:
    return max(-(-size_bytes // _UNIT_BYTES), 1) * _UNIT_BYTES


def has_room(timeline: MemoryTimeline, limit_bytes: int, spare_bytes: int = 0) -> bool:
    """Whether every operation of a step finds room when it asks for it.

    What is held lies as a process leaves it that puts variables and inputs there first, and then
    runs the step: `step_process` does. In another process there are other holes.

    Args:
        timeline: The step, in the order in which it runs.
        limit_bytes: What the allocator may hand out.
        spare_bytes: What is to be left in one piece at any moment: small tensors, which are made
            in another order in each run, may fill the holes that are predicted for them.
    """
    allocator = BestFit(limit_bytes)
    graph = timeline.buffer_graph
    places: dict[int, int] = {}
    for buffer in _held(graph):
        place = allocator.allocate(graph.size_bytes[buffer])
        if place is None or allocator.allocate(_HANDLE_BYTES) is None:
            return False
        places[buffer] = place
    for _, kind, buffer, size_bytes in timeline.events():
        if kind == "free":
            allocator.free(places.pop(_first_owner(buffer, places, timeline)))
            continue
        place = allocator.allocate(size_bytes)
        if place is None or allocator.largest_bytes < spare_bytes:
            return False
        places[buffer] = place
    return True


def least_limit_bytes(timeline: MemoryTimeline, spare_bytes: int = 0) -> int:
    """About the lowest limit under which a step finds room, to 1/64; see `has_room`."""
    low, high = timeline.peak_bytes, max(2 * timeline.peak_bytes, _FIRST_REGION_BYTES)
    while not has_room(timeline, high, spare_bytes):
        low, high = high, 2 * high
    while high - low > high // 64:
        middle = (low + high) // 2
        if has_room(timeline, middle, spare_bytes):
            high = middle
        else:
            low = middle
    return high


def _first_owner(buffer: int, places: Mapping[int, int], timeline: MemoryTimeline) -> int:
    """The buffer that the memory of another was handed out for, before it was handed on."""
    while buffer not in places:
        buffer = timeline.reused[buffer]
    return buffer


def _held(graph: BufferGraph) -> list[int]:
    """What is there before the step, in the order in which it is put there: variables first."""
    made = {buffer for buffers in graph.made for buffer in buffers}
    variables = {
        buffer
        for node, buffers in zip(graph.nodes, graph.read, strict=True)
        if node.op.startswith(_VARIABLE_OPS)
        for buffer in buffers
    }
    held = [b for b, size_bytes in enumerate(graph.size_bytes) if size_bytes and b not in made]
    return sorted(held, key=lambda buffer: buffer not in variables)
