"""Rematerialization that looks at the peak first, then at the peak that is left, and so on.

The peak-priority algorithm of today's `HloRematerialization` (xla/hlo/transforms/simplifiers/
hlo_rematerialization.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.buffers.buffer_graph import simulate
from memopt.rematerialization.instructions import Instructions
from memopt.rematerialization.xla.algorithm import finish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized
    from memopt.rematerialization.xla.algorithm import Walk

_MOST_ROUNDS = 64
_MOST_SIMULATED = 600_000
"""How many instructions are simulated at most; each round takes as many as run."""


def rematerialize_peaks(network: Network, walk: Walk) -> Rematerialized:
    """Bring the highest peak down to a limit, then the highest that is left.

    A walk that looks at every instruction recomputes results as soon as too much is in use, for
    the sake of the first place where that is so. Here only the instruction at which memory peaks
    counts: what is recomputed for its sake often helps at the others. Rounds go on while the peak
    is above the limit and something can be recomputed for it, up to fixed numbers of rounds and
    of simulated instructions.

    Args:
        network: The sequence with its buffers.
        walk: The walk, with the limit.
    """
    instructions = Instructions(network)
    done = finish(instructions, network.peak_bytes, 0)
    simulated = block_count = 0
    dead: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        simulated += len(done.sequence)
        if simulated > _MOST_SIMULATED:
            break
        timeline = simulate(done.buffer_graph, done.sequence)
        if timeline.peak_bytes <= walk.limit_bytes:
            break
        _detach(instructions, [gone for gone in done.removed if gone not in dead])
        dead.update(done.removed)
        peak = done.sequence[timeline.peak_position]
        walked = walk.along(instructions, at=peak, dead=dead)
        if not walked.block_count:
            break
        block_count += walked.block_count
        done = finish(instructions, walked.peak_bytes, block_count)
    return done


def _detach(instructions: Instructions, dead: Sequence[int]) -> None:
    """Let instructions that do not run read nothing."""
    for instruction in dead:
        for buffer in instructions.reads[instruction]:
            instructions.readers[buffer].remove(instruction)
