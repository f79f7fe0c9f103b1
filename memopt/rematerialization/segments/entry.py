"""Checkpointing by segments: as many as the limit demands, or as the plain rule says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.rematerialization.segments.algorithm import rematerialize_segments, sqrt_segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.rematerialization.limits import Limits
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized


def segments(network: Network, limits: Limits) -> Iterator[Rematerialized]:
    """Checkpointing by segments, as few and as cheap as the limit demands."""
    yield rematerialize_segments(
        network,
        limits.limit_bytes,
        smallest_bytes=limits.smallest_bytes,
        time_limit=limits.time_limit,
    )


def sqrt(network: Network, limits: Limits) -> Iterator[Rematerialized]:
    """About as many equal segments as the root of their number says, whatever the limit."""
    del limits
    yield sqrt_segments(network)
