"""Searches that go far: each order begins one, and those by force find what others do not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memopt.planning.annealing import Schedule, new_best
from memopt.planning.cost_graph import CostGraph, Operation
from memopt.planning.far_searches import FarSearches
from memopt.planning.initial_plans import unchanged
from memopt.planning.problem import problem_of
from memopt.planning.search_effort import ROUNDS, Effort
from memopt.planning.searches import Searches, rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.planning.annealing import Best
    from memopt.planning.sequence_state import State

LARGE, BRANCHES = 100, 6


def branches() -> CostGraph:
    """Each branch makes something large and something small of it, and the last reads the small."""
    operations = []
    for number in range(BRANCHES):
        operations.append(Operation(1, (LARGE,), is_recomputable=False))
        operations.append(Operation(1, (1,), inputs=((2 * number, 0),), is_recomputable=False))
    smalls = tuple((2 * number + 1, 0) for number in range(BRANCHES))
    operations.append(Operation(1, (1,), inputs=smalls, kept=(0,)))
    return CostGraph.build(operations)


BY_BRANCH = list(range(2 * BRANCHES + 1))
ALL_LARGE_FIRST = [*range(0, 2 * BRANCHES, 2), *range(1, 2 * BRANCHES, 2), 2 * BRANCHES]
ROOM = LARGE + 2 * BRANCHES


def searches_from(
    orders: Sequence[Sequence[int]], effort: Effort
) -> tuple[FarSearches, State, Best]:
    """Searches, and the worst order as what was known before."""
    graph = branches()
    problem = problem_of(graph)
    common = Searches(graph, problem, math.inf, seed=0)
    far = FarSearches(common, effort, [np.array(order, np.int64) for order in orders])
    state = common.state(ROOM)
    best = new_best(state)
    common.offer(state, best, unchanged(np.array(ALL_LARGE_FIRST, np.int64)))
    return far, state, best


def without_a_search() -> Effort:
    """What comes out is what was begun with."""
    effort, nothing = Effort.of(2 * BRANCHES + 1), Schedule(0)
    return replace(effort, explore=nothing, rework=(nothing,), begins=((nothing, nothing),))


@pytest.mark.parametrize(
    ("orders", "is_within"),
    [
        ([ALL_LARGE_FIRST], False),
        ([BY_BRANCH], True),
        ([ALL_LARGE_FIRST, BY_BRANCH], True),
        ([BY_BRANCH, ALL_LARGE_FIRST], True),
    ],
)
def test_each_order_begins_a_search(orders: list[list[int]], is_within: bool) -> None:
    far, state, best = searches_from(orders, without_a_search())
    anew = min((search() for search in far.anew(ROOM, range(2))), key=rank)
    found = [far.briefly(state, best), anew]
    assert [not each.numbers[1] for each in found] == [is_within] * 2


@pytest.mark.parametrize(
    ("ways", "are_within"),
    [
        (1, [False, True]),
        (2, [False, True, True, False]),
        (3, [False, True, False, True, False, True]),
    ],
)
def test_each_way_begins_from_every_order(ways: int, are_within: list[bool]) -> None:
    effort = replace(without_a_search(), begins=((Schedule(0), Schedule(0)),) * ways)
    far, _, _ = searches_from([ALL_LARGE_FIRST, BY_BRANCH], effort)
    assert [not search().numbers[1] for search in far.anew(ROOM, range(2))] == are_within


def test_each_number_is_another_search() -> None:
    common = Searches(branches(), problem_of(branches()), math.inf, seed=0)
    states = [common.state(ROOM, number) for number in range(3)]
    assert len({state.numbers.tobytes() for state in states}) == 3


def test_an_order_that_is_over_the_room_is_left() -> None:
    far, state, best = searches_from([ALL_LARGE_FIRST], Effort.of(2 * BRANCHES + 1))
    assert best.numbers[1]
    assert not far.briefly(state, best).numbers[1]
    assert not far.insist(ROOM).numbers[1]


@pytest.mark.parametrize("operations", [20, 234, 1_000])
def test_all_searches_together_try_as_many_edits_as_suit_the_graph(operations: int) -> None:
    effort = Effort.of(operations, ROUNDS, edits_per_operation=5_000)
    anew = sum(schedule.edits for begin in effort.begins for schedule in begin)
    edits = effort.polish.edits + ROUNDS * anew + effort.finish.edits
    assert 0.99 * 5_000 * operations < edits <= 5_000 * operations
