"""Brings a graph within limits: plans, copies in one edit each, and the order that they come to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memopt.buffers.buffer_graph import simulate
from memopt.graph.copy_names import COPY_PREFIX, is_copy
from memopt.graph.traversal import Numbering
from memopt.rematerialization.network import OUT_OF_REACH
from memopt.rematerialization.plan_choice import make_plan
from memopt.rematerialization.rewriting.apply import apply_copies
from memopt.rematerialization.rewriting.eligibility import can_run_twice, network_of
from memopt.rematerialization.rewriting.hints import KEEP, SWAP, Hints, preferred
from memopt.rematerialization.rewriting.summary import describe
from memopt.rematerialization.storage.compression import NO_TILE, pad_buffers
from memopt.rematerialization.storage.storable import find_forms
from memopt.sequencing.device_waits import find_device_waits
from memopt.sequencing.devices import Devices
from memopt.sequencing.fusions import turn_pairs
from memopt.sequencing.step import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.buffers.buffer_graph import BufferGraph, MemoryTimeline
    from memopt.context import Context
    from memopt.graph.graph import Node
    from memopt.graph.rewriter import Checkpoint, Decision, Rewriter
    from memopt.rematerialization.limits import Limits, Plan
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.plan_cache import PlanCache
    from memopt.rematerialization.rematerialized import Rematerialized
    from memopt.rematerialization.rewriting.part_budget import PartBudget
    from memopt.rematerialization.storage.compression import Compressor
    from memopt.rematerialization.storage.forms import Form
    from memopt.rematerialization.storage.offloading import Offloader

_MEBIBYTE = 1 << 20
_ATTEMPTS = 3
"""How many plans are made within the limit, and less, before the lowest of all is looked for."""
_ROUNDS = 3
"""How often the budgets of parts and of the step are planned one after the other."""


@dataclass(frozen=True)
class Settings:
    """How limits are kept.

    Attributes:
        algorithm: How plans are made: one of `ALGORITHMS`, or "best".
        limits: What all of the step has to keep to, without the forms of its results.
        compressor: What keeps results in smaller forms, if anything.
        offloader: What takes results to the host, if anything.
        plan_cache: Where plans are kept for other processes, if anywhere. Plans with results in
            other forms, and those that the allocator has to find room for, are not.
    """

    algorithm: str
    limits: Limits
    compressor: Compressor | None = None
    offloader: Offloader | None = None
    plan_cache: PlanCache | None = None


class MemoryLimiter:
    """Brings a graph within limits, one after the other.

    Args:
        rewriter: Changes the graph.
        context: What is known of it.
        hints: What users say of its operations.
        settings: How limits are kept.
        step: The graph as it is.

    Attributes:
        step: The graph as the last plan left it, once limits were kept.
    """

    def __init__(
        self,
        rewriter: Rewriter,
        context: Context,
        hints: Hints,
        settings: Settings,
        step: Step,
    ) -> None:
        self.step = step
        self._rewriter = rewriter
        self._context = context
        self._hints = hints
        self._settings = settings
        self._taken = _decline_taken_names(rewriter)
        self._is_changed = False

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
        settings = self._settings
        if settings.compressor is None and settings.offloader is None:
            return settings.limits
        forms = find_forms(
            self._rewriter,
            network,
            self._context,
            compressor=settings.compressor,
            offloader=settings.offloader,
        )
        return replace(settings.limits, forms=_hinted(forms, network, self._hints))

    def keep_all(
        self, network: Network, limits: Limits, parts: Sequence[PartBudget]
    ) -> MemoryTimeline:
        """Keep the budgets of parts of the step and that of all of it, as far as that can be.

        What one plan changes can break what another one kept: then both are made anew.
        """
        reached = {part: part.limit_bytes for part in parts}
        for _ in range(_ROUNDS):
            for number, part in enumerate(parts):
                within = _within(reached, network)
                if part in within:
                    continue
                share = limits.time_limit.share(1 / (len(parts) - number))
                own = replace(limits, time_limit=share)
                done = self._keep_part(network, own, part, within)
                # What cannot be kept is not tried for again, unless another plan makes it worse.
                reached[part] = max(part.limit_bytes, _highest_bytes(done, part))
                network, limits = self._look_again(done)
            final = self._keep(network, limits)
            if len(_within(reached, final)) == len(reached):
                break
            network, limits = self._look_again(final)
        return final

    def _look_again(self, timeline: MemoryTimeline) -> tuple[Network, Limits]:
        """The graph after a plan, and what it still has to keep to."""
        network = self.network(timeline.buffer_graph, timeline.sequence)
        return network, self.limits(network)

    def _keep_part(
        self, network: Network, limits: Limits, part: PartBudget, kept: Sequence[PartBudget]
    ) -> MemoryTimeline:
        return self._keep(
            part.narrow(network, kept),
            replace(limits, limit_bytes=part.limit_bytes, allocator=None),
            part,
        )

    def _keep(
        self, network: Network, limits: Limits, part: PartBudget | None = None
    ) -> MemoryTimeline:
        """Make the copies of a plan, in one edit; returns the memory of the step with them.

        What has to stand side by side for oneDNN, either first, and branches, which stand in one
        piece, can take more than was planned. Then there is another plan, with as much less. Where
        none comes to the limit, the lowest of what they come to stays.
        """
        before = self._rewriter.checkpoint()
        tried: list[tuple[int, Plan]] = []
        asked = limits
        while True:
            near = [plan.done for _, plan in tried[-1:] if plan.done is not None]
            plan = self._plan(network, asked, near)
            final = self._apply(network, plan, limits, part)
            highest_bytes = _highest_bytes(final, part)
            if highest_bytes <= limits.limit_bytes:
                return final
            tried.append((highest_bytes, plan))
            if plan.peak_bytes > asked.limit_bytes or limits.time_limit.is_over:
                break
            self._rewriter.revert(before)
            less_bytes = asked.limit_bytes - (highest_bytes - limits.limit_bytes)
            asked = replace(asked, limit_bytes=max(OUT_OF_REACH, less_bytes))
            if len(tried) == _ATTEMPTS:
                asked = replace(limits, limit_bytes=OUT_OF_REACH, find_lowest=True)
        lowest = min(tried, key=lambda each: each[0])[1]
        if lowest is not plan:
            self._rewriter.revert(before)
            final = self._apply(network, lowest, limits, part)
        return self._no_worse(before, network, final, part)

    def _no_worse(
        self,
        before: Checkpoint,
        network: Network,
        final: MemoryTimeline,
        part: PartBudget | None,
    ) -> MemoryTimeline:
        """What came of a plan, or the step without it if that needs less.

        What is held in lists and loops is counted from the graph, and can come out higher than a
        plan had it.
        """
        if _highest_bytes(final, part) <= _highest_bytes(network.timeline, part):
            return final
        self._rewriter.revert(before)
        return self._settle([network.buffer_graph.nodes[number] for number in network.sequence])

    def _plan(self, network: Network, limits: Limits, near: Sequence[Rematerialized]) -> Plan:
        settings = self._settings
        if settings.plan_cache is None or limits.forms or limits.allocator is not None:
            return make_plan(settings.algorithm, network, limits, near)
        return settings.plan_cache.plan(settings.algorithm, network, limits, near)

    def _apply(
        self, network: Network, plan: Plan, limits: Limits, part: PartBudget | None
    ) -> MemoryTimeline:
        nodes = [network.buffer_graph.nodes[number] for number in network.sequence]
        if plan.done is not None:
            self._is_changed = True
            where = "" if part is None else f"for {part}, "
            decisions = _explain(plan.done, limits)
            planned = plan.planned(network)
            reason = where + _reason(network, plan, limits)
            with self._rewriter.edit(reason, decisions=decisions, planned=planned):
                nodes = apply_copies(self._rewriter, plan.done, self._context)
                nodes = self._held_across_devices(nodes)
        return self._settle(nodes)

    def _held_across_devices(self, nodes: list[Node]) -> list[Node]:
        """Let copies that another device reads wait for it, where their own device does not.

        Returns the nodes in an order in which collectives meet.
        """
        if Devices.of(nodes) is None:
            return nodes
        step = Step.in_context(self._rewriter.graph, self._context)
        if step.devices is None:
            return nodes
        numbering = Numbering.of(self._rewriter.graph)
        sequence = step.precedence.meet([numbering.place(node) for node in nodes])
        graph = step.buffer_graph
        copies = {place for place in sequence if is_copy(graph.nodes[place].name)}
        for before, after in find_device_waits(graph, sequence, step.devices, copies):
            node = graph.nodes[after]
            self._rewriter.set_control_inputs(node, (*node.control_inputs, graph.nodes[before]))
        return [graph.nodes[place] for place in sequence]

    def padded(self, buffer_graph: BufferGraph) -> BufferGraph:
        """The buffers as a device has them that pads, if that is asked for."""
        compressor = self._settings.compressor
        tile = NO_TILE if compressor is None else compressor.tile
        return pad_buffers(buffer_graph, self._context.properties, tile)

    def _settle(self, nodes: Sequence[Node]) -> MemoryTimeline:
        """The sequence on the graph as it is now, simulated, oneDNN's pairs side by side."""
        graph = self._rewriter.graph
        if self._is_changed:
            self.step = Step.in_context(graph, self._context)
        numbering = Numbering.of(graph)
        sequence = self.step.settle([numbering.place(node) for node in nodes])
        return simulate(self.padded(self.step.buffer_graph), sequence)


