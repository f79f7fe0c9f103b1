"""Plans: what to compute again so that a step keeps to a limit, by the algorithm asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from memopt.buffers.buffer_graph import simulate
from memopt.rematerialization.network import OUT_OF_REACH
from memopt.rematerialization.paths.algorithm import rematerialize_paths
from memopt.rematerialization.peak_priority import rematerialize_peaks
from memopt.rematerialization.segments.algorithm import rematerialize_segments, sqrt_segments
from memopt.rematerialization.storage.forms import Strategies
from memopt.rematerialization.xla.algorithm import Walk, along_sequence
from memopt.sequencing.depth_first import dfs_sequence, postorder_sequence
from memopt.sequencing.list_order import list_sequence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memopt.allocator.training import AllocatorLimit
    from memopt.buffers.buffer_graph import BufferGraph, MemoryTimeline
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.storage.forms import Form
    from memopt.rematerialization.xla.algorithm import Rematerialized
    from memopt.sequencing.precedence import Precedence

STANDARD = "standard"
PATH = "path"
SEGMENTS = "segments"
PEAK_PRIORITY = "peakpriority"
SQRT = "sqrt"
PLANNER = "planner"
COMPRESS = "compress"
STANDARD_COMPRESS = "standardcompress"
BEST = "best"

COMPRESSING = (COMPRESS, STANDARD_COMPRESS)
"""The algorithms that keep results in smaller forms."""

_STARTS = (STANDARD, PATH, SEGMENTS)
"""What the planner starts from if the best of all is asked for."""
_SCHEDULERS = (list_sequence, dfs_sequence, postorder_sequence)
_LOWER = (1.0, 0.95, 0.9, 0.8, 0.65, 0.5)
"""Shares of the limit on the step's own bytes to walk with, until the result is within it."""
_HIGHER = (0.8, 0.6, 0.4, 0.3, 0.2, 0.1)
"""Where none is: shares of what is missing to add to the limit."""
_WORTH_IT = 0.99
"""The share of a peak that another must not exceed to be worth its copies."""
_ROOM_ATTEMPTS = 2
"""How often a plan is made within less than the limit, since the allocator finds no room for it."""
_LEAST_SHARE = 25
"""The part of a limit that is taken off it at least for that."""


class Plan(NamedTuple):
    """What is to be computed again.

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


@dataclass(frozen=True)
class Limits:
    """What an algorithm has to go by.

    Attributes:
        limit_bytes: What may be in use at any time, what is held included.
        smallest_bytes: What makes no more than this is computed again only for another's sake.
        largest_block: How many operations the standard algorithm computes again together.
        forms: By node: other forms in which its result can be kept.
        find_lowest: Whether the lowest plan is looked for where none keeps to the limit.
        allocator: What has to find room for a plan, if that is looked at.
        enough_overhead: The share of the step's estimated time that a plan may add without a
            cheaper one being looked for that the allocator finds room for.
    """

    limit_bytes: int
    smallest_bytes: int = 0
    largest_block: int = 1
    forms: Mapping[int, Sequence[Form]] = field(default_factory=dict)
    find_lowest: bool = True
    allocator: AllocatorLimit | None = None
    enough_overhead: float = 0.0

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


def path(network: Network, limits: Limits) -> Iterator[Rematerialized]:
    """Microsoft's path algorithm."""
    yield rematerialize_paths(
        network, limits.limit_bytes, make_sequence=_lowest, smallest_bytes=limits.smallest_bytes
    )


def peak_priority(network: Network, limits: Limits) -> Iterator[Rematerialized]:
    """Today's XLA's: walks for the sake of one peak after the other."""
    for walk in _walks(network, limits, recompute=True):
        yield rematerialize_peaks(network, walk)


def segments(network: Network, limits: Limits) -> Iterator[Rematerialized]:
    """Checkpointing by segments, as few and as cheap as the limit demands."""
    yield rematerialize_segments(network, limits.limit_bytes, smallest_bytes=limits.smallest_bytes)


def sqrt(network: Network, limits: Limits) -> Iterator[Rematerialized]:
    """About as many equal segments as the root of their number says, whatever the limit."""
    del limits
    yield sqrt_segments(network)


def planner(network: Network, limits: Limits) -> Iterator[Rematerialized]:
    """The planner, which knows nothing of what the other algorithms find."""
    yield _planned(network, limits, ())


def _planned(network: Network, limits: Limits, starts: Sequence[Rematerialized]) -> Rematerialized:
    # Not before it is used: it needs numpy.
    from memopt.rematerialization.planned.algorithm import rematerialize_planned

    return rematerialize_planned(
        network,
        limits.limit_bytes,
        forms=limits.forms,
        starts=starts,
        pack=limits.pack,
        enough_weight=int(limits.enough_overhead * network.weight) if limits.allocator else 0,
    )


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
        )


