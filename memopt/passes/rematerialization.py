"""Rematerialization: keep a step within a memory limit by computing results again when needed.

XLA's `HloRematerialization` (tensorflow/compiler/xla/service/hlo_rematerialization.cc).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from memopt.costs.buffer_graph import simulate
from memopt.errors import OptionsError
from memopt.graph.rewriter import Touches
from memopt.graph.traversal import Numbering
from memopt.passes.base import Context, Pass
from memopt.passes.ordering import Ordering, add_edges, step_of
from memopt.passes.recomputation import COPY_PREFIX
from memopt.passes.remat.algorithms import (
    ALGORITHMS,
    BEST,
    COMPRESSING,
    OUT_OF_REACH,
    PATH,
    PLANNER,
    SEGMENTS,
    SQRT,
    Limits,
    make_plan,
)
from memopt.passes.remat.applying import apply_copies
from memopt.passes.remat.eligibility import can_run_twice, network_of
from memopt.passes.remat.hints import KEEP, RECOMPUTE, SWAP, Hints, preferred
from memopt.passes.remat.remaining import find_remaining
from memopt.passes.remat.scopes import parse_scopes
from memopt.passes.remat.storing.compression import NO_TILE, Compressor, Tile, pad_buffers
from memopt.passes.remat.storing.offloading import Offloader
from memopt.passes.remat.storing.storable import find_forms
from memopt.passes.remat.summary import describe
from memopt.sequencing.enforcement import enforce
from memopt.sequencing.fusions import find_fused_pairs, turn_pairs
from memopt.sequencing.orders import SEQUENCERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.allocator.training import AllocatorLimit
    from memopt.costs.buffer_graph import BufferGraph, MemoryTimeline
    from memopt.graph.graph import Node
    from memopt.graph.rewriter import Decision, Rewriter
    from memopt.passes.remat.algorithms import Plan
    from memopt.passes.remat.network import Network
    from memopt.passes.remat.scopes import ScopeBudget
    from memopt.passes.remat.storing.forms import Form
    from memopt.passes.remat.walk import Rematerialized
    from memopt.sequencing.enforcement import Chain

_MEBIBYTE = 1 << 20
_ATTEMPTS = 3
"""How often a plan is made within less than the limit, since it came to more than was planned."""
_LEAST_SHARE = 25
"""The part of a limit that is taken off it at least where the allocator finds no room."""
_LEAST = MappingProxyType(
    {
        "memory_limit": 0,
        "allocator_limit": 0,
        "allocator_spare": 0,
        "small_node_limit": 0,
        "largest_block": 1,
    }
)
"""Of options that are numbers, the least."""
_SCOPE_ROUNDS = 3
"""How often the budgets of scopes and of the step are planned one after the other."""


@dataclass(frozen=True)
class Rematerialization(Pass):
    """Compute results again instead of keeping them, until the step needs no more than a limit.

    1. What leads to a fetch gets a sequence, as in `Ordering`.
    2. A walk along the sequence counts the memory in use as the allocator has it. Where it is over
       the limit, the result whose recomputation costs least (see `Candidates`) is computed again
       for all who have not read it yet, before the first of them: see `rematerialize`. Operations
       that nobody reads any more are taken out.
    3. The sequence with the copies, `Recomputed/<name>`, is simulated; see `make_plan` for what is
       tried where it needs more than the limit, and for other algorithms than the walk.
    4. Where scopes have budgets of their own, each is planned first, as if nothing else took
       memory.
    5. The order is enforced by control edges, as in `Ordering`.

    Computed again is only what gives the same bits and leaves nothing behind (see
    `can_run_twice`), is neither fed, fetched nor kept, and stands outside of v1 control flow. What
    reads a reference variable is not computed again after a write to it.

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
    algorithm: str = BEST
    """How the plan is made: one of `ALGORITHMS`, or "best", the best of them."""
    scheduler: str = BEST
    """How the order is found: one of `SEQUENCERS`."""
    largest_block: int = 16
    """How many operations the standard algorithm computes again together at most, so that a result
    can be had whose operands are gone too; 1 is XLA's own rule."""
    find_lowest: bool = True
    """Whether the lowest peak is looked for where the limit cannot be kept. It takes as long again;
    without, what comes out is the lowest of what was tried."""
    small_node_limit: int = 0
    """MiB: an operation that makes no more than this is computed again only for another's sake; 0
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
    """Names of operations whose results are computed again before those of any other."""
    swap: str = ""
    """Names of operations whose results are taken to the host before any other, if `offload` says
    how, and never computed again."""
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
        order = Ordering(sequencer=self.scheduler).order(rewriter.graph, context)
        if order is None or not order.sequence:
            return
        hints = Hints(self.keep, self.recompute, self.swap)
        keeping = _Keeping(self, rewriter, context, hints)
        network = keeping.network(keeping.padded(order.buffer_graph), order.sequence)
        limits = keeping.limits(network)
        _decline_hints(rewriter, network, limits, hints, self.offload)
        edits_before = len(rewriter.edits)
        final = keeping.keep_all(network, limits, parse_scopes(self.scopes))
        is_changed = len(rewriter.edits) > edits_before
        _enforce(rewriter, final, context)
        if final.peak_bytes > limits.limit_bytes:
            node = final.buffer_graph.nodes[final.sequence[final.peak_position]]
            rewriter.decline(node, _warning(network, final, limits))
        elif missing_bytes := limits.missing_bytes(final):
            node = final.buffer_graph.nodes[final.sequence[final.peak_position]]
            rewriter.decline(node, _no_room(final, limits, missing_bytes))
        elif not is_changed:
            return
        for node, size_bytes, why in find_remaining(final, network, hints, limits.limit_bytes):
            rewriter.decline(node, f"{_printed(size_bytes)} in use at the peak: {why}")

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


class _Keeping:
    """Brings a graph within limits, one after the other."""

    def __init__(
        self, options: Rematerialization, rewriter: Rewriter, context: Context, hints: Hints
    ) -> None:
        self._options = options
        self._rewriter = rewriter
        self._context = context
        self._hints = hints
        self._compressor = options.compressor()
        self._taken = _decline_taken_names(rewriter)

    def network(self, buffer_graph: BufferGraph, sequence: Sequence[int]) -> Network:
        """The graph as it is now, in a sequence."""
        return network_of(
            self._rewriter.graph,
            buffer_graph,
            sequence,
            self._context,
            declined=self._taken,
            hints=self._hints,
        )

    def limits(self, network: Network) -> Limits:
        """What all of the step has to keep to."""
        options, offloader = self._options, self._options.offloader()
        forms: dict[int, list[Form]] = {}
        if self._compressor is not None or offloader is not None:
            forms = find_forms(
                self._rewriter,
                network,
                self._context,
                compressor=self._compressor,
                offloader=offloader,
            )
        return Limits(
            options.memory_limit or self._context.budget_bytes,
            smallest_bytes=options.small_node_limit * _MEBIBYTE,
            largest_block=options.largest_block,
            forms=_hinted(forms, network, self._hints),
            find_lowest=options.find_lowest,
            allocator=options.allocator(),
        )

    def keep_all(
        self, network: Network, limits: Limits, scopes: Sequence[ScopeBudget]
    ) -> MemoryTimeline:
        """Keep the budgets of scopes and that of the step, as far as that can be.

        What one plan changes can break what another one kept: then they are made again.
        """
        for _ in range(_SCOPE_ROUNDS):
            for scope in scopes:
                if not scope.is_kept(network.buffer_graph, network.sequence):
                    network, limits = self._look_again(self._keep_scope(network, limits, scope))
            final = self._keep(network, limits)
            if all(scope.is_kept(final.buffer_graph, final.sequence) for scope in scopes):
                break
            network, limits = self._look_again(final)
        return final

    def _look_again(self, timeline: MemoryTimeline) -> tuple[Network, Limits]:
        """The graph after a plan, and what it still has to keep to."""
        network = self.network(timeline.buffer_graph, timeline.sequence)
        return network, self.limits(network)

    def _keep_scope(self, network: Network, limits: Limits, scope: ScopeBudget) -> MemoryTimeline:
        narrowed = replace(network, buffer_graph=scope.buffers(network.buffer_graph))
        return self._keep(
            narrowed, replace(limits, limit_bytes=scope.limit_bytes, allocator=None), scope
        )

    def _keep(
        self, network: Network, limits: Limits, scope: ScopeBudget | None = None
    ) -> MemoryTimeline:
        """Make the copies of a plan, in one edit; returns the memory of the step with them.

        What has to stand side by side for oneDNN, either first, can take more than was planned, and
        the allocator more than the sum. Then there is another plan, with as much less.
        """
        plans_room = self._options.algorithm in (PLANNER, BEST)
        before = self._rewriter.checkpoint()
        asked, kept = limits, None
        for attempt in range(_ATTEMPTS):
            plan = make_plan(self._options.algorithm, network, asked)
            final = self._apply(network, plan, limits, scope)
            less_bytes = _highest_bytes(final, scope) - limits.limit_bytes
            if less_bytes <= 0:
                kept = asked
                missing_bytes = limits.missing_bytes(final)
                # The planner has tried for room itself.
                if not missing_bytes or attempt == _ATTEMPTS - 1 or plans_room:
                    return final
                less_bytes = max(missing_bytes // 2, asked.limit_bytes // _LEAST_SHARE)
            elif plan.peak_bytes > asked.limit_bytes:
                if kept is None:
                    return final
                break
            self._rewriter.revert(before)
            asked = replace(asked, limit_bytes=max(OUT_OF_REACH, asked.limit_bytes - less_bytes))
        self._rewriter.revert(before)
        if kept is None:
            kept = replace(limits, limit_bytes=OUT_OF_REACH, find_lowest=True)
        plan = make_plan(self._options.algorithm, network, kept)
        return self._apply(network, plan, limits, scope)

    def _apply(
        self, network: Network, plan: Plan, limits: Limits, scope: ScopeBudget | None
    ) -> MemoryTimeline:
        nodes = [network.buffer_graph.nodes[number] for number in network.sequence]
        if plan.done is not None:
            where = "" if scope is None else f"in the scope {scope.pattern!r}, "
            decisions = _explain(plan.done, limits)
            with self._rewriter.edit(where + _reason(network, plan, limits), decisions=decisions):
                nodes = apply_copies(self._rewriter, plan.done, self._context)
        return self._settle(nodes)

    def padded(self, buffer_graph: BufferGraph) -> BufferGraph:
        """The buffers as a device has them that pads, if that is asked for."""
        tile = NO_TILE if self._compressor is None else self._compressor.tile
        return pad_buffers(buffer_graph, self._context.properties, tile)

    def _settle(self, nodes: Sequence[Node]) -> MemoryTimeline:
        """The sequence on the graph as it is now, simulated, oneDNN's pairs side by side."""
        graph = self._rewriter.graph
        step = step_of(graph, self._context)
        numbering = Numbering.of(graph)
        sequence = step.settle([numbering.place(node) for node in nodes])
        return simulate(self.padded(step.buffer_graph), sequence)


