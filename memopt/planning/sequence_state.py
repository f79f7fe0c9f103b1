"""A sequence of computations under search: where each stands, what it holds, bytes at each step.

A computation reads the latest earlier computation of each operation that it needs; its values are
in use until the last computation that reads them. A swap in is a computation that reads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memopt.compilation.jit import compiled, compiled_apart, next_random
from memopt.planning.problem import COPIES

if TYPE_CHECKING:
    from memopt.planning.arrays import IntArray
    from memopt.planning.problem import Problem

LENGTH, COST, OVERSHOOT, BUDGET, RANDOM = range(5)
ENTRIES, EVENTS, OWNS, LOW, HIGH, FROM, TO, SAVED_AT, SAVED_OVERSHOOT = range(5, 14)
CHAIN, CONSUMER, CHANGES = 14, 15, 16
"""Places in `State.numbers`; those of the second line belong to the last edit, to undo it.

`CHANGES` counts all computations that edits put in, took out or moved."""
LONGEST_CHAIN = 24
"""How many computations are put in, or taken out, together."""

_ROOM = 64


class State(NamedTuple):
    """A sequence and what follows from it. All arrays hold 64-bit integers.

    Attributes:
        sequence: The slots in the order of execution; the end of the step comes last.
        position: Where each slot stands in it, -1 if it does not.
        first: Each operation's first slot.
        following: The operation's next slot in the sequence, -1 after the last.
        previous: The one before, -1 before the first.
        swapped: 1 if the slot is a swap in.
        last: For each value and copy, the slot that reads it last; its own if none does.
        taken: 1 if that slot writes its result over it.
        bytes_at: Bytes in use at each position.
        own_bytes: What each slot adds to what is in use before it.
        numbers: Single numbers, by the places above.
        entry: Values and copies that the last edit looked at, and what was known of them.
        event: Ranges of positions and what was added there.
        owned: Slots and what their own bytes changed by.
        saved_bytes: What stood in `bytes_at` where the edit changed it.
        chain: The slots of the last chain of edits, a number that belongs to each, and 1 for a swap
            in.
    """

    sequence: IntArray
    position: IntArray
    first: IntArray
    following: IntArray
    previous: IntArray
    swapped: IntArray
    last: IntArray
    taken: IntArray
    bytes_at: IntArray
    own_bytes: IntArray
    numbers: IntArray
    entry: IntArray
    event: IntArray
    owned: IntArray
    saved_bytes: IntArray
    chain: IntArray


def new_state(problem: Problem, budget_bytes: int, seed: int) -> State:
    """An empty sequence; `fill` gives it one.

    Args:
        problem: What is planned.
        budget_bytes: What counts as overshoot above.
        seed: Of the random numbers.
    """
    operations = len(problem.cost)
    slots = operations * COPIES
    values = len(problem.size) * COPIES
    inputs = int(np.diff(problem.input_start).max(initial=0))
    outputs = int(np.diff(problem.value_start).max(initial=0))
    entries = (inputs + outputs + 1) * COPIES
    capacity = min(slots, 4 * operations + _ROOM) + 2
    numbers = np.zeros(CHANGES + 1, np.int64)
    numbers[BUDGET] = budget_bytes
    numbers[RANDOM] = seed * 7919 % 2147483646 + 1
    return State(
        sequence=np.zeros(capacity, np.int64),
        position=np.full(slots, -1, np.int64),
        first=np.full(operations, -1, np.int64),
        following=np.full(slots, -1, np.int64),
        previous=np.full(slots, -1, np.int64),
        swapped=np.zeros(slots, np.int64),
        last=np.zeros(values, np.int64),
        taken=np.zeros(values, np.int64),
        bytes_at=np.zeros(capacity, np.int64),
        own_bytes=np.zeros(slots, np.int64),
        numbers=numbers,
        entry=np.zeros((entries, 5), np.int64),
        event=np.zeros((6 * entries, 3), np.int64),
        owned=np.zeros((2 * entries, 2), np.int64),
        saved_bytes=np.zeros(capacity, np.int64),
        chain=np.zeros((LONGEST_CHAIN, 3), np.int64),
    )


@compiled
def random_below(state: State, bound: int) -> int:
    """A number from 0 to below a bound."""
    state.numbers[RANDOM] = next_random(state.numbers[RANDOM])
    return int(state.numbers[RANDOM] % bound)


@compiled
def rescan(problem: Problem, state: State, value: int, op: int) -> None:
    """Find out who reads each computation of a value last."""
    slot = state.first[op]
    while slot >= 0:
        index = value * COPIES + slot % COPIES
        state.last[index] = slot
        state.taken[index] = 0
        slot = state.following[slot]
    for edge in range(problem.reader_start[value], problem.reader_start[value + 1]):
        reader = state.first[problem.reader_op[edge]]
        slot = state.first[op]
        # Both lists are in the order of the sequence.
        while reader >= 0:
            at = state.position[reader]
            if not state.swapped[reader]:
                following = state.following[slot]
                while following >= 0 and state.position[following] < at:
                    slot = following
                    following = state.following[slot]
                index = value * COPIES + slot % COPIES
                if at > state.position[state.last[index]]:
                    state.last[index] = reader
                    state.taken[index] = problem.reader_takes[edge]
            reader = state.following[reader]


@compiled
def base_bytes(problem: Problem, op: int) -> int:
    """What an operation adds to what is in use, if it writes over none of its inputs."""
    total = problem.scratch[op]
    for value in range(problem.value_start[op], problem.value_start[op + 1]):
        total += problem.size[value]
    return int(total)


@compiled
def takes(problem: Problem, op: int, value: int) -> int:
    """1 if an operation may write its result over a value that it reads."""
    for edge in range(problem.reader_start[value], problem.reader_start[value + 1]):
        if problem.reader_op[edge] == op:
            return int(problem.reader_takes[edge])
    return 0


@compiled
def overshoot(state: State, low: int, high: int) -> int:
    """Bytes over the budget, summed over positions from low to high, both included."""
    budget_bytes = state.numbers[BUDGET]
    bytes_at = state.bytes_at[low : high + 1]
    total = 0
    for index in range(len(bytes_at)):
        total += max(0, bytes_at[index] - budget_bytes)
    return total


@compiled
def clear(state: State) -> None:
    """Take everything out of the sequence."""
    state.position[:] = -1
    state.first[:] = -1
    state.following[:] = -1
    state.previous[:] = -1
    state.swapped[:] = 0
    state.numbers[LENGTH] = 0
    state.numbers[COST] = 0


@compiled
def free_slot(state: State, op: int) -> int:
    """A slot for one more computation of an operation, -1 if there are enough of them."""
    for slot in range(op * COPIES, (op + 1) * COPIES):
        if state.position[slot] < 0:
            return slot
    return -1


@compiled
def latest(state: State, op: int, at: int) -> int:
    """The last computation of an operation before a position; the first if none is."""
    slot = state.first[op]
    while state.following[slot] >= 0 and state.position[state.following[slot]] < at:
        slot = state.following[slot]
    return int(slot)


@compiled
def cost_of(problem: Problem, state: State, slot: int) -> int:
    """What a computation, or a swap in, costs."""
    op = slot // COPIES
    return int(problem.swap_cost[op] if state.swapped[slot] else problem.cost[op])


@compiled
def link(state: State, slot: int, at: int) -> None:
    """Append a slot, as the computation of its operation that is going to stand at a position."""
    length = state.numbers[LENGTH]
    state.sequence[length] = slot
    state.position[slot] = length
    state.numbers[LENGTH] = length + 1
    op = slot // COPIES
    before = -1
    after = state.first[op]
    while after >= 0 and state.position[after] < at:
        before = after
        after = state.following[after]
    state.previous[slot] = before
    state.following[slot] = after
    if before >= 0:
        state.following[before] = slot
    else:
        state.first[op] = slot
    if after >= 0:
        state.previous[after] = slot


@compiled
def append(problem: Problem, state: State, op: int, swapped: int) -> None:
    """Put one more computation, or swap in, of an operation at the end; bytes are not kept up."""
    slot = free_slot(state, op)
    state.swapped[slot] = swapped
    link(state, slot, state.numbers[LENGTH])
    state.numbers[COST] += cost_of(problem, state, slot)


@compiled_apart
def fill(problem: Problem, state: State, operations: IntArray, swapped: IntArray) -> None:
    """Make a sequence the state's, and compute all that follows from it.

    Args:
        problem: What is planned.
        state: Gets the sequence.
        operations: A valid sequence without the end, which is added.
        swapped: For each of them, 1 if it is a swap in.
    """
    clear(state)
    for index in range(len(operations)):
        append(problem, state, operations[index], swapped[index])
    append(problem, state, len(problem.cost) - 1, 0)
    length = state.numbers[LENGTH]
    change = state.saved_bytes
    change[: length + 1] = 0
    for at in range(length):
        op = state.sequence[at] // COPIES
        state.own_bytes[state.sequence[at]] = base_bytes(problem, op)
        change[at] += problem.scratch[op]
        change[at + 1] -= problem.scratch[op]
    for op in range(len(problem.cost)):
        for value in range(problem.value_start[op], problem.value_start[op + 1]):
            rescan(problem, state, value, op)
            _count(problem, state, change, value)
    total = 0
    for at in range(length):
        total += change[at]
        state.bytes_at[at] = total
    state.numbers[OVERSHOOT] = overshoot(state, 0, length - 1)


@compiled
def _count(problem: Problem, state: State, change: IntArray, value: int) -> None:
    """Add what a value's computations hold to the changes of the bytes in use."""
    size = problem.size[value]
    for copy in range(COPIES):
        index = value * COPIES + copy
        slot = problem.value_op[value] * COPIES + copy
        if state.position[slot] < 0:
            continue
        end = state.position[state.last[index]]
        change[state.position[slot]] += size
        change[end + 1] -= size
        if state.taken[index]:
            change[end] -= size
            change[end + 1] += size
            state.own_bytes[state.last[index]] -= size
