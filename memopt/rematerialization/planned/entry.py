"""The planner, by itself or from where other algorithms came."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.rematerialization.limits import Limits
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized


def prepare() -> None:
    """Load the planner, or compile it once on a machine, before its time is counted."""
    # Not before it is used: it imports numba, which takes a while.
    from memopt.planning import planner as loops

    loops.prepare()


def planner(network: Network, limits: Limits) -> Iterator[Rematerialized]:
    """The planner, which knows nothing of what the other algorithms find."""
    yield plan_from(network, limits, ())


def plan_from(
    network: Network, limits: Limits, starts: Sequence[Rematerialized], seed: int = 0
) -> Rematerialized:
    """The planner's plan, which starts from what other algorithms found.

    Args:
        network: The sequence with its buffers.
        limits: What to keep to.
        starts: What they found.
        seed: Of the planner's searches.
    """
    # Not before it is used: it imports numba, which takes a while.
    from memopt.rematerialization.planned.algorithm import rematerialize_planned

    return rematerialize_planned(
        network,
        limits.limit_bytes,
        forms=limits.forms,
        starts=starts,
        pack=limits.pack,
        enough_weight=int(limits.enough_overhead * network.weight) if limits.allocator else 0,
        time_limit=limits.time_limit,
        seed=seed,
    )
