"""Where a computation may stand, and which random edits the search tries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.compilation.jit import compiled, compiled_late
from memopt.planning.edits import add, move, remove
from memopt.planning.problem import COPIES
from memopt.planning.sequence_state import LENGTH, free_slot, random_below

if TYPE_CHECKING:
    from memopt.planning.problem import Problem
    from memopt.planning.sequence_state import State

_NEAR = 5
"""Of eight relocations, those from this one on go a few positions far."""


@compiled
def lowest(problem: Problem, state: State, slot: int) -> int:
    """The first position that a computation may have, the others staying as they are."""
    op = slot // COPIES
    low = 0
    if state.previous[slot] >= 0:
        low = state.position[state.previous[slot]] + 1
    if state.swapped[slot]:
        return low
    for edge in range(problem.before_start[op], problem.before_start[op + 1]):
        low = max(low, state.position[state.first[problem.before[edge]]] + 1)
    for edge in range(problem.ends_start[op], problem.ends_start[op + 1]):
        ended = state.first[problem.ends[edge]]
        while ended >= 0:
            if not state.swapped[ended]:
                low = max(low, state.position[ended] + 1)
            ended = state.following[ended]
    return low


@compiled
def highest(problem: Problem, state: State, slot: int) -> int:
    """The last position that a computation may have, the others staying as they are."""
    op = slot // COPIES
    high = state.numbers[LENGTH] - 2
    if state.following[slot] >= 0:
        high = state.position[state.following[slot]] - 1
    if not state.swapped[slot]:
        for edge in range(problem.until_start[op], problem.until_start[op + 1]):
            high = min(high, state.position[state.first[problem.until[edge]]] - 1)
    if state.previous[slot] < 0:
        high = min(high, before_readers(problem, state, op))
    return int(high)


@compiled
def before_readers(problem: Problem, state: State, op: int) -> int:
    """The last position at which all that needs an operation is still to come."""
    high = state.numbers[LENGTH] - 2
    for edge in range(problem.after_start[op], problem.after_start[op + 1]):
        high = min(high, state.position[state.first[problem.after[edge]]] - 1)
    return int(high)


@compiled
def is_removable(problem: Problem, state: State, slot: int) -> bool:
    """Whether what reads a computation finds another one when it is gone."""
    if state.previous[slot] >= 0:
        return True
    following = state.following[slot]
    if following < 0 or state.swapped[following]:
        return False
    return bool(state.position[following] <= before_readers(problem, state, slot // COPIES))


@compiled_late
def propose(problem: Problem, state: State, recompute_share: int) -> int:
    """Try a random edit.

    Args:
        problem: What is planned.
        state: Is changed.
        recompute_share: How many of 1,000 edits compute something again; as many take such a
            computation out, and the others move one.

    Returns:
        The slot that was edited, -1 if nothing was.
    """
    choice = random_below(state, 1000)
    if choice < recompute_share:
        return _recompute(problem, state)
    at = random_below(state, state.numbers[LENGTH] - 1)
    slot = state.sequence[at]
    if choice >= 2 * recompute_share:
        return _relocate(problem, state, slot)
    if not is_removable(problem, state, slot):
        return -1
    remove(problem, state, slot)
    return int(slot)


@compiled_late
def _recompute(problem: Problem, state: State) -> int:
    """Recompute, or swap in, what some computation reads, right before it."""
    at = 1 + random_below(state, state.numbers[LENGTH] - 1)
    reader = state.sequence[at]
    op = reader // COPIES
    inputs = problem.input_start[op + 1] - problem.input_start[op]
    if inputs == 0 or state.swapped[reader]:
        return -1
    source = problem.input_op[problem.input_start[op] + random_below(state, inputs)]
    return repeat(problem, state, source, at)


@compiled_late
def repeat(problem: Problem, state: State, source: int, at: int) -> int:
    """Compute an operation again, or swap it in, at a position behind its first computation.

    Returns:
        The new slot, -1 if that cannot be.
    """
    if state.sequence[at - 1] // COPIES == source or not _has_room(state, source):
        return -1
    swapped = 0
    if problem.swap_cost[source] and (problem.single[source] or random_below(state, 2)):
        swapped = 1
    elif problem.single[source]:
        return -1
    else:
        for edge in range(problem.until_start[source], problem.until_start[source + 1]):
            if state.position[state.first[problem.until[edge]]] < at:
                return -1
    return add(problem, state, source, at, swapped)


@compiled
def _has_room(state: State, op: int) -> bool:
    return state.numbers[LENGTH] + 1 < len(state.sequence) and free_slot(state, op) >= 0


@compiled_late
def _relocate(problem: Problem, state: State, slot: int) -> int:
    """Move a computation: to where it is needed, to where it can be first, far or near."""
    low = lowest(problem, state, slot)
    high = highest(problem, state, slot)
    at = state.position[slot]
    choice = random_below(state, 8)
    if choice == 0:
        to = low
    elif choice == 1:
        to = high
    elif choice < _NEAR:
        to = low + random_below(state, high - low + 1)
    else:
        distance = 1 + random_below(state, 8)
        to = at + distance if random_below(state, 2) else at - distance
        to = max(low, min(high, to))
    if to == at:
        return -1
    move(problem, state, slot, to)
    return slot