def _highest_bytes(timeline: MemoryTimeline, scope: ScopeBudget | None) -> int:
    """The peak of the step, or of a scope, whichever of a pair for oneDNN runs first."""
    graph = timeline.buffer_graph
    if scope is not None:
        return scope.peak_bytes(graph, timeline.sequence)
    pairs = find_fused_pairs(graph.nodes)
    if not pairs:
        return timeline.peak_bytes
    turned = turn_pairs(graph.producers, timeline.sequence, pairs)
    return max(timeline.peak_bytes, simulate(graph, turned).peak_bytes)


def _hinted(
    forms: Mapping[int, Sequence[Form]], network: Network, hints: Hints
) -> dict[int, Sequence[Form]]:
    """The forms of results, as far as hints allow them; what they ask for costs next to nothing."""
    found: dict[int, Sequence[Form]] = {}
    for number, choices in forms.items():
        hint = hints.of(network.buffer_graph.nodes[number])
        if hint == SWAP:
            found[number] = [
                form._replace(
                    weight=preferred(form.weight), restore_weight=preferred(form.restore_weight)
                )
                for form in choices
            ]
        elif hint != KEEP:
            found[number] = choices
    return found


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
            rewriter.decline(node, "a hint asks to compute it again, but it may not run twice")
        elif hint == SWAP and number not in limits.forms:
            why = "that is not possible for it" if offload else "nothing says how (offload)"
            rewriter.decline(node, f"a hint asks to take it to the host, but {why}")


