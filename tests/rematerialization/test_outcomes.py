"""What each algorithm makes of networks like training steps, exactly as it is written down.

The algorithms are heuristics: a change that does worse, or otherwise, breaks no law that another
test knows. Here it shows as a line that differs. Where it was meant, and the new lines are better
on the whole, write them down with

    RENEW_OUTCOMES=1 python -m pytest tests/rematerialization/test_outcomes.py
"""

from __future__ import annotations

import os
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
    from memopt.rematerialization.limits import Plan
    from memopt.rematerialization.network import Network

WRITTEN = Path(__file__).parent / "outcomes.txt"
NETWORKS = {
    "chain": step_networks.chain(1),
    "chain of 60": step_networks.chain(2, 60),
    "residual": step_networks.residual(3),
    "nested": step_networks.nested(4),
    "branches": step_networks.branches(5),
}
SHARES = (0.85, 0.6, 0.4, 0.0)
"""Of what a step needs beyond what is held, the share that is allowed."""


class Case(NamedTuple):
    """A network, an algorithm and what it is asked for, in words."""

    network: str
    algorithm: str
    wish: str


WISHES = tuple(f"{share:.0%}" for share in SHARES)
CASES = [
    Case(network, name, wish)
    for network in NETWORKS
    for name in (STANDARD, PATH, SEGMENTS, PEAK_PRIORITY, PLANNER)
    for wish in WISHES
]
CASES += [Case(network, SQRT, WISHES[0]) for network in NETWORKS]
CASES += [
    Case(network, name, f"{wish} with {extra}")
    for network in ("chain", "residual", "branches")
    for name, extra in ((STANDARD, "room"), (PLANNER, "room"), (PLANNER, "room for a third more"))
    for wish in WISHES[:-1]
]


def limits_of(network: Network, wish: str) -> Limits:
    share, _, extra = wish.partition(" with ")
    held_bytes = network.buffer_graph.held_bytes
    own_bytes = network.peak_bytes - held_bytes
    limit_bytes = held_bytes + own_bytes * int(share.rstrip("%")) // 100
    return Limits(
        limit_bytes,
        smallest_bytes=4096,
        largest_block=16,
        allocator=AllocatorLimit(limit_bytes) if extra else None,
        enough_overhead=0.33 if "third" in extra else 0.0,
    )


def outcome(plan: Plan) -> str:
    """The peak, the cost, what is missing, how many copies, and a check sum of the order."""
    copies = order = 0
    if plan.done is not None:
        nodes = plan.done.buffer_graph.nodes
        copies = len(plan.done.copies)
        order = crc32(" ".join(nodes[number].name for number in plan.done.sequence).encode())
    return f"{plan.peak_bytes} {plan.added_ns} {plan.missing_bytes} {copies} {order:08x}"


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    lines = WRITTEN.read_text().splitlines() if WRITTEN.exists() else []
    return dict(line.split(": ") for line in lines)


@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_the_outcome_is_what_is_written_down(case: Case, written: dict[str, str]) -> None:
    network = NETWORKS[case.network]
    plan = make_plan(case.algorithm, network, limits_of(network, case.wish))
    key = ", ".join(case)
    if os.environ.get("RENEW_OUTCOMES"):
        written[key] = outcome(plan)
        WRITTEN.write_text("".join(f"{name}: {found}\n" for name, found in written.items()))
    assert written.get(key) == outcome(plan)
