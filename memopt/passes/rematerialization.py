"""Rematerialization: keep a step within a memory limit by recomputing results when needed.

XLA's `HloRematerialization` (tensorflow/compiler/xla/service/hlo_rematerialization.cc).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from memopt.buffers.buffer_graph import simulate
from memopt.errors import OptionsError
from memopt.graph.rewriter import Touches
from memopt.options import UNLIMITED_BYTES
from memopt.passes.base import Pass
from memopt.passes.ordering import hold_to
from memopt.rematerialization.algorithms import (
    ALGORITHMS,
    BEST,
    COMPRESSING,
    PATH,
    SEGMENTS,
    SQRT,
)
from memopt.rematerialization.limits import Limits
from memopt.rematerialization.plan_cache import PlanCache
from memopt.rematerialization.rewriting.device_budgets import device_budgets
from memopt.rematerialization.rewriting.hints import RECOMPUTE, SWAP, Hints
from memopt.rematerialization.rewriting.live_at_peak import find_remaining
from memopt.rematerialization.rewriting.memory_limit import (
    MemoryLimiter,
    Settings,
    printed_bytes,
)
from memopt.rematerialization.rewriting.scope_budgets import parse_scopes
from memopt.rematerialization.storage.compression import NO_TILE, Compressor, Tile
from memopt.rematerialization.storage.offloading import Offloader
from memopt.sequencing.backward_needs import fit_to_recompute
from memopt.sequencing.orders import SEQUENCERS
from memopt.sequencing.quickening import Quick
from memopt.sequencing.step import Step
from memopt.time_limit import TimeLimit

if TYPE_CHECKING:
    from memopt.allocator.training import AllocatorLimit
    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.context import Context
    from memopt.graph.rewriter import Rewriter
    from memopt.rematerialization.network import Network
    from memopt.sequencing.enforcement import Chain

_MEBIBYTE = 1 << 20

_SPENT_AND_TO_SPEND = 1.5
"""By how much of what an order took planning is shortened, for that and for what comes after."""
_LEAST_SHARE = 0.5
"""Of the time for planning, what is planned in any case: large steps take long for all else."""

_LEAST = MappingProxyType(
    {
        "memory_limit": 0,
        "allocator_limit": 0,
        "allocator_spare": 0,
        "enough_overhead": 0,
        "planning_seconds": 0,
        "small_node_limit": 0,
        "largest_block": 1,
    }
)
"""Of options that are numbers, the least."""


@dataclass(frozen=True)
class Rematerialization(Pass):
    """Recompute results instead of keeping them, until the step needs no more than a limit.

    1. What leads to a fetch gets a sequence, as in `Ordering`, or one near it; see
       `fit_to_recompute`.
    2. A walk along the sequence counts the memory in use as the allocator has it. Where it is over
       the limit, the result whose recomputation costs least (see `Candidates`) is recomputed
       for all who have not read it yet, before the first of them: see `rematerialize`. Operations
       that nobody reads any more are taken out.
    3. The sequence with the copies, `Recomputed/<name>`, is simulated; see `make_plan` for what is
       tried where it needs more than the limit, and for other algorithms than the walk.
    4. Where scopes have budgets of their own, each is planned first, as if nothing else took
       memory.
    5. Where the allocator has a limit of its own (`allocator_limit`), plans are put in an order
       that it has room for (see `pack`), or made anew within less.
    6. The order is enforced by control edges, as in `Ordering`.

    Recomputed is only what gives the same bits and leaves nothing behind (see
    `can_run_twice`), and is neither fed, fetched nor kept; in a loop or a branch of v1 control flow
    it is recomputed in the same turn, on the same side. What reads a reference variable is not
    recomputed after a write to it.

    Where the limit cannot be met, the lowest peak found is what comes out, and one entry among
    what was declined says so. The graph that comes out is for the given fetches, see `Ordering`.
    """

    name: ClassVar[str] = "rematerialization"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {Touches.NODES, Touches.DATA_EDGES, Touches.CONTROL_EDGES}
    )

    memory_limit: int = 0
    """Bytes that may be in use at any moment, everything included; 0: what the optimizer's budget
    leaves, and as few as can be found without one."""
    allocator_limit: int = 0
    """Bytes that TensorFlow's allocator may hand out: it has to find room for the plan in every
    step, chunk by chunk, which takes more than the sum; 0: only the sum counts."""
    allocator_spare: int = 0
    """Of these, what is to be left in one piece at any moment, for what is not as predicted."""
    enough_overhead: float = 0.0
    """With `allocator_limit`: the share of the step's estimated time, such as 0.2, that a plan may
    add without the planner looking for a cheaper one; 0: the cheapest is looked for."""
    algorithm: str = BEST
    """How the plan is made: one of `ALGORITHMS`, or "best", the best of them."""
    scheduler: str = BEST
    """How the order is found: one of `SEQUENCERS`."""
    largest_block: int = 16
    """How many operations the standard algorithm recomputes together at most, so that a result
    can be had whose operands are gone too; 1 is XLA's own rule."""
    planning_seconds: float = 0.0
    """After how many seconds planning ends with what was found until then; 0: when nothing is left
    to try, so that the same graph always gets the same plan. Where it takes long to find an order
    of the step and to hold it to one, it ends sooner, after half of them at the least."""
    cache_plans: bool = False
    """Whether plans are kept in the cache folder, and those taken that were found before for the
    same graph, costs, limit and options."""
    find_lowest: bool = True
    """Whether the lowest peak is looked for where the limit cannot be kept. It takes as long again;
    without, what comes out is the lowest of what was tried."""
    small_node_limit: int = 0
    """MiB: an operation that makes no more than this is recomputed only for another's sake; 0
    turns it off."""
    tile: str = ""
    """For algorithms that compress: how the device pads the last two dimensions, such as 8x128."""
    compress_to: str = ""
    """For algorithms that compress: bfloat16 or float16, a type to keep results in. It CHANGES THE
    RESULTS of the step."""
    offload: str = ""
    """Operations that take results to the host and back, where that costs less than computing
    again: serialize, copy or identity, as in `Swapping`."""

    keep: str = ""
    """Names, as patterns ("encoder/*;*/dropout*"), of operations whose results stay as they are.
    What the attribute `_memopt_hint` of an operation says comes before these patterns."""
    recompute: str = ""
    """Names of operations whose results are recomputed before those of any other."""
    swap: str = ""
    """Names of operations whose results are taken to the host before any other, if `offload` says
    how, and never recomputed."""
    scopes: str = ""
    """Budgets of scopes, "encoder/*:100MiB;decoder/*:1GiB": what results of operations of such
    names may take together at any moment."""

    def __post_init__(self) -> None:
        for option, known in (("scheduler", SEQUENCERS), ("algorithm", (*ALGORITHMS, BEST))):
            given = getattr(self, option)
            if given not in known:
                names = ", ".join(known)
                raise OptionsError(f"{self.name}: {option} is one of {names}, not {given!r}")
        for option, least in _LEAST.items():
            given = getattr(self, option)
            if given < least:
                raise OptionsError(f"{self.name}: {option} is {given}, less than {least}")
        if (self.compressor() is None) == (self.algorithm in COMPRESSING):
            names = " and ".join(COMPRESSING)
            raise OptionsError(
                f"{self.name}: the algorithms {names} take a tile or a type (compress_to), no other"
            )
        if self.offload and self.algorithm in (PATH, SEGMENTS, SQRT):
            raise OptionsError(f"{self.name}: the algorithm {self.algorithm} cannot offload")
        self.offloader()
        parse_scopes(self.scopes)

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Plan, make the copies in one edit, and enforce the order with one for each chain."""
        started_s = time.monotonic()
        if not len(rewriter.graph):
            return
        step = Step.in_context(rewriter.graph, context)
        order = self._order(step, context)
        if not order.sequence:
            return
        hints = Hints(self.keep, self.recompute, self.swap)
        spent_s = time.monotonic() - started_s
        settings = self._settings(context, spent_s)
        limiter = MemoryLimiter(rewriter, context, hints, settings, step)
        network = limiter.network(limiter.padded(order.buffer_graph), order.sequence)
        limits = limiter.limits(network)
        _decline_hints(rewriter, network, limits, hints, self.offload)
        edits_before = len(rewriter.edits)
        scopes, devices = parse_scopes(self.scopes), device_budgets(context.device_limits_bytes)
        final = limiter.keep_all(network, limits, (*scopes, *devices))
        is_changed = len(rewriter.edits) > edits_before
        _enforce(rewriter, final, limiter.step, context, limits)
        if final.peak_bytes > limits.limit_bytes:
            node = final.buffer_graph.nodes[final.sequence[final.peak_position]]
            rewriter.decline(node, _warning(network, final, limits))
        elif missing_bytes := limits.missing_bytes(final):
            node = final.buffer_graph.nodes[final.sequence[final.peak_position]]
            rewriter.decline(node, _no_room(final, limits, missing_bytes))
        elif not is_changed:
            return
        for node, size_bytes, why in find_remaining(final, network, hints, limits.limit_bytes):
            rewriter.decline(node, f"{printed_bytes(size_bytes)} in use at the peak: {why}")

    def _order(self, step: Step, context: Context) -> MemoryTimeline:
        """The order to begin with: the lowest, or where results are computed again, a fit one."""
        found = [simulate(step.buffer_graph, each) for each in step.sequences(self.scheduler)]
        lowest = min(found, key=lambda each: each.peak_bytes)
        limit_bytes = self.memory_limit or context.budget_bytes
        is_kept = lowest.peak_bytes <= limit_bytes and not context.device_limits_bytes
        return lowest if is_kept else fit_to_recompute(step.graph, found)

    def _settings(self, context: Context, spent_s: float) -> Settings:
        """How limits are kept, after some seconds in which an order was found."""
        limit_bytes = self.memory_limit or context.budget_bytes
        if context.device_limits_bytes and not self.memory_limit:
            # If each device keeps its own, all together keep the sum of these.
            limit_bytes = UNLIMITED_BYTES
        limits = Limits(
            limit_bytes,
            smallest_bytes=self.small_node_limit * _MEBIBYTE,
            largest_block=self.largest_block,
            find_lowest=self.find_lowest,
            allocator=self.allocator(),
            enough_overhead=self.enough_overhead,
            time_limit=TimeLimit.after(self._left_seconds(spent_s)),
        )
        cache = PlanCache(str(self)) if self.cache_plans else None
        return Settings(self.algorithm, limits, self.compressor(), self.offloader(), cache)

    def _left_seconds(self, spent_s: float) -> float:
        """What is left for planning after some seconds: what follows takes about as long again."""
        left_s = self.planning_seconds - _SPENT_AND_TO_SPEND * spent_s
        return max(left_s, self.planning_seconds * _LEAST_SHARE)

    def compressor(self) -> Compressor | None:
        """What keeps results in smaller forms, if that is asked for."""
        if not self.tile and not self.compress_to:
            return None
        return Compressor(Tile.parse(self.tile) if self.tile else NO_TILE, self.compress_to)

    def allocator(self) -> AllocatorLimit | None:
        """What has to find room, if that is asked for."""
        if not self.allocator_limit:
            return None
        # Not before it is used: it needs numpy.
        from memopt.allocator.training import AllocatorLimit

        return AllocatorLimit(self.allocator_limit, self.allocator_spare)

    def offloader(self) -> Offloader | None:
        """What takes results to the host, if that is asked for."""
        return Offloader(self.offload) if self.offload else None


def _decline_hints(
    rewriter: Rewriter, network: Network, limits: Limits, hints: Hints, offload: str
) -> None:
    """Say which hints have no effect, and why."""
    for number in network.sequence:
        node = network.buffer_graph.nodes[number]
        hint = hints.of(node)
        if not network.buffer_graph.made[number]:
            continue
        if hint == RECOMPUTE and not network.recomputable[number]:
            rewriter.decline(node, "a hint asks to recompute it, but it may not run twice")
        elif hint == SWAP and number not in limits.forms:
            why = "that is not possible for it" if offload else "nothing says how (offload)"
            rewriter.decline(node, f"a hint asks to take it to the host, but {why}")


def _enforce(
    rewriter: Rewriter, final: MemoryTimeline, step: Step, context: Context, limits: Limits
) -> None:
    limit_bytes = max(limits.limit_bytes, final.peak_bytes)
    if context.device_limits_bytes:
        # What all devices may use together says nothing of what each of them may.
        limit_bytes = final.peak_bytes
    quick = Quick(final, limit_bytes)
    # What has to find room was looked for in this very order.
    if limits.allocator is None:
        quick = step.quickest([final], [limit_bytes], context.inter_op_threads)

    def reason(chain: Chain) -> str:
        return (
            f"{len(chain.nodes)} operations run in the order that was planned, in which at most "
            f"{printed_bytes(quick.timeline.peak_bytes)} are in use"
        )

    hold_to(rewriter, quick, step.precedence, context, reason)


def _warning(network: Network, final: MemoryTimeline, limits: Limits) -> str:
    return (
        f"the limit of {printed_bytes(limits.limit_bytes)} cannot be met by computing results "
        f"again: here {printed_bytes(final.peak_bytes)} are in use "
        f"({printed_bytes(network.peak_bytes)} without), "
        f"{printed_bytes(network.buffer_graph.held_bytes)} of which are held before the step"
    )


def _no_room(final: MemoryTimeline, limits: Limits, missing_bytes: int) -> str:
    assert limits.allocator is not None
    return (
        f"the allocator has no room within {printed_bytes(limits.allocator.limit_bytes)} for the "
        f"{printed_bytes(final.peak_bytes)} that are in use here: it needs about "
        f"{printed_bytes(missing_bytes)} more for what lies between chunks"
    )
