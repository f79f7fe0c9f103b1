"""How far few edits get, and that a search ends when it has changed enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from support.layered_graphs import layered_graph

from memopt.planning.annealing import Best, Schedule, anneal, new_best
from memopt.planning.checker import judge
from memopt.planning.problem import problem_of
from memopt.planning.search_effort import Effort
from memopt.planning.sequence_state import CHANGES, LONGEST_CHAIN, State, fill, new_state

_OPERATIONS = 800
_EDITS_FOR_EACH = 150


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
