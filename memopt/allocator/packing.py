"""Packing: the order of a step is changed a little, so that the allocator finds room for it.

A plan that keeps to a limit by its sum may need half as much again, since a chunk is handed out
whole if less than half of it would be left. Which chunk a tensor gets depends on what is free just
then: to run one operation a little earlier or later puts everything after it elsewhere. So single
operations are moved, each as far as what it needs and what it shares memory with allow. A move is
kept if training gets further by it, or as far with hardly less left where memory is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memopt.allocator.best_fit import free_bytes, largest_free_bytes
from memopt.allocator.training import (
    FEW_STEPS,
    MOST_STEPS,
    Training,
    begin,
    end_step,
    run_step,
)
from memopt.buffers.buffer_graph import simulate
from memopt.compilation.jit import IS_COMPILED, compiled, compiled_apart, next_random

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memopt.allocator.best_fit import IntArray, Memory
    from memopt.allocator.training import AllocatorLimit, StepArrays
    from memopt.buffers.buffer_graph import BufferGraph, MemoryTimeline

_STAGES = (FEW_STEPS, 64, MOST_STEPS) if IS_COMPILED else (FEW_STEPS, MOST_STEPS)
"""Steps that are followed at each trial: what runs out of memory in the first ones is soon told."""
_MOST_WORK = 60_000_000 if IS_COMPILED else 200_000
"""Operations that are followed in all."""
_TRIES = 4
"""How often it is begun anew, with other moves."""
_STAGE_WORK = 2_048 if IS_COMPILED else 32
"""Steps that are followed at most at a stage of one of them."""
_PATIENCE = 500
"""Trials in a row without getting any further."""
_TOLERANCE = 64
"""Of what is left where memory is short, up to three times this part may be lost by a move."""
_SCATTERED = 4
"""What is free counts to this part, what is free in one piece in full."""
_MOST_ATTEMPTS = 50
"""For each step that is followed, the operations that are looked at: many cannot be moved."""
_WINDOW = 4
"""What is moved stands, at most, this part of the step before where memory is short."""
_LONGEST_MOVE = 60
_SEED = 1


def pack(
    timeline: MemoryTimeline,
    allocator: AllocatorLimit,
    budget_bytes: int,
    pairs: Mapping[int, int],
) -> MemoryTimeline | None:
    """The step in an order near its own in which training does not run out of memory.

    Args:
        timeline: The step.
        allocator: What may be handed out.
        budget_bytes: What may be in use by its sum.
        pairs: Nodes that stay side by side, first to second.

    Returns:
        `None` if no such order is found.
    """
    training = Training(timeline)
    memory, chunks = training.new_memory(allocator.limit_bytes), training.new_chunks()
    if not begin(memory, training.arrays, chunks):
        return None
    length = len(timeline.sequence)
    numbers = np.zeros(_STAMP + 1, np.int64)
    numbers[_SPARE] = allocator.spare_bytes
    numbers[_ROOM] = budget_bytes - timeline.held_bytes
    numbers[_RANDOM] = _SEED
    base = _Work(memory, chunks)
    work = _Work(training.new_memory(allocator.limit_bytes), training.new_chunks())
    numbers[_LEFT] = _MOST_WORK // max(length, 1) + 1
    links = _links(timeline, pairs)
    for _ in range(_TRIES):
        order = _find_order(base, work, training, links, numbers)
        if order is not None:
            packed = simulate(timeline.buffer_graph, [timeline.sequence[at] for at in order])
            # The search is not believed.
            if packed.peak_bytes <= budget_bytes and not allocator.is_short(packed):
                return packed
        if numbers[_LEFT] <= 0:
            break
    return None


_SPARE, _ROOM, _STEPS, _WORK, _LEFT, _RANDOM, _STAMP = range(7)
"""Places of single numbers: bytes that are left in one piece, bytes that may be in use beside what
is held, steps to follow at most, steps that may still be followed at this stage and in all, the
last random number, the last mark."""


class _Work(NamedTuple):
    """Memory, and the chunk of each buffer in it."""

    memory: Memory
    chunks: IntArray


class _Links(NamedTuple):
    """What keeps operations in order, by their place in the sequence. All arrays hold integers.

    Attributes:
        needs_start: The first of those that it needs.
        needs: These.
        shares_start: The first of the buffers that it makes or reads.
        shares: These, without what is there throughout.
        second: What stands right behind it in any case, -1 if nothing does.
        is_fixed: 1 if it is not moved.
        mark: By buffer: what was moved last that has it.
    """

    needs_start: IntArray
    needs: IntArray
    shares_start: IntArray
    shares: IntArray
    second: IntArray
    is_fixed: IntArray
    mark: IntArray


def _find_order(
    base: _Work, work: _Work, training: Training, links: _Links, numbers: IntArray
) -> IntArray | None:
    """An order in which training gets through all stages, by one try."""
    length = len(links.is_fixed)
    order = np.arange(length)
    for steps in _STAGES if training.repeats else (1,):
        numbers[_STEPS] = steps
        numbers[_WORK] = before = min(int(numbers[_LEFT]), _STAGE_WORK)
        reached = _search(base, work, training.arrays, links, order, numbers)
        numbers[_LEFT] -= before - numbers[_WORK]
        if reached < steps * length:
            return None
    return order


def _links(timeline: MemoryTimeline, pairs: Mapping[int, int]) -> _Links:
    graph = timeline.buffer_graph
    place_of = {node: place for place, node in enumerate(timeline.sequence)}
    needs = (
        [place_of[source] for source in graph.producers[node] if source in place_of]
        for node in timeline.sequence
    )
    lasting = _throughout(graph)
    shares = (
        [buffer for buffer in (*graph.read[node], *graph.made[node]) if buffer not in lasting]
        for node in timeline.sequence
    )
    second = np.full(len(timeline.sequence), -1, np.int64)
    is_fixed = np.zeros(len(timeline.sequence), np.int64)
    for first, other in pairs.items():
        if first in place_of and other in place_of:
            second[place_of[first]] = place_of[other]
            is_fixed[[place_of[first], place_of[other]]] = 1
    mark = np.zeros(len(graph.size_bytes), np.int64)
    return _Links(*_flat(needs), *_flat(shares), second, is_fixed, mark)


def _throughout(graph: BufferGraph) -> set[int]:
    """The buffers that are there before the step and that nothing changes."""
    made = {buffer for buffers in graph.made for buffer in buffers}
    reused = {source for sources in graph.reusable for source in sources}
    changed = made | reused | graph.next_values.keys()
    return {
        buffer
        for buffer in range(len(graph.size_bytes))
        if buffer not in changed and graph.lasting[buffer]
    }


def _flat(lists: Iterable[list[int]]) -> tuple[IntArray, IntArray]:
    """Where each list begins, and all of them in one."""
    found = list(lists)
    start = np.zeros(len(found) + 1, np.int64)
    np.cumsum([len(each) for each in found], out=start[1:])
    return start, np.array([number for each in found for number in each], np.int64)


@compiled_apart
def _search(
    base: _Work, work: _Work, step: StepArrays, links: _Links, order: IntArray, numbers: IntArray
) -> int:
    """Move operations until training finds room; how many operations it gets through."""
    length = len(order)
    best, left_bytes = _survive(base, work, step, order, numbers)
    patience, attempts = _PATIENCE, numbers[_WORK] * _MOST_ATTEMPTS
    while best < numbers[_STEPS] * length:
        attempts -= 1
        if patience == 0 or attempts == 0 or numbers[_WORK] <= 0:
            break
        window = length // _WINDOW + 1
        back = min(_random_below(numbers, window), _random_below(numbers, window))
        source = best % length - back
        if source < 0:
            # What was done late in one step is found by the next.
            source = source + length if best >= length else 0
        target = _target(step, links, order, numbers, source)
        if target == source:
            continue
        patience -= 1
        _move(order, source, target)
        reached, now_left_bytes = _survive(base, work, step, order, numbers)
        lost_bytes = left_bytes // _TOLERANCE * _random_below(numbers, 4)
        if reached < best or (reached == best and now_left_bytes < left_bytes - lost_bytes):
            _move(order, target, source)
            continue
        if reached > best or now_left_bytes > left_bytes:
            patience = _PATIENCE
        best, left_bytes = reached, now_left_bytes
    return int(best)


@compiled
def _survive(
    base: _Work, work: _Work, step: StepArrays, order: IntArray, numbers: IntArray
) -> tuple[int, int]:
    """How many operations training gets through, over several steps, before memory is short.

    And what is left there: what is free in one piece, and a part of what is free at all, since some
    of it may come to lie together.
    """
    _copy(base, work)
    for number in range(numbers[_STEPS]):
        position = run_step(work.memory, step, order, work.chunks, numbers[_SPARE], numbers[_ROOM])
        numbers[_WORK] -= 1
        if position < len(order):
            left_bytes = largest_free_bytes(work.memory) + free_bytes(work.memory) // _SCATTERED
            return number * len(order) + position, left_bytes
        end_step(work.memory, step, work.chunks)
    return int(numbers[_STEPS] * len(order)), 0


@compiled
def _copy(base: _Work, work: _Work) -> None:
    for number in range(len(base.memory.place)):
        work.memory.place[number] = base.memory.place[number]
        work.memory.size[number] = base.memory.size[number]
        work.memory.is_free[number] = base.memory.is_free[number]
        work.memory.before[number] = base.memory.before[number]
        work.memory.after[number] = base.memory.after[number]
        work.memory.free[number] = base.memory.free[number]
        work.memory.unused[number] = base.memory.unused[number]
    for number in range(len(base.memory.numbers)):
        work.memory.numbers[number] = base.memory.numbers[number]
    for number in range(len(base.chunks)):
        work.chunks[number] = base.chunks[number]


@compiled
def _target(
    step: StepArrays, links: _Links, order: IntArray, numbers: IntArray, source: int
) -> int:
    """Where to move an operation, earlier or later; where it stands if it cannot be moved."""
    place = order[source]
    if links.is_fixed[place] or step.start[place] == step.start[place + 1]:
        return source
    direction = 2 * _random_below(numbers, 2) - 1
    left = 1 + _random_below(numbers, _LONGEST_MOVE)
    numbers[_STAMP] += 1
    for number in range(links.shares_start[place], links.shares_start[place + 1]):
        links.mark[links.shares[number]] = numbers[_STAMP]
    target = source
    while left and 0 <= target + direction < len(order):
        other = order[target + direction]
        earlier, later = (other, place) if direction < 0 else (place, other)
        if _must_stay(links, earlier, later) or _is_marked(links, other, numbers[_STAMP]):
            break
        target += direction
        left -= 1
    if target == source:
        return source
    # Behind which it comes to stand, and before which.
    low, high = (target - 1, target) if direction < 0 else (target, target + 1)
    if low >= 0 and high < len(order) and links.second[order[low]] == order[high]:
        return source
    return int(target)


@compiled
def _must_stay(links: _Links, earlier: int, later: int) -> bool:
    """Whether the later one needs the earlier one."""
    for number in range(links.needs_start[later], links.needs_start[later + 1]):
        if links.needs[number] == earlier:
            return True
    return False


@compiled
def _is_marked(links: _Links, place: int, stamp: int) -> bool:
    """Whether it shares memory with what is moved: who has it last decides who frees it."""
    for number in range(links.shares_start[place], links.shares_start[place + 1]):
        if links.mark[links.shares[number]] == stamp:
            return True
    return False


@compiled
def _move(order: IntArray, source: int, target: int) -> None:
    place = order[source]
    direction = 1 if target > source else -1
    at = source
    while at != target:
        order[at] = order[at + direction]
        at += direction
    order[target] = place


@compiled
def _random_below(numbers: IntArray, bound: int) -> int:
    """A number from 0 to below a bound."""
    numbers[_RANDOM] = next_random(numbers[_RANDOM])
    return int(numbers[_RANDOM] % bound)
