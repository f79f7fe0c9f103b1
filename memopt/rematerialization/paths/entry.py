"""Microsoft's path algorithm, with the order that XLA's default scheduler finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.buffers.buffer_graph import simulate
from memopt.rematerialization.paths.algorithm import rematerialize_paths
from memopt.sequencing.depth_first import dfs_sequence, postorder_sequence
from memopt.sequencing.list_order import list_sequence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.rematerialization.limits import Limits
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized
    from memopt.sequencing.precedence import Precedence

_SCHEDULERS = (list_sequence, dfs_sequence, postorder_sequence)


def path(network: Network, limits: Limits) -> Iterator[Rematerialized]:
    """Microsoft's path algorithm."""
    yield rematerialize_paths(
        network,
        limits.limit_bytes,
        make_sequence=_lowest,
        smallest_bytes=limits.smallest_bytes,
        time_limit=limits.time_limit,
    )


def _lowest(buffer_graph: BufferGraph, precedence: Precedence) -> list[int]:
    """The sequence with the lowest simulated peak, as XLA's default scheduler finds it."""
    sequences = [make(buffer_graph, precedence) for make in _SCHEDULERS]
    return min(sequences, key=lambda sequence: simulate(buffer_graph, sequence).peak_bytes)
