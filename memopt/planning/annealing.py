"""Simulated annealing over whole sequences: cheap plans within a budget.

What is minimised is the cost plus a price for every byte over the budget, summed over the
sequence. The price follows what happens: it rises while hardly any sequence is within the budget,
and falls while most are.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memopt.compilation.jit import compile_for, compiled, compiled_apart
from memopt.planning.chains import NOTHING, propose_any, take_back
from memopt.planning.edits import remove, undo
from memopt.planning.problem import COPIES
from memopt.planning.sequence_state import (
    BUDGET,
    CHANGES,
    COST,
    LENGTH,
    LONGEST_CHAIN,
    OVERSHOOT,
    latest,
    random_below,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from memopt.planning.arrays import IntArray
    from memopt.planning.problem import Problem
    from memopt.planning.sequence_state import State

_DRAWS = 4096
_DIGITS = 9
_THRESHOLDS = np.round(-np.log((np.arange(_DRAWS) + 0.5) / _DRAWS), _DIGITS)
"""How much worse, in temperatures, each of 4,096 equally likely draws accepts. Logarithms and
powers, here and below, are rounded: their last bits differ between machines."""
_COOLING_PERIOD = 256
_PRICE_PERIOD = 4096
_FEW, _MANY = 0.3, 0.6
_RAISE, _LOWER = 1.15, 1 / 1.1
_MOST_DEARER = 100.0
_SLICE = 25 * _PRICE_PERIOD
"""Edits between two looks at the clock, at most. Any multiple of the period gives the same plan."""
_SLICE_S = 0.1
"""Seconds between two looks, if that many edits take longer: an interruption waits no longer."""
_TEMPERATURE, _COOLING, _PRICE, _DEAREST, _WITHIN = range(5)
"""Places of what a search carries from slice to slice."""


@dataclass(frozen=True)
class Schedule:
    """How a search goes.

    Attributes:
        edits: How many are tried.
        changes: How many computations they put in, take out or move at most, for each of them:
            chains do so with several. There the search ends.
        hot: The temperature at the start, in costs of an average operation.
        cold: The temperature at the end.
        recompute_share: Of 1,000 edits, those that compute something again.
        chain_share: Of 1,000 edits, those of whole chains; see `propose_any`.
        price: What an average output over the budget costs at the start, in costs of an average
            operation.
    """

    edits: int
    hot: float = 1.0
    cold: float = 0.01
    recompute_share: int = 200
    chain_share: int = 0
    price: float = 0.1
    changes: int = 2 * LONGEST_CHAIN


class Best(NamedTuple):
    """The best sequence so far: least overshoot, then least cost.

    Attributes:
        operations: The operations in order, as far as `numbers` says; the end is left out.
        swapped: For each of them, 1 if it is a swap in.
        numbers: Length, overshoot and cost.
    """

    operations: IntArray
    swapped: IntArray
    numbers: IntArray


def new_best(state: State) -> Best:
    """Nothing found yet, for sequences of a state."""
    numbers = np.array([0, np.iinfo(np.int64).max, np.iinfo(np.int64).max])
    return Best(np.zeros_like(state.sequence), np.zeros_like(state.sequence), numbers)


def anneal(
    problem: Problem,
    state: State,
    best: Best,
    schedule: Schedule,
    deadline_s: float = math.inf,
    tell: Callable[[int], None] | None = None,
) -> bool:
    """Search from a state's sequence.

    Args:
        problem: What is planned.
        state: Holds the sequence to start from, and is left somewhere near the end of the search.
        best: Gets every sequence that is better than what it has.
        schedule: How long and how hot.
        deadline_s: When to stop at the latest, by `time.monotonic`.
        tell: Is told how many edits were tried since it was told last.

    Returns:
        Whether it came to its end before the deadline.
    """
    operations = max(1, int(np.count_nonzero(problem.cost)))
    cost_unit = max(1.0, float(problem.cost.sum()) / operations)
    sizes = max(1, int(np.count_nonzero(problem.size)))
    size_unit = max(1.0, float(problem.size.sum()) / sizes)
    periods = max(1, schedule.edits // _COOLING_PERIOD)
    numbers = np.zeros(5, np.float64)
    numbers[_TEMPERATURE] = schedule.hot * cost_unit
    cooling = math.pow(schedule.cold / schedule.hot, 1 / periods)
    numbers[_COOLING] = round(cooling, _DIGITS)
    numbers[_PRICE] = schedule.price * cost_unit / size_unit
    numbers[_DEAREST] = numbers[_PRICE] * _MOST_DEARER
    record(state, best)
    last_change = int(state.numbers[CHANGES]) + schedule.changes * schedule.edits
    left, size = schedule.edits, _PRICE_PERIOD
    while left > 0:
        started_s = time.monotonic()
        if started_s > deadline_s:
            return False
        edits = min(size, left)
        effort = (edits, last_change, schedule.recompute_share, schedule.chain_share)
        search_slice(problem, state, best, effort, numbers)
        left -= edits
        if tell is not None:
            tell(edits)
        if state.numbers[CHANGES] > last_change:
            return True
        if 2 * (time.monotonic() - started_s) < _SLICE_S:
            size = min(2 * size, _SLICE)
    return True


def compile_annealing(problem: Problem, state: State) -> None:
    """Compile all that is here, what takes longest first."""
    best, numbers = new_best(state), np.zeros(5, np.float64)
    compile_for(search_slice, problem, state, best, (0, 0, 0, 0), numbers)
    compile_for(tidy, problem, state)
    compile_for(record, state, best)


@compiled_apart
def record(state: State, best: Best) -> None:
    """Keep the state's sequence if it is the best."""
    overshoot = state.numbers[OVERSHOOT]
    cost = state.numbers[COST]
    if overshoot > best.numbers[1] or (overshoot == best.numbers[1] and cost >= best.numbers[2]):
        return
    length = state.numbers[LENGTH] - 1
    best.numbers[0] = length
    best.numbers[1] = overshoot
    best.numbers[2] = cost
    for at in range(length):
        slot = state.sequence[at]
        best.operations[at] = slot // COPIES
        best.swapped[at] = state.swapped[slot]


