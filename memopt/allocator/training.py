"""One training step after the other in the allocator: whether all of them find room."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memopt.allocator.best_fit import (
    FIRST_REGION_BYTES,
    UNIT_BYTES,
    allocate,
    largest_free_bytes,
    layout,
    new_memory,
    release,
)
from memopt.buffers.buffer_graph import SCRATCH
from memopt.compilation.jit import IS_COMPILED, compiled, compiled_apart

if TYPE_CHECKING:
    from collections.abc import Container

    from memopt.allocator.best_fit import IntArray, Memory
    from memopt.buffers.buffer_graph import BufferGraph, MemoryTimeline

_HANDLE_BYTES = 200
"""What TensorFlow keeps for each variable beside its value."""
MOST_STEPS = 512 if IS_COMPILED else 16
FEW_STEPS = 8
"""Steps that are followed where none leaves what another one left; few to tell about the need."""
NO_LIMIT = 1 << 62
_SPARE_SHARE = 256
_LEAST_SPARE_BYTES = 1 << 16
"""Of a limit, what is left for what is not as it is predicted."""


class Shortage(NamedTuple):
    """Where a step finds no room.

    Attributes:
        step: In which step, from 0; -1 if not even what is held before it finds room.
        position: Position of the node in the sequence, -1 if it is before the step.
    """

    step: int
    position: int


@dataclass(frozen=True)
class AllocatorLimit:
    """What TensorFlow's allocator may hand out.

    Attributes:
        limit_bytes: The most.
        spare_bytes: What is to be left in one piece at any moment, for what is not as predicted.
    """

    limit_bytes: int
    spare_bytes: int = 0

    @classmethod
    def with_spare(cls, limit_bytes: int) -> AllocatorLimit:
        """A limit of which as much is left as predictions need that are about as good as here."""
        return cls(limit_bytes, max(limit_bytes // _SPARE_SHARE, _LEAST_SPARE_BYTES))

    def is_short(self, timeline: MemoryTimeline) -> bool:
        """Whether some step does not find room."""
        return not has_room(timeline, self.limit_bytes, self.spare_bytes)

    def missing_bytes(self, timeline: MemoryTimeline) -> int:
        """About how much more training would need; 0 if it finds room in every step."""
        if not self.is_short(timeline):
            return 0
        return max(least_limit_bytes(timeline, self.spare_bytes) - self.limit_bytes, 1)


def find_shortage(
    timeline: MemoryTimeline, limit_bytes: int, spare_bytes: int = 0
) -> Shortage | None:
    """Where training runs out of memory, `None` if every operation finds room in every step.

    Variables may get their new values elsewhere, so that every step leaves other holes to the next
    one: until they are the same as at some time before, or for 512 steps (16 if not compiled). What
    is held at first lies as a process leaves it that puts variables and inputs there, and then runs
    the step: `step_process` does. In another process there are other holes.

    Args:
        timeline: The step, in the order in which it runs.
        limit_bytes: What the allocator may hand out.
        spare_bytes: What is to be left in one piece at any moment, for what is not as predicted.
    """
    return Training(timeline).find_shortage(limit_bytes, spare_bytes)


def has_room(timeline: MemoryTimeline, limit_bytes: int, spare_bytes: int = 0) -> bool:
    """Whether there is no shortage; see `find_shortage`."""
    return find_shortage(timeline, limit_bytes, spare_bytes) is None


def least_limit_bytes(timeline: MemoryTimeline, spare_bytes: int = 0) -> int:
    """About the lowest limit under which some steps find room, to 1/64; see `find_shortage`.

    What has room under one limit need not have it under a higher one, so others may do as well.
    """
    training = Training(timeline)

    def is_enough(limit_bytes: int) -> bool:
        return training.find_shortage(limit_bytes, spare_bytes, FEW_STEPS) is None

    low, high = timeline.peak_bytes, max(2 * timeline.peak_bytes, FIRST_REGION_BYTES)
    while not is_enough(high):
        low, high = high, 2 * high
    while high - low > high // 64:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


class StepArrays(NamedTuple):
    """What a step asks for and gives back. All arrays hold 64-bit integers.

    Attributes:
        start: By node of the sequence: the first of its events.
        buffer: By event: the buffer whose memory it is.
        change: By event: bytes that are asked for, or given back if less than 0.
        held: The buffers that are there before the step, in the order in which they are put there.
        held_bytes: Their sizes.
        next: By the place of each: the buffer that has its value's memory after the step.
        left: What is given back only after the step.
    """

    start: IntArray
    buffer: IntArray
    change: IntArray
    held: IntArray
    held_bytes: IntArray
    next: IntArray
    left: IntArray


class Training:
    """A step that is run again and again.

    Attributes:
        arrays: What it asks for.
        repeats: Whether what it leaves is known: where two variables share a value, it is not.
    """

    def __init__(self, timeline: MemoryTimeline) -> None:
        graph = timeline.buffer_graph
        held = _held(graph)
        scratch = len(graph.size_bytes)
        live = {buffer: buffer for buffer in held}
        start: list[int] = []
        owners: list[int] = []
        changes: list[int] = []
        events = iter((*timeline.events(), None))
        event = next(events)
        for position in range(len(timeline.sequence)):
            start.append(len(owners))
            while event is not None and event.position == position:
                buffer, size_bytes = event.buffer, event.size_bytes
                if event.kind == "free":
                    owner = live.pop(_first_owner(buffer, live, timeline))
                    size_bytes = -size_bytes
                else:
                    owner = live[buffer] = scratch if buffer == SCRATCH else buffer
                owners.append(owner)
                changes.append(size_bytes)
                event = next(events)
        values = (graph.next_values.get(buffer, buffer) for buffer in held)
        following = [_first_owner(value, live, timeline) for value in values]
        self.repeats = len(set(following)) == len(following)
        self._buffer_count = scratch + 1
        lists = (
            [*start, len(owners)],
            owners,
            changes,
            held,
            [graph.size_bytes[buffer] for buffer in held],
            following,
            sorted(live.keys() - set(following)),
        )
        self.arrays = StepArrays(*(np.array(numbers, np.int64) for numbers in lists))

    def find_shortage(
        self, limit_bytes: int, spare_bytes: int, steps: int = MOST_STEPS
    ) -> Shortage | None:
        """See the function of that name."""
        memory = self.new_memory(limit_bytes)
        chunks = self.new_chunks()
        if not begin(memory, self.arrays, chunks):
            return Shortage(-1, -1)
        order = np.arange(len(self.arrays.start) - 1)
        seen = set()
        for step in range(steps if self.repeats else 1):
            position = follow(memory, self.arrays, order, chunks, spare_bytes)
            if position < len(order):
                return Shortage(step, position)
            end(memory, self.arrays, chunks)
            state = layout(memory), chunks[self.arrays.held].tobytes()
            if state in seen:
                break
            seen.add(state)
        return None

    def new_memory(self, limit_bytes: int) -> Memory:
        """Memory with a place for all chunks that the step may have."""
        return new_memory(limit_bytes, self._buffer_count)

    def new_chunks(self) -> IntArray:
        """Where the chunk of each buffer is noted, and as much again to work with."""
        return np.zeros(2 * self._buffer_count, np.int64)


@compiled_apart
def begin(memory: Memory, step: StepArrays, chunks: IntArray) -> bool:
    """Put what is held there; whether it finds room."""
    # A process has had something small before.
    small = allocate(memory, 1)
    if small < 0:
        return False
    release(memory, small)
    for number in range(len(step.held)):
        chunk = allocate(memory, step.held_bytes[number])
        if chunk < 0:
            return False
        chunks[step.held[number]] = chunk
    return True


@compiled_apart
def follow(
    memory: Memory, step: StepArrays, order: IntArray, chunks: IntArray, spare_bytes: int
) -> int:
    """Run a step; where in the order there is no room, or its length if there is."""
    return run_step(memory, step, order, chunks, spare_bytes, NO_LIMIT)


@compiled_apart
def end(memory: Memory, step: StepArrays, chunks: IntArray) -> None:
    """What is left goes, and variables have their new values."""
    end_step(memory, step, chunks)


@compiled
def run_step(
    memory: Memory,
    step: StepArrays,
    order: IntArray,
    chunks: IntArray,
    spare_bytes: int,
    room_bytes: int,
) -> int:
    """Where in an order of the sequence's places there is no room, or its length if there is.

    Args:
        memory: What is held is there.
        step: What is asked for.
        order: Places in the sequence.
        chunks: The chunk of each buffer.
        spare_bytes: What is to be left in one piece.
        room_bytes: What the step may have in use beside what is held, by its sum.
    """
    in_use_bytes = 0
    for position in range(len(order)):
        node = order[position]
        for event in range(step.start[node], step.start[node + 1]):
            buffer, change_bytes = step.buffer[event], step.change[event]
            in_use_bytes += change_bytes
            if change_bytes < 0:
                release(memory, chunks[buffer])
                continue
            chunk = allocate(memory, change_bytes)
            if chunk < 0 or in_use_bytes > room_bytes:
                return position
            if spare_bytes and largest_free_bytes(memory) < spare_bytes:
                return position
            chunks[buffer] = chunk
    return len(order)


@compiled
def end_step(memory: Memory, step: StepArrays, chunks: IntArray) -> None:
    """What is left goes, and variables have their new values."""
    for number in range(len(step.left)):
        release(memory, chunks[step.left[number]])
    # A variable may have the memory that another one had: all are read before any is written.
    half = len(chunks) // 2
    for number in range(len(step.held)):
        chunks[half + number] = chunks[step.next[number]]
    for number in range(len(step.held)):
        chunks[step.held[number]] = chunks[half + number]


def _first_owner(buffer: int, live: Container[int], timeline: MemoryTimeline) -> int:
    """The buffer that the memory of another was handed out for, before it was handed on."""
    while buffer not in live:
        buffer = timeline.reused[buffer]
    return buffer


def _held(graph: BufferGraph) -> list[int]:
    """What is there before the step, in the order in which it is put there.

    Each variable's value, and what TensorFlow keeps beside it; then inputs, and then constants,
    which mostly are no larger than the smallest chunk.
    """
    made = {buffer for buffers in graph.made for buffer in buffers}
    held = [b for b, size_bytes in enumerate(graph.size_bytes) if size_bytes and b not in made]
    values = [buffer for buffer in graph.next_values if graph.size_bytes[buffer]]
    others = [buffer for buffer in held if buffer not in graph.next_values]
    handles = [buffer for buffer in others if graph.size_bytes[buffer] == _HANDLE_BYTES]
    variables = [b for pair in zip_longest(values, handles) for b in pair if b is not None]
    rest = [buffer for buffer in others if graph.size_bytes[buffer] != _HANDLE_BYTES]
    return variables + sorted(rest, key=lambda buffer: graph.size_bytes[buffer] <= UNIT_BYTES)
