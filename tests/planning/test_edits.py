"""Every edit of a sequence under search leaves what the checker finds, and can be undone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from support.cost_graphs import random_graph

from memopt.planning.chains import ADDED, NOTHING, propose_any, take_back
from memopt.planning.checker import judge
from memopt.planning.cost_graph import CostGraph, Operation
from memopt.planning.edits import add, move, remove, undo
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


@pytest.mark.parametrize("seed", range(40))
def test_chains_keep_count_and_can_be_undone(seed: int) -> None:
    draw = random.Random(seed)
    graph = random_graph(seed)
    problem = problem_of(graph)
    state = new_state(problem, 15, seed)
    fill(problem, state, graph.order, np.zeros_like(graph.order))
    for _ in range(_EDITS):
        before = _contents(state)
        edit = propose_any(problem, state, 200, 600)
        _compare(graph, state)
        if edit == NOTHING:
            assert _contents(state) == before
        if edit != NOTHING and draw.random() < 0.5:
            take_back(problem, state, edit)
            _compare(graph, state)
            assert _contents(state) == before


def test_a_chain_is_computed_again_together() -> None:
    """Alone, none of a row of cheap results frees anything: the one before would be kept for it."""
    row = [Operation(5, (8,), is_recomputable=False)]
    row += [Operation(1, (8,), ((place, 0),)) for place in range(3)]
    middle = [Operation(5, (8,), ((3, 0),))]
    middle += [Operation(5, (8,), ((place, 0),), scratch_bytes=8) for place in range(4, 8)]
    last = [Operation(1, (0,), ((8, 0), (3, 0), (0, 0)), kept=(0,))]
    graph = CostGraph.build([*row, *middle, *last])
    problem = problem_of(graph)
    state = new_state(problem, 32, 1)
    fill(problem, state, graph.order, np.zeros_like(graph.order))
    found = 0
    while found < 20:
        if propose_any(problem, state, 0, 1000) != ADDED:
            continue
        found += 1
        slots = state.sequence[: state.numbers[LENGTH] - 1]
        assert (slots // COPIES).tolist() == [*range(9), 1, 2, 3, 9]
        assert state.numbers[OVERSHOOT] == 0
        take_back(problem, state, ADDED)


def _contents(state: State) -> Any:
    length = int(state.numbers[LENGTH])
    slots = state.sequence[:length]
    return (
        (slots // COPIES).tolist(),
        state.swapped[slots].tolist(),
        state.bytes_at[:length].tolist(),
        state.numbers[[LENGTH, COST, OVERSHOOT]].tolist(),
    )


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
        return add(problem, state, op, at, 1)
    ends = problem.until[problem.until_start[op] : problem.until_start[op + 1]]
    if problem.single[op] or any(state.position[state.first[ends]] < at):
        return -1
    return add(problem, state, op, at, 0)


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
