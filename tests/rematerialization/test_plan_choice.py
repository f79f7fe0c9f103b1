"""The best of all algorithms: no dearer than the planner without what the others found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.step_networks import layers

from memopt.rematerialization import plan_choice
from memopt.rematerialization.algorithms import BEST, PLANNER
from memopt.rematerialization.limits import Limits
from memopt.rematerialization.plan_choice import make_plan
from memopt.rematerialization.planned import entry
from memopt.rematerialization.planned.entry import plan_from, prepare
from memopt.time_limit import NO_LIMIT, TimeLimit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized

NETWORK = layers(20)
LIMIT_BYTES = NETWORK.peak_bytes // 2


@pytest.fixture
def begun_with(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many starts the planner had, each time; with some, it comes to the dearest of them."""
    prepare()
    calls: list[int] = []

    def misled(
        network: Network, limits: Limits, starts: Sequence[Rematerialized], seed: int = 0
    ) -> Rematerialized:
        calls.append(len(starts))
        if not starts:
            return plan_from(network, limits, starts, seed)
        return max(starts, key=lambda start: start.added_weight)

    for module in (plan_choice, entry):
        monkeypatch.setattr(module, "plan_from", misled)
    return calls


@pytest.mark.parametrize(
    ("seconds", "begun"),
    [pytest.param(0, [3, 0], id="any time"), pytest.param(1000, [3, 0, 1], id="1000 s")],
)
def test_starts_that_mislead_the_planner_cost_nothing(
    begun_with: list[int], seconds: int, begun: list[int]
) -> None:
    # The time begins here: a run of all tests may take longer.
    time_limit = TimeLimit.after(seconds) if seconds else NO_LIMIT
    limits = Limits(LIMIT_BYTES, largest_block=16, time_limit=time_limit)
    best = make_plan(BEST, NETWORK, limits)
    # With a limited time it goes on from the best of them, once where that finds nothing cheaper.
    assert begun_with == begun
    alone = make_plan(PLANNER, NETWORK, limits)
    assert best.peak_bytes <= LIMIT_BYTES
    assert best.added_ns <= alone.added_ns


def test_the_planner_begins_once_where_little_time_is_left(begun_with: list[int]) -> None:
    limits = Limits(LIMIT_BYTES, largest_block=16, time_limit=TimeLimit.after(4))
    assert make_plan(BEST, NETWORK, limits).peak_bytes < NETWORK.peak_bytes
    assert 0 not in begun_with


def test_a_plan_nearby_is_where_the_planner_begins(begun_with: list[int]) -> None:
    limits = Limits(LIMIT_BYTES, largest_block=16)
    near = make_plan(BEST, NETWORK, limits).done
    assert near is not None
    begun_with.clear()
    assert make_plan(BEST, NETWORK, limits, [near]).done is near
    assert begun_with == [1]

    begun_with.clear()
    less = Limits(limits.measure(near).peak_bytes - 1, largest_block=16)
    assert make_plan(BEST, NETWORK, less, [near]).peak_bytes <= less.limit_bytes
    assert begun_with == [1, 3, 0]