def _within(
    limits_bytes: Mapping[PartBudget, int], order: Network | MemoryTimeline
) -> list[PartBudget]:
    """The parts that need no more than a limit in an order."""
    graph, sequence = order.buffer_graph, order.sequence
    return [
        part for part, limit in limits_bytes.items() if part.peak_bytes(graph, sequence) <= limit
    ]


def _highest_bytes(timeline: MemoryTimeline, part: PartBudget | None) -> int:
    """The peak of the step, or of a part, whichever of a pair for oneDNN runs first."""
    graph = timeline.buffer_graph
    if part is not None:
        return part.peak_bytes(graph, timeline.sequence)
    pairs = graph.fused_pairs
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


def _explain(done: Rematerialized, limits: Limits) -> tuple[Decision, ...]:
    # Not before it is used: it needs numpy.
    from memopt.rematerialization.planned.decisions import explain

    return explain(done, limits.forms, limits.limit_bytes)


def _reason(network: Network, plan: Plan, limits: Limits) -> str:
    assert plan.done is not None
    return (
        f"{describe(plan.done)}; so that the peak is "
        f"{printed_bytes(plan.peak_bytes)} instead of {printed_bytes(network.peak_bytes)}, "
        f"{printed_bytes(network.buffer_graph.held_bytes)} of which are held before the step; "
        f"the limit is {printed_bytes(limits.limit_bytes)}"
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


def printed_bytes(size_bytes: int) -> str:
    """A size as people read it."""
    if size_bytes < _MEBIBYTE:
        return f"{size_bytes} bytes"
    return f"{size_bytes / _MEBIBYTE:.2f} MiB"
