"""Edits of several computations at once: a chain is recomputed, or no longer, as a whole.

What is recomputed needs its inputs. Keeping one of them until then may take as much as was
freed, so that neither pays alone: then it is recomputed as well, and what that needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.compilation.jit import compiled, compiled_late
from memopt.planning.edits import add, remove, undo
from memopt.planning.moves import propose, repeat
from memopt.planning.problem import COPIES
from memopt.planning.sequence_state import (
    BUDGET,
    CHAIN,
    CONSUMER,
    LENGTH,
    LONGEST_CHAIN,
    OVERSHOOT,
    latest,
    random_below,
)

if TYPE_CHECKING:
    from memopt.planning.problem import Problem
    from memopt.planning.sequence_state import State

NOTHING, ADDED, REMOVED = -1, -2, -3
_TRIES = 8
"""How often something at random is looked for that suits."""


@compiled_late
def add_chain(problem: Problem, state: State) -> bool:
    """Where too much is in use: compute something again that only waits there.

    With it comes what would have to wait there for its sake.

    Returns:
        Whether there is a chain now, in `State.chain`; `withdraw_chain` takes it back.
    """
    state.numbers[CHAIN] = 0
    at = _crowded(state)
    if at < 0:
        return False
    value = _waiting(problem, state, at)
    if value < 0:
        return False
    op = problem.value_op[value]
    place = _first_reader(problem, state, value, at + 1)
    while op >= 0:
        slot = repeat(problem, state, op, place)
        if slot >= 0:
            _enter(state, slot, problem.input_start[op])
        op = _next_missing(problem, state, at)
        if op >= 0:
            place = state.position[state.chain[state.numbers[CONSUMER], 0]]
    return bool(state.numbers[CHAIN] > 0)


@compiled_late
def withdraw_chain(problem: Problem, state: State) -> None:
    """Take back what `add_chain` did."""
    for index in range(state.numbers[CHAIN] - 1, -1, -1):
        remove(problem, state, state.chain[index, 0])


@compiled_late
def remove_chain(problem: Problem, state: State) -> bool:
    """Take out a repeated computation, and those repeated ones that nothing else reads.

    Returns:
        Whether that could be; `restore_chain` takes it back.
    """
    state.numbers[CHAIN] = 0
    slot = state.sequence[random_below(state, state.numbers[LENGTH] - 1)]
    if state.previous[slot] < 0:
        return False
    while slot >= 0:
        _enter(state, slot, state.position[slot])
        remove(problem, state, slot)
        slot = _next_idle(problem, state)
    return True


@compiled_late
def restore_chain(problem: Problem, state: State) -> None:
    """Take back what `remove_chain` did."""
    for index in range(state.numbers[CHAIN] - 1, -1, -1):
        op = state.chain[index, 0] // COPIES
        add(problem, state, op, state.chain[index, 1], state.chain[index, 2])


@compiled
def _enter(state: State, slot: int, number: int) -> None:
    """Add a slot to the chain, with a number that belongs to it."""
    index = state.numbers[CHAIN]
    state.chain[index, 0] = slot
    state.chain[index, 1] = number
    state.chain[index, 2] = state.swapped[slot]
    state.numbers[CHAIN] = index + 1


@compiled
def _waiting(problem: Problem, state: State, at: int) -> int:
    """A value, at random, that is read next behind a position; -1 if none was met."""
    for _ in range(_TRIES):
        slot = state.sequence[random_below(state, at)]
        op = slot // COPIES
        values = problem.value_start[op + 1] - problem.value_start[op]
        if values == 0:
            continue
        value = problem.value_start[op] + random_below(state, values)
        if state.position[state.last[value * COPIES + slot % COPIES]] <= at:
            continue
        if _first_reader(problem, state, value, at) > at:
            return int(value)
    return -1


@compiled
def _next_missing(problem: Problem, state: State, at: int) -> int:
    """The next operation that a chain needs and that would wait at a position only for that.

    -1 if there is none. Who needs it stands in the chain where `CONSUMER` says.
    """
    if state.numbers[CHAIN] == LONGEST_CHAIN:
        return -1
    for index in range(state.numbers[CHAIN]):
        slot = state.chain[index, 0]
        if state.chain[index, 2]:
            continue
        for edge in range(state.chain[index, 1], problem.input_start[slot // COPIES + 1]):
            state.chain[index, 1] = edge + 1
            if _waits_for(problem, state, problem.input_value[edge], slot, at):
                state.numbers[CONSUMER] = index
                return int(problem.input_op[edge])
    return -1


@compiled
def _next_idle(problem: Problem, state: State) -> int:
    """The next repeated computation that nothing reads any more; -1 if there is none."""
    if state.numbers[CHAIN] == LONGEST_CHAIN:
        return -1
    index = state.numbers[CHAIN] - 1
    while index >= 0:
        op = state.chain[index, 0] // COPIES
        first = problem.input_start[op + 1] if state.chain[index, 2] else problem.input_start[op]
        for edge in range(first, problem.input_start[op + 1]):
            slot = latest(state, problem.input_op[edge], state.chain[index, 1])
            if state.previous[slot] >= 0 and not _is_read(problem, state, slot):
                return slot
        index -= 1
    return -1


@compiled
def _crowded(state: State) -> int:
    """A position, at random, at which more is in use than the budget; -1 if none was met."""
    for _ in range(_TRIES):
        at = random_below(state, state.numbers[LENGTH])
        if at > 0 and state.bytes_at[at] > state.numbers[BUDGET]:
            return at
    return -1


@compiled
def _waits_for(problem: Problem, state: State, value: int, reader: int, at: int) -> bool:
    """Whether a value is there at a position for the sake of one reader alone."""
    if problem.size[value] == 0:
        return False
    holder = latest(state, problem.value_op[value], state.position[reader])
    if state.position[holder] >= at:
        return False
    end = state.numbers[LENGTH]
    if state.following[holder] >= 0:
        end = state.position[state.following[holder]]
    for edge in range(problem.reader_start[value], problem.reader_start[value + 1]):
        slot = state.first[problem.reader_op[edge]]
        while slot >= 0 and state.position[slot] <= end:
            if state.position[slot] >= at and slot != reader and not state.swapped[slot]:
                return False
            slot = state.following[slot]
    return True


@compiled
def _first_reader(problem: Problem, state: State, value: int, at: int) -> int:
    """The first position from one on where a value is read; -1 if only the end reads it."""
    found = state.numbers[LENGTH] - 1
    for edge in range(problem.reader_start[value], problem.reader_start[value + 1]):
        slot = state.first[problem.reader_op[edge]]
        while slot >= 0 and (state.position[slot] < at or state.swapped[slot]):
            slot = state.following[slot]
        if slot >= 0:
            found = min(found, state.position[slot])
    return found if found < state.numbers[LENGTH] - 1 else -1


@compiled
def _is_read(problem: Problem, state: State, slot: int) -> bool:
    """Whether anything reads a computation."""
    op = slot // COPIES
    for value in range(problem.value_start[op], problem.value_start[op + 1]):
        if state.last[value * COPIES + slot % COPIES] != slot:
            return True
    return False


@compiled_late
def propose_any(problem: Problem, state: State, recompute_share: int, chain_share: int) -> int:
    """Try a random edit, or a chain of them.

    Args:
        problem: What is planned.
        state: Is changed.
        recompute_share: See `propose`.
        chain_share: Of 1,000 edits, those that compute a chain again where too much is in use; and
            of the others, those that take one out.

    Returns:
        What `take_back` needs; `NOTHING` if nothing was changed.
    """
    if chain_share == 0:
        return propose(problem, state, recompute_share)
    if state.numbers[OVERSHOOT] and random_below(state, 1000) < chain_share:
        return ADDED if add_chain(problem, state) else NOTHING
    if random_below(state, 1000) < chain_share:
        return REMOVED if remove_chain(problem, state) else NOTHING
    return propose(problem, state, recompute_share)


@compiled_late
def take_back(problem: Problem, state: State, edit: int) -> None:
    """Undo the last edit, which `propose_any` returned."""
    if edit == ADDED:
        withdraw_chain(problem, state)
    elif edit == REMOVED:
        restore_chain(problem, state)
    else:
        undo(problem, state, edit)
