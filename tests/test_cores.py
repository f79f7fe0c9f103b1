"""Work that is spread over the cores: the same as one after the other, and stopped together."""

from __future__ import annotations

import threading

import pytest
from support.layered_graphs import layered_graph

import memopt
from memopt import cores
from memopt.cores import side_by_side, usable_cores


def never() -> None:
    raise AssertionError


@pytest.mark.parametrize("count", [1, 2, 3])
def test_results_are_in_the_order_of_the_works(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: count)
    assert side_by_side([lambda n=n: n * n for n in range(5)], never) == [0, 1, 4, 9, 16]  # type: ignore[misc]
    assert usable_cores() >= 1


def test_works_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: 2)
    both = threading.Barrier(2, timeout=60)
    assert sorted(side_by_side([both.wait, both.wait], never)) == [0, 1]


def test_where_one_fails_the_others_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: 2)
    stopped = threading.Event()

    def fail() -> bool:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        side_by_side([fail, lambda: stopped.wait(60)], stopped.set)
    assert stopped.is_set()


@pytest.mark.slow
def test_a_plan_does_not_depend_on_how_many_cores_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = layered_graph(60, seed=1)
    plans = []
    for count in (1, 2, 4):
        monkeypatch.setattr(cores, "usable_cores", lambda count=count: count)
        plans.append(memopt.plan(graph, 0.7))
    assert plans[0].cost > plans[0].base_cost
    assert plans[0].sequence == plans[1].sequence == plans[2].sequence
