"""Recomputation for steps that XLA compiles: it obeys data, and neither control edges nor an order.

What `jax.checkpoint` does by hand, and, for plans, as in `Rematerialization`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from memopt.buffers.buffer_graph import simulate
from memopt.buffers.compiled_buffers import compiled_buffers
from memopt.errors import OptionsError
from memopt.graph.backward import find_backward_nodes
from memopt.graph.rewriter import Touches
from memopt.graph.xla_ops import Fusion, fusion_of
from memopt.passes.base import Pass
from memopt.rematerialization.algorithms import ALGORITHMS, BEST
from memopt.rematerialization.limits import Limits
from memopt.rematerialization.plan_cache import PlanCache
from memopt.rematerialization.plan_choice import make_plan
from memopt.rematerialization.rewriting.apply import apply_copies
from memopt.rematerialization.rewriting.data_triggers import BarrierTriggers, DataTriggers, Keeper
from memopt.rematerialization.rewriting.drawn_results import find_drawn
from memopt.rematerialization.rewriting.eligibility import network_of
from memopt.rematerialization.rewriting.fused_twins import add_fused_twins
from memopt.rematerialization.rewriting.kept_results import (
    find_kept,
    is_reshaped_for_kernels,
    may_round,
)
from memopt.rematerialization.rewriting.late_operands import delay_operands
from memopt.rematerialization.rewriting.memory_limit import printed_bytes
from memopt.rematerialization.rewriting.same_kernels import copy_operands, store_copies
from memopt.rematerialization.rewriting.same_sums import keep_sums
from memopt.rematerialization.rewriting.segment_triggers import hold_copies
from memopt.rematerialization.rewriting.summary import describe
from memopt.sequencing.orders import SEQUENCERS
from memopt.sequencing.step import Step
from memopt.time_limit import TimeLimit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.context import Context
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.rematerialization.limits import Plan
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rewriting.data_triggers import Triggers

DATA, BARRIERS = "data", "barriers"
ALL, EXACT, NONE = "all", "exact", "none"
_DRAWN = "XLA computes it where it draws normal numbers, and would round otherwise elsewhere"
_FUSED = (Fusion.CHEAP, Fusion.COSTLY, Fusion.REDUCTION)
_FUSED_SHARE = 10
"""The part of its time alone that an operation takes inside of a kernel with others."""


@dataclass(frozen=True)
class CompiledRematerialization(Pass):
    """Recompute results in a step that XLA compiles, until it needs no more than a limit.

    1. A plan is made as in `Rematerialization`, on what XLA is expected to hold: see
       `compiled_buffers`.
    2. Each run of copies waits, by data, for what is made just before it: see `hold_copies`.
       Neither an order nor control edges are added; XLA would drop them. Copies are put into
       kernels like those of their originals, if that is asked for: see `same_kernels`. Sums are
       added up by what added them up before: see `same_sums`.
    3. Operands of convolutions wait for the last of them, if that is asked for. Then what their
       kernels compute as they copy it is planned for by itself: see `add_fused_twins`.
    4. Results of the forward part that the backward part reads, and that XLA would have it compute
       again from what is larger, are kept instead: see `Keeper`. No copy is needed for that.

    The results are the same wherever XLA rounds alike. Kernels that fuse other operations may
    round a product and a sum once instead of twice: who uses this pass has to compare.

    What it comes to only the compiler knows; `memopt.rewrite` asks it.
    """

    name: ClassVar[str] = "compiled-rematerialization"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {Touches.NODES, Touches.DATA_EDGES, Touches.CONTROL_EDGES}
    )

    step_limit: int = 0
    """Bytes that the step's own results may take at any moment, by the estimate; 0: nothing is
    recomputed."""
    triggers: str = DATA
    """What copies wait for: "data", which every compiler respects; or "barriers", which XLA's
    compilers for GPUs and TPUs do (on a GPU more is in use with them)."""
    keep: str = ALL
    """Which results are kept that XLA would compute again from larger ones: "all"; "exact", those
    into which no product goes that is fused with a sum; or "none"."""
    alike: bool = False
    """Whether copies are computed in kernels like those of their originals, so that they round as
    these do; where it is known which results those put in memory (`Context.stored`)."""
    late_operands: bool = False
    """Whether operands of convolutions wait for the last of them: see `delay_operands`."""
    algorithm: str = BEST
    """How the plan is made: one of `ALGORITHMS`, or "best"."""
    scheduler: str = BEST
    """How the order is found that the plan goes by: one of `SEQUENCERS`."""
    planning_seconds: float = 0.0
    """After how many seconds planning ends with what was found; 0: when nothing is left to try."""
    cache_plans: bool = False
    """Whether plans are kept in the cache folder for other processes, and looked up there."""

    def __post_init__(self) -> None:
        for option, known in (
            ("scheduler", SEQUENCERS),
            ("algorithm", (*ALGORITHMS, BEST)),
            ("triggers", (DATA, BARRIERS)),
            ("keep", (ALL, EXACT, NONE)),
        ):
            given = getattr(self, option)
            if given not in known:
                raise OptionsError(
                    f"{self.name}: {option} is one of {', '.join(known)}, not {given!r}"
                )
        for option in ("step_limit", "planning_seconds"):
            if getattr(self, option) < 0:
                raise OptionsError(f"{self.name}: {option} is less than 0")

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Plan, make the copies with their triggers in one edit, and keep results in another."""
        if not len(rewriter.graph):
            return
        # Before there are copies, which read what the backward part makes.
        backward = {node.name for node in find_backward_nodes(rewriter.graph)}
        if self.step_limit or self.late_operands:
            order = self._plan(rewriter, context, backward)
            if self.late_operands:
                self._delay(rewriter, context, order)
        self._keep(rewriter, context, backward)

    def estimated_bytes(self, graph: Graph, context: Context) -> int:
        """What a step's own results take at the peak, in bytes, as plans have it without copies."""
        step, sequence = self._in_order(graph, context)
        return simulate(step.buffer_graph, sequence).step_peak_bytes

    def _in_order(self, graph: Graph, context: Context) -> tuple[Step, list[int]]:
        """A step with what its kernels leave in memory, and the order that plans go by."""
        step = Step.in_context(graph, context)
        buffers = compiled_buffers(step.buffer_graph, copies_late=self.late_operands)
        step = replace(step, buffer_graph=buffers)
        return step, step.sequence(self.scheduler)

    def _plan(self, rewriter: Rewriter, context: Context, backward: set[str]) -> list[Node]:
        """Make the copies of a plan, if there is a limit; the nodes in the order that it has."""
        before = rewriter.checkpoint()
        if self.step_limit and self.late_operands:
            self._add_twins(rewriter, context, backward)
        step, sequence = self._in_order(rewriter.graph, context)
        order = [step.buffer_graph.nodes[number] for number in sequence]
        if not self.step_limit:
            return order
        # A sum in another kernel than its original can round otherwise: so sums run again only
        # where they keep convolutions from it, around which they lead in residual networks.
        network = _network(
            rewriter, step.buffer_graph, sequence, context, sums_again=self.late_operands
        )
        limit_bytes = step.buffer_graph.held_bytes + self.step_limit
        limits = Limits(limit_bytes, time_limit=TimeLimit.after(self.planning_seconds))
        plan = self._make_plan(network, limits)
        if plan.done is None:
            rewriter.revert(before)
            return [node for node in order if node.name in rewriter.graph]
        reason = (
            f"{describe(plan.done)}; so that about {printed_bytes(plan.peak_bytes)} are in use at "
            f"the peak instead of {printed_bytes(network.peak_bytes)}; the limit is "
            f"{printed_bytes(limit_bytes)}"
        )
        # Not before it is used: it needs numpy.
        from memopt.rematerialization.planned.decisions import explain

        kernels = context if self.alike else replace(context, stored=frozenset())
        decisions = explain(plan.done, limits.forms, limits.limit_bytes)
        with rewriter.edit(reason, decisions=decisions, planned=plan.planned(network)):
            order = apply_copies(rewriter, plan.done, kernels)
            order = copy_operands(rewriter, kernels, order)
            hold_copies(rewriter, kernels, order, self._triggers(rewriter, kernels))
            store_copies(rewriter, kernels, order)
            keep_sums(rewriter, context)
        return order

    def _make_plan(self, network: Network, limits: Limits) -> Plan:
        if self.cache_plans:
            # How copies are put into kernels is no part of a plan.
            return PlanCache(str(replace(self, alike=False))).plan(self.algorithm, network, limits)
        return make_plan(self.algorithm, network, limits)

    def _triggers(self, rewriter: Rewriter, context: Context) -> Triggers:
        if self.triggers == BARRIERS:
            return BarrierTriggers(rewriter, context)
        return DataTriggers(rewriter, context)

    def _delay(self, rewriter: Rewriter, context: Context, order: Sequence[Node]) -> None:
        reason = "operands of convolutions wait for the last of them, before XLA copies them"
        with rewriter.edit(reason):
            delay_operands(rewriter, context, order, self._triggers(rewriter, context))

    def _add_twins(self, rewriter: Rewriter, context: Context, backward: set[str]) -> None:
        kept = self._find_kept(rewriter, context, backward)
        reason = (
            "what kernels compute for themselves that read it is an operation of its own beside "
            "that for kernels which read it in memory"
        )
        with rewriter.edit(reason):
            add_fused_twins(rewriter, context, kept)

    def _find_kept(self, rewriter: Rewriter, context: Context, backward: set[str]) -> list[Tensor]:
        """Results of the graph as it is now that are kept in memory."""
        if self.keep == NONE:
            return []
        found = find_kept(rewriter, context, backward)
        if self.keep == EXACT:
            found = [tensor for tensor in found if not may_round(tensor, rewriter)]
        return found

    def _keep(self, rewriter: Rewriter, context: Context, backward: set[str]) -> None:
        found = self._find_kept(rewriter, context, backward)
        if not found:
            return
        keeper = Keeper(rewriter, context)
        reason = (
            f"{len(found)} results of the forward part stay in memory, which XLA would compute "
            "again from larger ones"
        )
        with rewriter.edit(reason):
            for tensor in found:
                readers = [user for user, _ in tensor.uses]
                is_reshaped = is_reshaped_for_kernels(tensor, context)
                keeper.read_instead(readers, tensor, keeper.keep(tensor, is_reshaped=is_reshaped))


def _network(
    rewriter: Rewriter,
    buffers: BufferGraph,
    sequence: Sequence[int],
    context: Context,
    *,
    sums_again: bool,
) -> Network:
    """The network of a plan, in which what is fused takes less time than alone."""
    drawn = find_drawn((buffers.nodes[number] for number in sequence), context.stored)
    for node in drawn:
        rewriter.decline(node, _DRAWN)
    network = network_of(
        rewriter.graph,
        buffers,
        sequence,
        context,
        declined=frozenset(node.name for node in drawn),
        sums_again=sums_again,
    )
    weights = [
        max(1, weight // _FUSED_SHARE) if fusion_of(node) in _FUSED else weight
        for node, weight in zip(buffers.nodes, network.weights, strict=True)
    ]
    return replace(network, weights=weights)
