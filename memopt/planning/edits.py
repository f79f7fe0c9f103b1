"""Edits of a sequence under search: move, add, remove; each updates the bytes and can be undone.

An edit costs what it changes: the computations between the old and the new place, and the ranges
over which a value's life becomes longer or shorter. The order is always: look at the values that
are concerned, change the sequence, look again, and add the differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.compilation.jit import compiled, compiled_apart
from memopt.planning.problem import COPIES
from memopt.planning.sequence_state import (
    BUDGET,
    CHANGES,
    COST,
    ENTRIES,
    EVENTS,
    FROM,
    HIGH,
    LENGTH,
    LOW,
    OVERSHOOT,
    OWNS,
    SAVED_AT,
    SAVED_OVERSHOOT,
    TO,
    base_bytes,
    cost_of,
    free_slot,
    latest,
    link,
    overshoot,
    rescan,
    takes,
)

if TYPE_CHECKING:
    from memopt.planning.arrays import IntArray
    from memopt.planning.problem import Problem
    from memopt.planning.sequence_state import State

_NOWHERE = -1


@compiled
def move(problem: Problem, state: State, slot: int, to: int) -> None:
    """Move a computation to another position.

    Args:
        problem: What is planned.
        state: Is changed.
        slot: The computation.
        to: Where it stands afterwards, within what `moves` allows.
    """
    _begin(state, state.position[slot], to)
    _look(problem, state, slot, to)
    _shift(state, slot, state.position[slot], to)
    _settle(problem, state, slot)


@compiled
def add(problem: Problem, state: State, op: int, at: int, swapped: int) -> int:
    """Compute an operation once more, or swap its values in.

    Args:
        problem: What is planned.
        state: Is changed; must have room for the operation (`free_slot`) and in the sequence.
        op: The operation; computed before the position.
        at: Where it stands afterwards.
        swapped: 1 to swap in.

    Returns:
        The new slot.
    """
    slot = free_slot(state, op)
    state.swapped[slot] = swapped
    _insert(problem, state, slot, at)
    return slot


@compiled_apart
def remove(problem: Problem, state: State, slot: int) -> None:
    """Take a computation out of the sequence. Another one must precede all that read it."""
    _begin(state, state.position[slot], _NOWHERE)
    _look(problem, state, slot, 0)
    _shift(state, slot, state.position[slot], state.numbers[LENGTH] - 1)
    _unlink(state, slot)
    state.numbers[COST] -= cost_of(problem, state, slot)
    _settle(problem, state, slot)


@compiled_apart
def undo(problem: Problem, state: State, slot: int) -> None:
    """Take the last edit back. It concerned this slot."""
    origin = state.numbers[FROM]
    to = state.numbers[TO]
    low = state.numbers[LOW]
    high = state.numbers[HIGH]
    _copy(state.bytes_at[low : high + 1], state.saved_bytes)
    for index in range(state.numbers[OWNS]):
        state.own_bytes[state.owned[index, 0]] -= state.owned[index, 1]
    if to == _NOWHERE:
        link(state, slot, origin)
        state.numbers[COST] += cost_of(problem, state, slot)
    last = state.numbers[LENGTH] - 1
    _shift(state, slot, last if to == _NOWHERE else to, last if origin == _NOWHERE else origin)
    if origin == _NOWHERE:
        _unlink(state, slot)
        state.numbers[COST] -= cost_of(problem, state, slot)
    else:
        state.bytes_at[origin] = state.numbers[SAVED_AT]
    for index in range(state.numbers[ENTRIES]):
        entry = state.entry[index, 0]
        state.last[entry] = state.entry[index, 3]
        state.taken[entry] = state.entry[index, 4]
    state.numbers[OVERSHOOT] = state.numbers[SAVED_OVERSHOOT]


@compiled
def _insert(problem: Problem, state: State, slot: int, at: int) -> None:
    _begin(state, _NOWHERE, at)
    _look(problem, state, slot, at)
    link(state, slot, at)
    _shift(state, slot, state.numbers[LENGTH] - 1, at)
    state.numbers[COST] += cost_of(problem, state, slot)
    state.own_bytes[slot] = base_bytes(problem, slot // COPIES)
    _settle(problem, state, slot)


@compiled
def _begin(state: State, origin: int, to: int) -> None:
    state.numbers[ENTRIES] = 0
    state.numbers[EVENTS] = 0
    state.numbers[OWNS] = 0
    state.numbers[CHANGES] += 1
    state.numbers[FROM] = origin
    state.numbers[TO] = to
    state.numbers[SAVED_OVERSHOOT] = state.numbers[OVERSHOOT]
    if origin != _NOWHERE:
        state.numbers[SAVED_AT] = state.bytes_at[origin]


@compiled
def _look(problem: Problem, state: State, slot: int, to: int) -> None:
    """Note what is known of the values whose lives an edit of a computation may change."""
    op = slot // COPIES
    for value in range(problem.value_start[op], problem.value_start[op + 1]):
        _note(problem, state, value, op)
    if state.swapped[slot]:
        return
    for edge in range(problem.input_start[op], problem.input_start[op + 1]):
        value = problem.input_value[edge]
        source = problem.input_op[edge]
        first = state.first[source]
        last = state.last[value * COPIES + first % COPIES]
        if state.following[first] >= 0 or last == slot or state.position[last] <= to:
            _note(problem, state, value, source)


@compiled
def _note(problem: Problem, state: State, value: int, op: int) -> None:
    if problem.size[value] == 0:
        return
    slot = state.first[op]
    while slot >= 0:
        index = value * COPIES + slot % COPIES
        last = state.last[index]
        _enter(state, index, state.position[slot], state.position[last])
        slot = state.following[slot]


@compiled
def _enter(state: State, index: int, start: int, end: int) -> None:
    number = state.numbers[ENTRIES]
    state.entry[number, 0] = index
    state.entry[number, 1] = start
    state.entry[number, 2] = end
    state.entry[number, 3] = state.last[index]
    state.entry[number, 4] = state.taken[index]
    state.numbers[ENTRIES] = number + 1


@compiled
def _shift(state: State, slot: int, origin: int, to: int) -> None:
    """Move a slot; what stands between moves by one. Bytes at the new position are left open."""
    # Ranges of arrays are passed on, here and below: then the loops over them become vectors.
    if origin < to:
        low, high = origin, to
        _copy(state.sequence[low:high], state.sequence[low + 1 : high + 1])
        _copy(state.bytes_at[low:high], state.bytes_at[low + 1 : high + 1])
    else:
        low, high = to + 1, origin + 1
        _copy_from_end(state.sequence[low:high], state.sequence[low - 1 : high - 1])
        _copy_from_end(state.bytes_at[low:high], state.bytes_at[low - 1 : high - 1])
    moved = state.sequence[low:high]
    for index in range(len(moved)):
        state.position[moved[index]] = low + index
    state.sequence[to] = slot
    state.position[slot] = to


@compiled
def _copy(target: IntArray, source: IntArray) -> None:
    """Copy as much as both have."""
    for index in range(min(len(target), len(source))):
        target[index] = source[index]


@compiled
def _copy_from_end(target: IntArray, source: IntArray) -> None:
    for index in range(len(target) - 1, -1, -1):
        target[index] = source[index]


@compiled
def _raise(target: IntArray, added: int) -> None:
    for index in range(len(target)):
        target[index] += added


@compiled
def _unlink(state: State, slot: int) -> None:
    """Take the slot that stands last out of the sequence."""
    state.numbers[LENGTH] -= 1
    state.position[slot] = -1
    before = state.previous[slot]
    after = state.following[slot]
    if before >= 0:
        state.following[before] = after
    else:
        state.first[slot // COPIES] = after
    if after >= 0:
        state.previous[after] = before


@compiled
def _settle(problem: Problem, state: State, slot: int) -> None:
    """After the sequence has changed: who reads what last, and the bytes that follow from it."""
    op = slot // COPIES
    to = state.numbers[TO]
    _read_again(problem, state, slot)
    if state.numbers[FROM] == _NOWHERE:
        for value in range(problem.value_start[op], problem.value_start[op + 1]):
            _enter(state, value * COPIES + slot % COPIES, _NOWHERE, _NOWHERE)
    for number in range(state.numbers[ENTRIES]):
        _compare(problem, state, number, slot)
    _bound(state, to)
    low = state.numbers[LOW]
    high = state.numbers[HIGH]
    if to != _NOWHERE:
        state.bytes_at[to] = 0
    _copy(state.saved_bytes, state.bytes_at[low : high + 1])
    change = -overshoot(state, low, high)
    if state.numbers[FROM] != _NOWHERE:
        change -= max(0, state.numbers[SAVED_AT] - state.numbers[BUDGET])
    for number in range(state.numbers[EVENTS]):
        changed = state.bytes_at[state.event[number, 0] : state.event[number, 1] + 1]
        _raise(changed, state.event[number, 2])
    if to != _NOWHERE:
        state.bytes_at[to] = _bytes_of(problem, state, slot)
    state.numbers[OVERSHOOT] += change + overshoot(state, low, high)


@compiled
def _read_again(problem: Problem, state: State, slot: int) -> None:
    """Find the last readers of the values that were looked at."""
    op = slot // COPIES
    done = -1
    for number in range(state.numbers[ENTRIES]):
        value = state.entry[number, 0] // COPIES
        source = problem.value_op[value]
        first = state.first[source]
        is_only = state.following[first] < 0 and state.numbers[TO] != _NOWHERE
        if value == done or (is_only and source == op):
            continue
        done = value
        index = value * COPIES + first % COPIES
        last = state.last[index]
        if is_only and (last != slot or state.numbers[TO] > state.numbers[FROM]):
            if state.position[slot] > state.position[last]:
                state.last[index] = slot
                state.taken[index] = takes(problem, op, value)
        else:
            rescan(problem, state, value, source)


@compiled
def _compare(problem: Problem, state: State, number: int, slot: int) -> None:
    """Note what changes between the old life of a computation's value and the new one."""
    index = state.entry[number, 0]
    value = index // COPIES
    holder = problem.value_op[value] * COPIES + index % COPIES
    size = problem.size[value]
    is_new = state.entry[number, 1] == _NOWHERE
    is_gone = state.position[holder] < 0
    start = state.position[holder]
    end = state.position[state.last[index]]
    if is_new:
        old_start = start
        old_end = start - 1
    else:
        old_start = _mapped(state, state.entry[number, 1], 1)
        old_end = _mapped(state, state.entry[number, 2], -1)
    if is_gone:
        start = old_start
        end = old_start - 1
    _change(state, old_start, start - 1, -size)
    _change(state, start, old_start - 1, size)
    _change(state, old_end + 1, end, size)
    _change(state, end + 1, old_end, -size)
    taker = state.last[index] if state.taken[index] and not is_gone else -1
    old_taker = state.entry[number, 3] if state.entry[number, 4] and not is_new else -1
    if taker != old_taker:
        _own(state, old_taker, size, slot)
        _own(state, taker, -size, slot)


