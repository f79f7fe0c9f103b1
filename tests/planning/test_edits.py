"""Every edit of a sequence under search leaves what the checker finds, and can be undone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.cost_graphs import random_graph

from memopt.planning.checker import judge
from memopt.planning.edits import add, add_swap, move, remove, undo
from memopt.planning.moves import highest, is_removable, lowest
from memopt.planning.problem import COPIES, Problem, problem_of
from memopt.planning.sequence_state import (
    BUDGET,
    COST,
    LENGTH,
    OVERSHOOT,
    State,
    fill,
    free_slot,
    new_state,
)

if TYPE_CHECKING:
    from memopt.planning.cost_graph import CostGraph

_EDITS = 60


@pytest.mark.parametrize("seed", range(40))
def test_edits_keep_count_and_can_be_undone(seed: int) -> None:
    draw = random.Random(seed)
    graph = random_graph(seed)
    problem = problem_of(graph)
    state = new_state(problem, 30, seed)
    fill(problem, state, graph.order, np.zeros_like(graph.order))
    _compare(graph, state)
    for _ in range(_EDITS):
        before = _snapshot(state)
        slot = _edit(problem, state, draw)
        _compare(graph, state)
        if slot >= 0 and draw.random() < 0.5:
            undo(problem, state, slot)
            assert _snapshot(state) == before


def _edit(problem: Problem, state: State, draw: random.Random) -> int:
    length = int(state.numbers[LENGTH])
    choice = draw.random()
    if choice < 0.25:
        return _add(problem, state, draw)
    slot = int(state.sequence[draw.randrange(length - 1)])
    if choice < 0.5:
        if not is_removable(problem, state, slot):
            return -1
        remove(problem, state, slot)
        return slot
    low, high = lowest(problem, state, slot), highest(problem, state, slot)
    assert low <= state.position[slot] <= high
    to = draw.randint(low, high)
    if to == state.position[slot]:
        return -1
    move(problem, state, slot, to)
    return slot


def _add(problem: Problem, state: State, draw: random.Random) -> int:
    op = draw.randrange(len(problem.cost) - 1)
    length = int(state.numbers[LENGTH])
    at = draw.randint(int(state.position[state.first[op]]) + 1, length - 1)
    if free_slot(state, op) < 0 or length + 2 > len(state.sequence):
        return -1
    if problem.swap_cost[op] and draw.random() < 0.5:
        return add_swap(problem, state, op, at)
    ends = problem.until[problem.until_start[op] : problem.until_start[op + 1]]
    if problem.single[op] or any(state.position[state.first[ends]] < at):
        return -1
    return add(problem, state, op, at)


def _compare(graph: CostGraph, state: State) -> None:
    length = int(state.numbers[LENGTH])
    slots = state.sequence[: length - 1]
    swaps = [place for place, slot in enumerate(slots) if state.swapped[slot]]
    found = judge(graph, (slots // COPIES).tolist(), swaps)
    assert list(found.step_bytes) == state.bytes_at[:length].tolist()
    assert found.cost == state.numbers[COST]
    over = sum(max(0, in_use - int(state.numbers[BUDGET])) for in_use in found.step_bytes)
    assert over == state.numbers[OVERSHOOT]


def _snapshot(state: State) -> Any:
    length = int(state.numbers[LENGTH])
    slots = state.sequence[:length]
    return (
        slots.tolist(),
        state.bytes_at[:length].tolist(),
        state.own_bytes[slots].tolist(),
        state.following[slots].tolist(),
        state.previous[slots].tolist(),
        state.first.tolist(),
        state.numbers[[LENGTH, COST, OVERSHOOT]].tolist(),
    )