def _lowest(buffer_graph: BufferGraph, precedence: Precedence) -> list[int]:
    """The sequence with the lowest simulated peak, as XLA's default scheduler finds it."""
    sequences = [make(buffer_graph, precedence) for make in _SCHEDULERS]
    return min(sequences, key=lambda sequence: simulate(buffer_graph, sequence).peak_bytes)


ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        STANDARD: standard,
        PATH: path,
        SEGMENTS: segments,
        PEAK_PRIORITY: peak_priority,
        SQRT: sqrt,
        PLANNER: planner,
        COMPRESS: compress,
        STANDARD_COMPRESS: standard,
    }
)
"""The algorithms by name.

- `standard`: XLA's walk along the sequence.
- `path`: Microsoft's, with improvements; see `rematerialize_paths`.
- `segments`: checkpointing by segments; see `rematerialize_segments`.
- `peakpriority`: the walk for the sake of one peak after the other, as in today's XLA.
- `sqrt`: the plain rule of sqrt(n) segments, to compare with. It knows no limit.
- `planner`: a search for order, copies and swaps together; see `rematerialize_planned`.
- `compress`, `standardcompress`: the walk, which keeps results in smaller forms, or computes them
  again, whichever costs less.
"""


def make_plan(algorithm: str, network: Network, limits: Limits) -> Plan:
    """The cheapest plan within the limit, or the lowest one there is.

    What is lowest does not depend on the limit: given as the limit, it is kept, and so is what lies
    above it. Where that is not to be found, it is the lowest of what was tried for the limit.

    Args:
        algorithm: One of `ALGORITHMS`, or "best": standard, path and segments, and the planner,
            which starts from what they found. If the allocator has to find room, that is looked
            for with the planner's plan first, and with the others' only if there is none.
        network: The sequence with its buffers.
        limits: What to keep to.
    """
    missing_bytes = 0
    if limits.allocator is not None:
        missing_bytes = limits.missing_bytes(simulate(network.buffer_graph, network.sequence))
    nothing = Plan(None, network.peak_bytes, 0, missing_bytes)
    if nothing.keeps(limits.limit_bytes):
        return nothing
    plans = [nothing]
    held_bytes = network.buffer_graph.held_bytes
    if limits.limit_bytes >= held_bytes:
        plans = _make_plans(algorithm, network, limits, nothing)
        within = _cheapest_within(plans, limits)
        if within is not None:
            return within
    # Where nothing is held, what is out of reach has been tried just now.
    if limits.find_lowest and max(limits.limit_bytes, held_bytes) > OUT_OF_REACH:
        least = replace(limits, limit_bytes=OUT_OF_REACH)
        plans = _make_plans(algorithm, network, least, nothing)
    lowest = min(plans, key=lambda plan: (plan.peak_bytes, plan.added_ns))
    if lowest.done is None or algorithm not in (PLANNER, BEST):
        return lowest
    if lowest.peak_bytes > limits.limit_bytes:
        return lowest
    # What keeps to a limit that was missed at first need not be as low, which costs more.
    near = _planned(network, limits, [lowest.done])
    plans = [limits.measure(lowest.done), limits.measure(near)]
    return _cheapest_within(plans, limits) or lowest


def _cheapest_within(plans: Sequence[Plan], limits: Limits) -> Plan | None:
    """Of the plans within the limit, the cheapest of those that find room."""
    within = [plan for plan in plans if plan.peak_bytes <= limits.limit_bytes]
    if not within:
        return None
    return min(within, key=lambda plan: (plan.missing_bytes, plan.added_ns, plan.peak_bytes))


def _make_plans(algorithm: str, network: Network, limits: Limits, nothing: Plan) -> list[Plan]:
    # The planner tries for room itself.
    if algorithm == PLANNER:
        return [nothing, *map(limits.measure, planner(network, limits))]
    if algorithm != BEST:
        return [_with_room(ALGORITHMS[algorithm], network, limits, nothing)]
    by_sum = replace(limits, allocator=None)
    plans = [_first_within(ALGORITHMS[name], network, by_sum, nothing) for name in _STARTS]
    starts = [plan.done for plan in plans if plan.done is not None]
    planned = limits.measure(_planned(network, limits, starts))
    plans.append(planned)
    if limits.allocator is None or all(plan.peak_bytes > limits.limit_bytes for plan in plans):
        return plans
    if planned.keeps(limits.limit_bytes):
        return [planned]
    # To look for room takes much longer than to plan, and the planner finds it more often.
    return [planned, *(_with_room(ALGORITHMS[name], network, limits, nothing) for name in _STARTS)]


def _with_room(algorithm: Algorithm, network: Network, limits: Limits, nothing: Plan) -> Plan:
    """The plan of an algorithm; within less, where the allocator finds no room for it."""
    best = plan = _first_within(algorithm, network, limits, nothing)
    for _ in range(_ROOM_ATTEMPTS):
        if not plan.missing_bytes:
            break
        less_bytes = max(plan.missing_bytes // 2, limits.limit_bytes // _LEAST_SHARE)
        limits = replace(limits, limit_bytes=max(limits.limit_bytes - less_bytes, OUT_OF_REACH))
        plan = _first_within(algorithm, network, limits, nothing)
        if plan.peak_bytes > limits.limit_bytes:
            break
        best = min(best, plan, key=lambda each: each.missing_bytes)
    return best


def _first_within(algorithm: Algorithm, network: Network, limits: Limits, nothing: Plan) -> Plan:
    """The first plan of an algorithm that keeps to the limits, or the nearest to that."""
    best = nothing
    for done in algorithm(network, limits):
        plan = limits.plan(done)
        if plan.keeps(limits.limit_bytes):
            return plan
        # Hundreds of copies for next to nothing are no better.
        if plan.peak_bytes < best.peak_bytes * _WORTH_IT:
            best = plan
    return best
