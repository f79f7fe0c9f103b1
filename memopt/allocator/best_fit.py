"""Best fit with coalescing, as TensorFlow's allocator hands out memory: chunks in flat arrays.

`BFCAllocator` in tensorflow/core/framework/bfc_allocator.cc. Memory comes in regions, each twice as
large as the last, until the limit; nothing reaches over the end of one. What is asked for gets the
smallest chunk that is large enough, the rest of which is split off only if it is as large again: so
memory can run out long before the sum of what was asked for reaches the limit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memopt.compilation.jit import compiled

IntArray = npt.NDArray[np.int64]

UNIT_BYTES = 256
FIRST_REGION_BYTES = 2 << 20
_LARGEST_REST_BYTES = 128 << 20
"""A rest that is no less is split off in any case."""
LIMIT, TAKEN, LOWEST_PLACE, NEXT_REGION, CHUNKS, FREE, UNUSED = range(7)
"""Places in `Memory.numbers`: the most that all regions have together; what they have; the place of
the last one; the size of the next; how many chunks there ever were, are free, are numbers that are
not in use any more."""
_REGIONS = 64
"""More than there can be: each is twice as large as the last."""


class Memory(NamedTuple):
    """The chunks of all regions, by number. All arrays hold 64-bit integers.

    Attributes:
        place: Where each begins.
        size: Its bytes.
        is_free: 1 if it is.
        before: Its neighbour in the region, -1 if it is the first.
        after: Likewise, -1 if it is the last.
        free: Those that are free, by size and then place.
        unused: Numbers that no chunk has any more.
        numbers: Single numbers, by the places above.
    """

    place: IntArray
    size: IntArray
    is_free: IntArray
    before: IntArray
    after: IntArray
    free: IntArray
    unused: IntArray
    numbers: IntArray


def new_memory(limit_bytes: int, most_in_use: int) -> Memory:
    """No region yet.

    Args:
        limit_bytes: The most that all regions have together.
        most_in_use: How many chunks may be in use at once.
    """
    # Between two in use there is at most one that is free.
    capacity = 2 * most_in_use + _REGIONS
    numbers = np.zeros(UNUSED + 1, np.int64)
    numbers[LIMIT] = limit_bytes
    numbers[NEXT_REGION] = min(FIRST_REGION_BYTES, rounded(limit_bytes))
    place, size, is_free, before, after, free, unused = np.zeros((7, capacity), np.int64)
    return Memory(place, size, is_free, before, after, free, unused, numbers)


@compiled
def rounded(size_bytes: int) -> int:
    """What a chunk for a size has at least."""
    return max((size_bytes + UNIT_BYTES - 1) // UNIT_BYTES, 1) * UNIT_BYTES


@compiled
def allocate(memory: Memory, size_bytes: int) -> int:
    """The chunk that is handed out for a size; -1 if there is no room."""
    needed_bytes = rounded(size_bytes)
    position = _first_free(memory, needed_bytes, -(1 << 62))
    if position == memory.numbers[FREE]:
        if not _extend(memory, needed_bytes):
            return -1
        position = _first_free(memory, needed_bytes, -(1 << 62))
    chunk = int(memory.free[position])
    _take(memory, position)
    rest_bytes = memory.size[chunk] - needed_bytes
    if rest_bytes >= min(needed_bytes, _LARGEST_REST_BYTES):
        _split(memory, chunk, needed_bytes)
    memory.is_free[chunk] = 0
    return chunk


@compiled
def release(memory: Memory, chunk: int) -> None:
    """Give a chunk back; it grows together with free neighbours."""
    after = memory.after[chunk]
    if after >= 0 and memory.is_free[after]:
        _take(memory, _first_free(memory, memory.size[after], memory.place[after]))
        _merge(memory, chunk, after)
    before = memory.before[chunk]
    if before >= 0 and memory.is_free[before]:
        _take(memory, _first_free(memory, memory.size[before], memory.place[before]))
        _merge(memory, before, chunk)
        chunk = before
    _put(memory, chunk)


@compiled
def largest_free_bytes(memory: Memory) -> int:
    """The most that can be had in one piece."""
    free = memory.numbers[FREE]
    largest = memory.size[memory.free[free - 1]] if free else 0
    return int(max(largest, _left_bytes(memory)))


@compiled
def free_bytes(memory: Memory) -> int:
    """What can be had in all, in pieces."""
    total = _left_bytes(memory)
    for position in range(memory.numbers[FREE]):
        total += memory.size[memory.free[position]]
    return int(total)


def layout(memory: Memory) -> bytes:
    """Place and size of every chunk, and whether it is free: the same bytes for the same state."""
    count = int(memory.numbers[CHUNKS])
    exists = np.ones(count, np.bool_)
    exists[memory.unused[: memory.numbers[UNUSED]]] = False
    columns = np.stack((memory.place, memory.size, memory.is_free))[:, :count][:, exists]
    return columns[:, np.argsort(columns[0])].tobytes()


@compiled
def _left_bytes(memory: Memory) -> int:
    """What no region has taken yet."""
    left = memory.numbers[LIMIT] - memory.numbers[TAKEN]
    return int(left // UNIT_BYTES * UNIT_BYTES)


@compiled
def _extend(memory: Memory, needed_bytes: int) -> bool:
    """Take another region, if one can be had that is large enough."""
    numbers = memory.numbers
    left_bytes = _left_bytes(memory)
    if needed_bytes > left_bytes:
        return False
    has_grown = False
    while needed_bytes > numbers[NEXT_REGION]:
        numbers[NEXT_REGION] *= 2
        has_grown = True
    size_bytes = min(numbers[NEXT_REGION], left_bytes)
    if not has_grown:
        numbers[NEXT_REGION] *= 2
    # The system maps each region below the last; a unit between them keeps them apart.
    numbers[LOWEST_PLACE] -= size_bytes + UNIT_BYTES
    numbers[TAKEN] += size_bytes
    chunk = _new_chunk(memory, numbers[LOWEST_PLACE], size_bytes)
    memory.before[chunk] = -1
    memory.after[chunk] = -1
    _put(memory, chunk)
    return True


@compiled
def _new_chunk(memory: Memory, place: int, size_bytes: int) -> int:
    numbers = memory.numbers
    if numbers[UNUSED]:
        numbers[UNUSED] -= 1
        chunk = memory.unused[numbers[UNUSED]]
    else:
        chunk = numbers[CHUNKS]
        numbers[CHUNKS] += 1
    memory.place[chunk] = place
    memory.size[chunk] = size_bytes
    return int(chunk)


@compiled
def _split(memory: Memory, chunk: int, size_bytes: int) -> None:
    """Leave a chunk a size, and make what follows a free one."""
    rest = _new_chunk(memory, memory.place[chunk] + size_bytes, memory.size[chunk] - size_bytes)
    after = memory.after[chunk]
    memory.before[rest], memory.after[rest] = chunk, after
    if after >= 0:
        memory.before[after] = rest
    memory.after[chunk] = rest
    memory.size[chunk] = size_bytes
    _put(memory, rest)


@compiled
def _merge(memory: Memory, chunk: int, after: int) -> None:
    """Let a chunk have its neighbour's memory, too."""
    following = memory.after[after]
    memory.size[chunk] += memory.size[after]
    memory.after[chunk] = following
    if following >= 0:
        memory.before[following] = chunk
    memory.unused[memory.numbers[UNUSED]] = after
    memory.numbers[UNUSED] += 1


@compiled
def _first_free(memory: Memory, size_bytes: int, place: int) -> int:
    """Where among those that are free the first one stands that is no less than size and place."""
    low, high = 0, memory.numbers[FREE]
    while low < high:
        middle = (low + high) // 2
        chunk = memory.free[middle]
        size = memory.size[chunk]
        if size < size_bytes or (size == size_bytes and memory.place[chunk] < place):
            low = middle + 1
        else:
            high = middle
    return int(low)


@compiled
def _put(memory: Memory, chunk: int) -> None:
    """A chunk is free."""
    position = _first_free(memory, memory.size[chunk], memory.place[chunk])
    for at in range(memory.numbers[FREE], position, -1):
        memory.free[at] = memory.free[at - 1]
    memory.free[position] = chunk
    memory.numbers[FREE] += 1
    memory.is_free[chunk] = 1


@compiled
def _take(memory: Memory, position: int) -> None:
    """The chunk at a position is not free any more."""
    memory.numbers[FREE] -= 1
    for at in range(position, memory.numbers[FREE]):
        memory.free[at] = memory.free[at + 1]
