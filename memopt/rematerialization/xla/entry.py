"""XLA's walks, with the limit and with others near it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.rematerialization.storage.forms import Strategies
from memopt.rematerialization.xla.algorithm import Walk, along_sequence
from memopt.rematerialization.xla.peak_priority import rematerialize_peaks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.rematerialization.limits import Limits
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized

_LOWER = (1.0, 0.95, 0.9, 0.8, 0.65, 0.5)
"""Shares of the limit on the step's own bytes to walk with, until the result is within it."""
_HIGHER = (0.8, 0.6, 0.4, 0.3, 0.2, 0.1)
"""Where none is: shares of what is missing to add to the limit."""


def standard(network: Network, limits: Limits) -> Iterator[Rematerialized]:
    """XLA's walk, with the limit, and with others where its result is not within it.

    Copies that live longer than the walk knew can make the result exceed the limit; a lower one
    leaves them room. A walk that tries for what cannot be had makes copies in vain; one with a
    higher limit may come nearer.
    """
    for walk in _walks(network, limits, recompute=True):
        yield along_sequence(network, walk)


def compress(network: Network, limits: Limits) -> Iterator[Rematerialized]:
    """The same walks, which keep results in other forms and compute nothing again."""
    for walk in _walks(network, limits, recompute=False):
        yield along_sequence(network, walk)


def peak_priority(network: Network, limits: Limits) -> Iterator[Rematerialized]:
    """Today's XLA's: walks for the sake of one peak after the other."""
    for walk in _walks(network, limits, recompute=True):
        yield rematerialize_peaks(network, walk)


def _walks(network: Network, limits: Limits, *, recompute: bool) -> Iterator[Walk]:
    """Walks with the limit, with lower ones and, for what is out of reach, with higher ones."""
    held_bytes = network.buffer_graph.held_bytes
    room_bytes = max(limits.limit_bytes - held_bytes, 0)
    missing_bytes = network.peak_bytes - held_bytes - room_bytes
    targets = [int(room_bytes * share) for share in _LOWER] if room_bytes else []
    targets += [room_bytes + int(missing_bytes * share) for share in _HIGHER]
    for target_bytes in targets:
        yield Walk(
            held_bytes + target_bytes,
            largest_block=limits.largest_block,
            smallest_bytes=limits.smallest_bytes,
            strategies=Strategies(recompute, limits.forms),
            time_limit=limits.time_limit,
        )
