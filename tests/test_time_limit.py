"""Planning that is stopped: whenever that is, what was found until then is a plan that runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from support.remat_networks import random_network
from support.rematerialized import assert_computes_the_same
from support.step_networks import layers

from memopt import time_limit
from memopt.rematerialization import plan_choice
from memopt.rematerialization.algorithms import BEST, PATH, PLANNER, SEGMENTS, STANDARD
from memopt.rematerialization.limits import Limits
from memopt.rematerialization.plan_choice import make_plan
from memopt.rematerialization.planned import entry
from memopt.time_limit import NO_LIMIT, TimeIsUpError, TimeLimit

if TYPE_CHECKING:
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized

NETWORKS = {"layers": layers(20), "random": random_network(Random(3), 60)}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes whenever the clock is looked at."""
    ticks = count()
    monkeypatch.setattr(time_limit, "time", SimpleNamespace(monotonic=lambda: next(ticks)))


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("algorithm", [STANDARD, PATH, SEGMENTS, PLANNER, BEST])
def test_what_is_found_until_then_runs_and_needs_no_more_than_nothing(
    algorithm: str, network: Network
) -> None:
    for share in (0.8, 0.4):
        limit_bytes = int(network.peak_bytes * share)
        for seconds in (1, 2, 3, 5, 8, 20, 60, 200, 500):
            limits = Limits(limit_bytes, largest_block=16, time_limit=TimeLimit.after(seconds))
            plan = make_plan(algorithm, network, limits)
            assert plan.peak_bytes <= network.peak_bytes
            if plan.done is not None:
                assert_computes_the_same(plan.done)


@pytest.mark.parametrize(("name", "share"), [("layers", 0.5), ("random", 0.85)])
def test_with_time_left_the_planner_goes_on_with_other_seeds(
    name: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as plans get cheaper; without a limit the same plan is made every time."""
    seeds: list[int] = []

    def plan_from(*arguments: Any) -> Rematerialized:
        seeds.append(arguments[3] if len(arguments) > 3 else 0)
        return entry.plan_from(*arguments)

    monkeypatch.setattr(plan_choice, "plan_from", plan_from)
    network = NETWORKS[name]
    limits = Limits(int(share * network.peak_bytes))
    plan = make_plan(BEST, network, limits)
    assert seeds == [0, 1]
    further = make_plan(BEST, network, replace(limits, time_limit=TimeLimit.after(1000)))
    assert seeds[-1] > 1
    assert further.keeps(limits.limit_bytes)
    assert further.added_ns <= plan.added_ns
    assert further.done is not None
    assert_computes_the_same(further.done)


@pytest.mark.usefixtures("clock")
def test_a_moment_and_shares_of_the_time_until_then() -> None:
    limit = TimeLimit.after(10)  # the clock says 0
    assert limit == TimeLimit(10)
    assert limit.left_s == 9
    assert limit.share(0.5) == TimeLimit(2 + 0.5 * 7)  # the clock says 2, and 3
    limit.check()
    for _ in range(7):
        limit.share(0)
    with pytest.raises(TimeIsUpError):
        limit.check()
    # What is over cannot be shared.
    assert limit.share(0.5).is_over


@pytest.mark.usefixtures("clock")
def test_without_a_limit_there_is_no_end() -> None:
    assert TimeLimit.after(0) == NO_LIMIT == NO_LIMIT.share(0.1)
    assert not NO_LIMIT.is_over
