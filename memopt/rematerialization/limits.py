"""What the algorithms have to keep to, and how near a plan comes to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

from memopt.buffers.buffer_graph import simulate
from memopt.graph.rewriter import Planned
from memopt.time_limit import NO_LIMIT, TimeLimit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memopt.allocator.training import AllocatorLimit
    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized
    from memopt.rematerialization.storage.forms import Form


class Plan(NamedTuple):
    """What is to be recomputed.

    Attributes:
        done: The sequence with its copies; `None` for none at all.
        peak_bytes: The most in use at any time, as simulated, what is held included.
        added_ns: Time that it takes beside the original, as estimated.
        missing_bytes: What the allocator would need beyond what it may hand out.
    """

    done: Rematerialized | None
    peak_bytes: int
    added_ns: int
    missing_bytes: int = 0

    def keeps(self, limit_bytes: int) -> bool:
        """Whether it is within a limit, and finds room."""
        return self.peak_bytes <= limit_bytes and not self.missing_bytes

    def planned(self, network: Network) -> Planned:
        """What is reported of it: the step's own memory, and time as a share of the network's."""
        own_bytes = self.peak_bytes - network.buffer_graph.held_bytes
        return Planned(own_bytes, self.added_ns / max(network.weight, 1))


@dataclass(frozen=True)
class Limits:
    """What an algorithm has to go by.

    Attributes:
        limit_bytes: What may be in use at any time, what is held included.
        smallest_bytes: What makes no more than this is recomputed only for another's sake.
        largest_block: How many operations the standard algorithm recomputes together.
        forms: By node: other forms in which its result can be kept.
        find_lowest: Whether the lowest plan is looked for where none keeps to the limit.
        allocator: What has to find room for a plan, if that is looked at.
        enough_overhead: The share of the step's estimated time that a plan may add without a
            cheaper one being looked for that the allocator finds room for.
        time_limit: When planning ends with what was found.
    """

    limit_bytes: int
    smallest_bytes: int = 0
    largest_block: int = 1
    forms: Mapping[int, Sequence[Form]] = field(default_factory=dict)
    find_lowest: bool = True
    allocator: AllocatorLimit | None = None
    enough_overhead: float = 0.0
    time_limit: TimeLimit = NO_LIMIT

    def nothing(self, network: Network) -> Plan:
        """What it comes to if nothing is recomputed."""
        missing_bytes = 0
        if self.allocator is not None:
            missing_bytes = self.missing_bytes(network.timeline)
        return Plan(None, network.peak_bytes, 0, missing_bytes)

    def plan(self, done: Rematerialized) -> Plan:
        """The plan that an algorithm made, in an order that the allocator finds room for."""
        packed, timeline, missing_bytes = self._pack(done)
        return Plan(packed, timeline.peak_bytes, packed.added_weight, missing_bytes)

    def measure(self, done: Rematerialized) -> Plan:
        """The plan that an algorithm made, in the order that it has."""
        timeline = simulate(done.buffer_graph, done.sequence)
        missing_bytes = self.missing_bytes(timeline)
        return Plan(done, timeline.peak_bytes, done.added_weight, missing_bytes)

    def pack(self, done: Rematerialized) -> tuple[Rematerialized, int]:
        """A plan in an order that the allocator finds room for, and what is missing if it does not.

        Operations that oneDNN may fuse stay side by side, copies of them, too.
        """
        if self.allocator is None:
            return done, 0
        packed, _, missing_bytes = self._pack(done)
        return packed, missing_bytes

    def _pack(self, done: Rematerialized) -> tuple[Rematerialized, MemoryTimeline, int]:
        timeline = simulate(done.buffer_graph, done.sequence)
        missing_bytes = self.missing_bytes(timeline)
        if self.allocator is None or not missing_bytes:
            return done, timeline, 0
        # Not before it is used: it needs numpy.
        from memopt.allocator.packing import pack

        table = done.instructions
        fused = table.network.buffer_graph.fused_pairs
        neighbours = pairwise(done.sequence)
        pairs = {a: b for a, b in neighbours if fused.get(table.origin[a]) == table.origin[b]}
        packed = pack(timeline, self.allocator, self.limit_bytes, pairs)
        if packed is None:
            return done, timeline, missing_bytes
        sequence = list(packed.sequence)
        return done._replace(sequence=sequence, peak_bytes=packed.peak_bytes), packed, 0

    def missing_bytes(self, timeline: MemoryTimeline) -> int:
        """What the allocator would need beyond what it may hand out, if the limit is kept."""
        if self.allocator is None or timeline.peak_bytes > self.limit_bytes:
            return 0
        return self.allocator.missing_bytes(timeline)


class Algorithm(Protocol):
    """Plans that are worth looking at; the first within the limit is enough."""

    def __call__(self, network: Network, limits: Limits) -> Iterator[Rematerialized]:
        """What can be tried, the most promising first."""
