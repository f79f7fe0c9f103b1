"""What each algorithm makes of networks like training steps, exactly as it is written down.

The algorithms are heuristics: a change that does worse, or otherwise, breaks no law that another
test knows. Here it shows as a line that differs. Where it was meant, and the new lines are better
on the whole, write them down with

    RENEW_OUTCOMES=1 python -m pytest tests/rematerialization/test_outcomes.py
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import pytest
from support import step_networks

from memopt.allocator.training import AllocatorLimit
from memopt.rematerialization.algorithms import (
    PATH,
    PEAK_PRIORITY,
    PLANNER,
    SEGMENTS,
    SQRT,
    STANDARD,
)
from memopt.rematerialization.limits import Limits
from memopt.rematerialization.plan_choice import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memopt.rematerialization.limits import Plan
    from memopt.rematerialization.network import Network

IS_RENEWED = bool(os.environ.get("RENEW_OUTCOMES"))
WRITTEN = Path(__file__).parent / "outcomes.txt"
NETWORKS: dict[str, Callable[[], Network]] = {
    "chain": cache(lambda: step_networks.chain(1)),
    "chain of 60": cache(lambda: step_networks.chain(2, 60)),
    "residual": cache(lambda: step_networks.residual(3)),
    "nested": cache(lambda: step_networks.nested(4)),
    "branches": cache(lambda: step_networks.branches(5)),
}
RARE: dict[str, Callable[[], Network]] = {
    "chain of 40": cache(lambda: step_networks.chain(10, 40)),
    "another chain": cache(lambda: step_networks.chain(8)),
    "other branches": cache(lambda: step_networks.branches(6)),
    "more branches": cache(lambda: step_networks.branches(8)),
}
"""For decisions that the others do not come to."""
PERCENTS = (85, 60, 40, 0)
"""Of what a step needs beyond what is held, how much is allowed."""


class Case(NamedTuple):
    """What an algorithm is asked for.

    Attributes:
        network: The name of the network.
        algorithm: The name of the algorithm.
        percent: How much is allowed, of what the network needs beyond what is held.
        in_allocator: Whether the allocator has to find room for it.
        enough_overhead: What it may cost then without a cheaper one being looked for.
    """

    network: str
    algorithm: str
    percent: int
    in_allocator: bool = False
    enough_overhead: float = 0.0

    def __str__(self) -> str:
        room = " with room" if self.in_allocator else ""
        more = " for a third more" if self.enough_overhead else ""
        return f"{self.network}, {self.algorithm}, {self.percent}%{room}{more}"

    def limits(self, network: Network) -> Limits:
        """The limits that say so."""
        held_bytes = network.buffer_graph.held_bytes
        own_bytes = network.peak_bytes - held_bytes
        limit_bytes = held_bytes + own_bytes * self.percent // 100
        return Limits(
            limit_bytes,
            smallest_bytes=4096,
            largest_block=16,
            allocator=AllocatorLimit(limit_bytes) if self.in_allocator else None,
            enough_overhead=self.enough_overhead,
        )


CASES = [
    Case(network, name, percent)
    for network in NETWORKS
    for name in (STANDARD, PATH, SEGMENTS, PEAK_PRIORITY, PLANNER)
    for percent in PERCENTS
]
CASES += [Case(network, SQRT, PERCENTS[0]) for network in NETWORKS]
CASES += [
    Case(network, name, percent, in_allocator=True, enough_overhead=enough)
    for network in ("chain", "residual", "branches")
    for name, enough in ((STANDARD, 0.0), (PLANNER, 0.0), (PLANNER, 0.33))
    for percent in PERCENTS[:-1]
]
CASES += [
    Case("chain of 40", SEGMENTS, 30),
    Case("chain of 40", SEGMENTS, 20),
    Case("another chain", PLANNER, 40, in_allocator=True, enough_overhead=0.33),
    Case("other branches", PATH, 75, in_allocator=True),
    Case("other branches", SEGMENTS, 75, in_allocator=True),
    Case("more branches", PLANNER, 50),
]


def outcome(plan: Plan) -> str:
    """The peak, the cost, what is missing, how many copies, and a check sum of the order."""
    copies = order = 0
    if plan.done is not None:
        nodes = plan.done.buffer_graph.nodes
        copies = len(plan.done.copies)
        order = crc32(" ".join(nodes[number].name for number in plan.done.sequence).encode())
    return f"{plan.peak_bytes} {plan.added_ns} {plan.missing_bytes} {copies} {order:08x}"


@pytest.fixture(scope="module")
def written() -> Iterator[dict[str, str]]:
    """The outcomes by case; those that are to be renewed are written when all have run."""
    lines = WRITTEN.read_text().splitlines() if WRITTEN.exists() else []
    outcomes = dict(line.split(": ") for line in lines)
    yield outcomes
    if IS_RENEWED:
        names = [name for name in map(str, CASES) if name in outcomes]
        WRITTEN.write_text("".join(f"{name}: {outcomes[name]}\n" for name in names))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_outcome_is_what_is_written_down(case: Case, written: dict[str, str]) -> None:
    network = (NETWORKS | RARE)[case.network]()
    found = outcome(make_plan(case.algorithm, network, case.limits(network)))
    if IS_RENEWED:
        written[str(case)] = found
    assert written.get(str(case)) == found
