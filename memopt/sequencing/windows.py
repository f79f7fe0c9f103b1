"""Windows: how far ahead of a sequence operations may run side by side, within a limit of memory.

Where every operation waits for the one before it, TensorFlow's threads have nothing to do side by
side. So here it waits only for those whose memory has to be gone before it starts; and what is in
use at most is worked out over all executions that this allows.

In each of them there is, at any moment, a first operation of the sequence that has not ended. What
comes before it has ended; what follows from it has not started; of the others those may have
started that do not wait for it. So in use is at most what is in use in the sequence before that
operation, what it makes itself, and what those others make, with the scratch memory of as many as
there are threads. What they free is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memopt.sequencing.ancestry import MOST_AHEAD, REACH, Ancestry
from memopt.sequencing.branches import NO_BRANCHES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.sequencing.branches import Branches

    Bytes = npt.NDArray[np.int64]

_BITS_BYTES = MOST_AHEAD // 8 + 1
_BITS = (1 << (MOST_AHEAD + 1)) - 1


class Room(NamedTuple):
    """What operations that run side by side may take.

    Attributes:
        limit_bytes: What may be in use. Where the sequence itself needs more, nothing runs ahead.
        threads: How many operations can run at once.
        most_ahead: How far ahead of the first that has not ended any may start.
    """

    limit_bytes: int
    threads: int
    most_ahead: int = MOST_AHEAD


def find_windows(
    timeline: MemoryTimeline,
    chain: Sequence[int],
    more: Mapping[int, Iterable[int]],
    pairs: Mapping[int, int],
    room: Room,
    branches: Branches = NO_BRANCHES,
) -> list[int]:
    """The widest windows in which no more is in use than a limit, whatever runs side by side.

    Args:
        timeline: The sequence, one operation at a time.
        chain: The nodes that hold memory, as numbers, in the order of the sequence.
        more: By node further nodes that it will wait for.
        pairs: First to second: oneDNN makes one node of them, so neither waits for the other.
        room: The limit, and what else there is.
        branches: Which nodes run on one side of a branch only, and where sides join.

    Returns:
        By place in the chain: all up to that place must have ended before; -1 for none.
    """
    is_pair = np.array(
        [pairs.get(node) == after for node, after in zip(chain, [*chain[1:], -1], strict=True)]
    )
    ancestry = Ancestry(timeline.buffer_graph, timeline.sequence, chain, MOST_AHEAD, more, branches)
    ancestors = [ancestry.of(node) for node in chain]
    usages = _usages_by_distance(timeline, chain, ancestors, room.threads)
    ahead = np.zeros(len(chain), np.int64)
    is_open = np.ones(len(chain), bool)
    for distance, usage in enumerate(islice(usages, room.most_ahead), 1):
        is_open &= usage <= room.limit_bytes
        if distance == 1:
            # oneDNN makes one operation of them only if neither waits for the other.
            is_open |= is_pair
        if not is_open.any():
            break
        ahead += is_open
    places = np.arange(len(chain))
    last = np.minimum.accumulate((places + ahead)[::-1])[::-1]
    last = np.maximum(last, places + is_pair)
    waits: list[int] = (np.searchsorted(last, places, side="left") - 1).tolist()
    return waits


@dataclass(frozen=True)
class HighestUsage:
    """What is in use at most in any execution that a graph's edges allow, by place in a chain.

    Attributes:
        first_bytes: While that operation is the first that has not ended.
        ancestors: By place, as bits by distance: what comes before.
    """

    first_bytes: list[int]
    ancestors: Sequence[int]

    @property
    def running_bytes(self) -> list[int]:
        """While an operation may run, be it the first or one that runs ahead of others."""
        first = np.array(self.first_bytes, np.int64)
        running = first.copy()
        follows = _bits_of(self.ancestors)
        for distance in range(1, min(MOST_AHEAD + 1, len(first))):
            beside = np.where(_is_free(follows, distance), first[:-distance], 0)
            running[distance:] = np.maximum(running[distance:], beside)
        found: list[int] = running.tolist()
        return found


def highest_usage(
    timeline: MemoryTimeline,
    chain: Sequence[int],
    threads: int,
    branches: Branches = NO_BRANCHES,
) -> HighestUsage | None:
    """What is in use at most while operations run side by side.

    Args:
        timeline: A sequence, one operation at a time.
        chain: The nodes that hold memory, as numbers, in the order of the sequence.
        threads: How many operations can run at once.
        branches: Which nodes run on one side of a branch only, and where sides join.

    Returns:
        What the graph's edges allow; `None` if something may run further ahead than is looked.
    """
    ancestry = Ancestry(timeline.buffer_graph, timeline.sequence, chain, REACH, {}, branches)
    ancestors = [ancestry.of(node) for node in chain]
    needed = (1 << (REACH + 1)) - (1 << (MOST_AHEAD + 1))
    for place, bits in enumerate(ancestors):
        if needed & ~bits & ((1 << (place + 1)) - 1):
            return None
    *_, furthest = _usages_by_distance(timeline, chain, ancestors, threads)
    return HighestUsage(furthest.tolist(), ancestors)


def _bits_of(ancestors: Sequence[int]) -> npt.NDArray[np.uint8]:
    """By place, as bits by distance: what comes before."""
    words = b"".join((bits & _BITS).to_bytes(_BITS_BYTES, "little") for bits in ancestors)
    return np.frombuffer(words, np.uint8).reshape(len(ancestors), _BITS_BYTES)


def _is_free(follows: npt.NDArray[np.uint8], distance: int) -> npt.NDArray[np.bool_]:
    """By place from a distance on: whether that may run beside the one so far before it."""
    byte, bit = divmod(distance, 8)
    is_free: npt.NDArray[np.bool_] = follows[distance:, byte] >> bit & 1 == 0
    return is_free


def _usages_by_distance(
    timeline: MemoryTimeline, chain: Sequence[int], ancestors: Sequence[int], threads: int
) -> Iterator[Bytes]:
    """For the distances from 1 on, by place: the most in use if what is that near may run ahead.

    Args:
        timeline: The sequence, one operation at a time.
        chain: The nodes that hold memory, as numbers.
        ancestors: By place: what comes before, see `Ancestry`.
        threads: How many operations can run at once.
    """
    count = len(chain)
    before, made, scratch = _memory_of(timeline, chain)
    follows = _bits_of(ancestors)
    # A loop that frees what it was given before it has made all has less in use than it makes.
    in_use = before + made + np.minimum(scratch, 0)
    scratch = np.maximum(scratch, 0)
    highest = [scratch] + [np.zeros(count, np.int64)] * (threads - 1)
    # Further than the chain is long nothing more can run ahead.
    for distance in range(1, max(2, min(MOST_AHEAD + 1, count))):
        left = max(0, count - distance)
        is_free = _is_free(follows, distance)
        in_use = in_use.copy()
        in_use[:left] += np.where(is_free, made[distance:], 0)
        lower = np.zeros(count, np.int64)
        lower[:left] = np.where(is_free, scratch[distance:], 0)
        for thread, high in enumerate(highest):
            highest[thread], lower = np.maximum(high, lower), np.minimum(high, lower)
        yield in_use + sum(highest)


def _memory_of(timeline: MemoryTimeline, chain: Sequence[int]) -> tuple[Bytes, Bytes, Bytes]:
    """By place: what is in use before the operation, what it allocates, and its scratch memory."""
    graph = timeline.buffer_graph
    position = {node: number for number, node in enumerate(timeline.sequence)}
    reused = timeline.reused
    new = [[buffer for buffer in graph.made[node] if buffer not in reused] for node in chain]
    made = np.array([sum(graph.size_bytes[b] for b in buffers) for buffers in new], np.int64)
    scratch = np.array([graph.scratch_bytes[node] for node in chain], np.int64)
    usage = np.array([timeline.usage_bytes[position[node]] for node in chain], np.int64)
    return usage - made - scratch, made + _taken_over_late(timeline, chain), scratch


def _taken_over_late(timeline: MemoryTimeline, chain: Sequence[int]) -> Bytes:
    """By place: what takes over memory that the other one of a pair for oneDNN may still read."""
    graph, reused = timeline.buffer_graph, timeline.reused
    firsts = {second: first for first, second in graph.fused_pairs.items()}
    taken = np.zeros(len(chain), np.int64)
    for place, node in enumerate(chain):
        read = graph.read[firsts[node]] if node in firsts else ()
        taken[place] = sum(
            graph.size_bytes[buffer] for buffer in graph.made[node] if reused.get(buffer) in read
        )
    return taken