def _enforce(rewriter: Rewriter, final: MemoryTimeline, context: Context) -> None:
    def reason(chain: Chain) -> str:
        return (
            f"{len(chain.nodes)} operations run in the order that was planned, in which at most "
            f"{_printed(final.peak_bytes)} are in use"
        )

    chains = enforce(final.buffer_graph, final.sequence, fed=context.fed)
    add_edges(rewriter, final.buffer_graph, chains, reason)


def _explain(done: Rematerialized, limits: Limits) -> tuple[Decision, ...]:
    # Not before it is used: it needs numpy.
    from memopt.passes.remat.planned.decisions import explain

    return explain(done, limits.forms)


def _reason(network: Network, plan: Plan, limits: Limits) -> str:
    assert plan.done is not None
    return (
        f"{describe(plan.done)}; so that the peak is "
        f"{_printed(plan.peak_bytes)} instead of {_printed(network.peak_bytes)}, "
        f"{_printed(network.buffer_graph.held_bytes)} of which are held before the step; "
        f"the limit is {_printed(limits.limit_bytes)}"
    )


def _warning(network: Network, final: MemoryTimeline, limits: Limits) -> str:
    return (
        f"the limit of {_printed(limits.limit_bytes)} cannot be met by computing results again: "
        f"here {_printed(final.peak_bytes)} are in use ({_printed(network.peak_bytes)} without), "
        f"{_printed(network.buffer_graph.held_bytes)} of which are held before the step"
    )


def _no_room(final: MemoryTimeline, limits: Limits, missing_bytes: int) -> str:
    assert limits.allocator is not None
    return (
        f"the allocator has no room within {_printed(limits.allocator.limit_bytes)} for the "
        f"{_printed(final.peak_bytes)} that are in use here: it needs about "
        f"{_printed(missing_bytes)} more for what lies between chunks"
    )


def _decline_taken_names(rewriter: Rewriter) -> frozenset[str]:
    """The nodes whose copies would have the name of another node."""
    graph = rewriter.graph
    taken = []
    for node in graph:
        if COPY_PREFIX + node.name in graph and can_run_twice(node, graph.library):
            rewriter.decline(node, f"the name {COPY_PREFIX + node.name!r} is taken")
            taken.append(node.name)
    return frozenset(taken)


def _printed(size_bytes: int) -> str:
    if size_bytes < _MEBIBYTE:
        return f"{size_bytes} bytes"
    return f"{size_bytes / _MEBIBYTE:.2f} MiB"