@compiled_apart
def tidy(problem: Problem, state: State) -> None:
    """Take out every repeated computation without which no more bytes are over the budget."""
    at = 0
    while at < state.numbers[LENGTH] - 1:
        slot = state.sequence[at]
        if state.previous[slot] < 0:
            at += 1
            continue
        if is_needed(problem, state, slot):
            at += 1
            continue
        overshoot = state.numbers[OVERSHOOT]
        remove(problem, state, slot)
        if state.numbers[OVERSHOOT] > overshoot:
            undo(problem, state, slot)
            at += 1


@compiled
def is_needed(problem: Problem, state: State, slot: int) -> bool:
    """Whether it is seen without an edit that a sequence goes over its budget without a repetition.

    An edit of a long sequence takes as long as the sequence is. Here the first position is enough
    at which there is no room for what the repetition makes: from the last that reads what the
    computation before has made, up to where something is computed that could go sooner.
    """
    if state.numbers[OVERSHOOT] > 0:
        return False
    op = slot // COPIES
    end = state.position[slot]
    for edge in range(problem.input_start[op], problem.input_start[op + 1]):
        holder = latest(state, problem.input_op[edge], state.position[slot])
        if state.last[problem.input_value[edge] * COPIES + holder % COPIES] == slot:
            end = min(end, state.position[holder])
    for value in range(problem.value_start[op], problem.value_start[op + 1]):
        if state.last[value * COPIES + slot % COPIES] == slot:
            continue
        last = state.last[value * COPIES + state.previous[slot] % COPIES]
        most_bytes = state.numbers[BUDGET] - problem.size[value]
        for at in range(state.position[last] + 1, end):
            if state.bytes_at[at] > most_bytes:
                return True
    return False


@compiled_apart
def search_slice(
    problem: Problem,
    state: State,
    best: Best,
    effort: tuple[int, int, int, int],
    numbers: npt.NDArray[np.float64],
) -> None:
    """Try so many edits.

    Args:
        problem: What is planned.
        state: Holds the sequence that is edited.
        best: Gets every sequence that is better than what it has.
        effort: How many edits, after how many changes of the sequence no other one is tried, and of
            1,000 edits those that compute something again, and those of whole chains.
        numbers: What is carried from slice to slice.
    """
    edits, last_change, recompute_share, chain_share = effort
    temperature = numbers[_TEMPERATURE]
    price = numbers[_PRICE]
    within = numbers[_WITHIN]
    energy = state.numbers[COST] + price * state.numbers[OVERSHOOT]
    for number in range(edits):
        if state.numbers[CHANGES] > last_change:
            break
        if number % _COOLING_PERIOD == 0:
            temperature *= numbers[_COOLING]
        if number % _PRICE_PERIOD == _PRICE_PERIOD - 1:
            price = _adapted(price, within / _PRICE_PERIOD, numbers[_DEAREST])
            within = 0.0
            energy = state.numbers[COST] + price * state.numbers[OVERSHOOT]
        if state.numbers[OVERSHOOT] == 0:
            within += 1.0
        edit = propose_any(problem, state, recompute_share, chain_share)
        if edit == NOTHING:
            continue
        changed = state.numbers[COST] + price * state.numbers[OVERSHOOT]
        if changed - energy <= temperature * _THRESHOLDS[random_below(state, _DRAWS)]:
            energy = changed
            record(state, best)
        else:
            take_back(problem, state, edit)
    numbers[_TEMPERATURE] = temperature
    numbers[_PRICE] = price
    numbers[_WITHIN] = within


@compiled
def _adapted(price: float, within: float, dearest: float) -> float:
    if within < _FEW:
        return min(price * _RAISE, dearest)
    if within > _MANY:
        return price * _LOWER
    return price
