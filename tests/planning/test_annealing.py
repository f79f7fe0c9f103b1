"""How far few edits get, and that a search ends when it has changed enough."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from support.layered_graphs import layered_graph

from memopt.planning.annealing import Best, Schedule, anneal, is_needed, new_best, tidy
from memopt.planning.checker import judge
from memopt.planning.edits import add, remove, undo
from memopt.planning.problem import Problem, problem_of
from memopt.planning.search_effort import Effort
from memopt.planning.searches import steps_of
from memopt.planning.sequence_state import (
    CHANGES,
    LENGTH,
    LONGEST_CHAIN,
    OVERSHOOT,
    State,
    fill,
    free_slot,
    new_state,
)

_OPERATIONS = 800
_EDITS_FOR_EACH = 150
_NEEDLESS = 40


def search(*schedules: Schedule) -> tuple[State, Best]:
    """Search a layered graph within half of what its order needs, with one after the other."""
    graph = layered_graph(_OPERATIONS, 1)
    problem = problem_of(graph)
    room = judge(graph, graph.order.tolist()).peak_bytes // 2
    state = new_state(problem, room, 0)
    best = new_best(state)
    fill(problem, state, graph.order, np.zeros_like(graph.order))
    for schedule in schedules:
        anneal(problem, state, best, schedule)
    return state, best


def test_few_edits_get_further_when_they_finish_in_chains() -> None:
    effort = Effort.of(_OPERATIONS, edits_per_operation=_EDITS_FOR_EACH)
    one_by_one = replace(effort.finish, chain_share=0, changes=1)
    _, alone = search(effort.polish, one_by_one)
    _, finished = search(effort.polish, effort.finish)
    overshoots = int(alone.numbers[1]), int(finished.numbers[1])
    assert overshoots[1] * 10 < overshoots[0]


def test_chains_end_when_they_have_changed_enough() -> None:
    chains = Schedule(2_000, chain_share=1_000)
    usual, _ = search(chains)
    short, _ = search(replace(chains, changes=2))
    assert usual.numbers[CHANGES] > 2 * chains.edits + 2 * LONGEST_CHAIN
    assert short.numbers[CHANGES] <= 2 * chains.edits + 2 * LONGEST_CHAIN


def test_tidying_takes_out_what_one_by_one_is_not_needed() -> None:
    graph = layered_graph(_OPERATIONS, 1)
    problem = problem_of(graph)
    _, best = search(Effort.of(_OPERATIONS).polish)
    found = steps_of(best)
    measured = new_state(problem, 0, 0)
    fill(problem, measured, *found)
    room = int(measured.bytes_at[: measured.numbers[LENGTH]].max())
    tidied, expected = (new_state(problem, room, 0) for _ in range(2))
    for state in (tidied, expected):
        fill(problem, state, *found)
        _repeat_needlessly(problem, state)
    repeated = [slot for slot in _sequence(expected) if expected.previous[slot] >= 0]
    needed = sum(is_needed(problem, expected, slot) for slot in repeated)
    assert 0.1 * len(repeated) < needed < len(repeated) - _NEEDLESS // 2
    for slot in repeated:
        remove(problem, expected, slot)
        if expected.numbers[OVERSHOOT]:
            undo(problem, expected, slot)
    tidy(problem, tidied)
    assert _sequence(tidied) == _sequence(expected)
    assert len(_sequence(tidied)) <= len(found.operations) + 1


def _repeat_needlessly(problem: Problem, state: State) -> None:
    """Compute operations once more, where what that takes is free."""
    draw, graph_operations, added = random.Random(1), len(problem.cost) - 1, 0
    while added < _NEEDLESS:
        op = draw.randrange(graph_operations)
        if problem.single[op] or free_slot(state, op) < 0:
            continue
        at = draw.randrange(int(state.position[state.first[op]]) + 1, int(state.numbers[LENGTH]))
        slot = add(problem, state, op, at, 0)
        if state.numbers[OVERSHOOT]:
            undo(problem, state, slot)
        else:
            added += 1


def _sequence(state: State) -> list[int]:
    slots: list[int] = state.sequence[: state.numbers[LENGTH]].tolist()
    return slots