@compiled
def _mapped(state: State, at: int, side: int) -> int:
    """Where a position is after the edit; for the edited one, its neighbour on a side."""
    origin = state.numbers[FROM]
    to = state.numbers[TO]
    if at == origin:
        at += side
    if origin == _NOWHERE:
        return at + 1 if at >= to else at
    if to == _NOWHERE:
        return at - 1 if at > origin else at
    if origin < at <= to:
        return at - 1
    if to <= at < origin:
        return at + 1
    return at


@compiled
def _change(state: State, low: int, high: int, added: int) -> None:
    if low > high or added == 0:
        return
    number = state.numbers[EVENTS]
    state.event[number, 0] = low
    state.event[number, 1] = high
    state.event[number, 2] = added
    state.numbers[EVENTS] = number + 1


@compiled
def _own(state: State, taker: int, added: int, slot: int) -> None:
    """A slot writes its result over an input from now on, or no longer."""
    if taker < 0 or state.position[taker] < 0:
        return
    number = state.numbers[OWNS]
    state.owned[number, 0] = taker
    state.owned[number, 1] = added
    state.numbers[OWNS] = number + 1
    state.own_bytes[taker] += added
    if taker != slot:
        _change(state, state.position[taker], state.position[taker], added)


@compiled
def _bound(state: State, to: int) -> None:
    """The positions between which bytes change."""
    low = state.numbers[LENGTH]
    high = -1
    for number in range(state.numbers[EVENTS]):
        low = min(low, state.event[number, 0])
        high = max(high, state.event[number, 1])
    if to != _NOWHERE:
        low = min(low, to)
        high = max(high, to)
    state.numbers[LOW] = low
    state.numbers[HIGH] = high


@compiled
def _bytes_of(problem: Problem, state: State, slot: int) -> int:
    """Bytes in use at a computation: what lives beyond it, what ends with it, and its own."""
    op = slot // COPIES
    following = state.sequence[state.position[slot] + 1]
    total = state.bytes_at[state.position[following]] - state.own_bytes[following]
    total += state.own_bytes[slot] - base_bytes(problem, op) + problem.scratch[op]
    for value in range(problem.value_start[op], problem.value_start[op + 1]):
        if state.last[value * COPIES + slot % COPIES] == slot:
            total += problem.size[value]
    if state.swapped[slot]:
        return int(total)
    for edge in range(problem.input_start[op], problem.input_start[op + 1]):
        value = problem.input_value[edge]
        holder = latest(state, problem.input_op[edge], state.position[slot])
        if state.last[value * COPIES + holder % COPIES] == slot:
            total += problem.size[value]
    return int(total)
