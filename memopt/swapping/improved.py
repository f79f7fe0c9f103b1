"""The improved way to swap: plan, rewrite and simulate again, as long as that helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.simulation.graph_memory import GraphMemory
from memopt.swapping.candidates import SMALLEST_BYTES
from memopt.swapping.eligibility import Eligibility
from memopt.swapping.history import PREFIXES
from memopt.swapping.ops import Swapped, is_swap
from memopt.swapping.planning import Planner
from memopt.swapping.timeline import DeviceTimeline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.cluster import Device
    from memopt.context import Context
    from memopt.graph.graph import Node
    from memopt.graph.rewriter import Rewriter
    from memopt.simulation.simulated_memory import SimulatedMemory
    from memopt.swapping.ops import Swapper
    from memopt.swapping.planning import Plan

MOST_ITERATIONS = 25


class SharedSwaps:
    """Swaps tensors of the devices of one type.

    Args:
        swapper: Adds the operations.
        rewriter: The graph's.
        context: What is known of the graph.
        simulated: Its simulations.
    """

    def __init__(
        self, swapper: Swapper, rewriter: Rewriter, context: Context, simulated: SimulatedMemory
    ) -> None:
        self._rewriter = rewriter
        self._graph = rewriter.graph
        self._simulated = simulated
        self._swapper = swapper
        self._eligibility = Eligibility(self._graph, context, swapper)

    def swap_annotated(self, device: Device, wanted: dict[Node, list[int]]) -> None:
        """Swap what annotations say, whether it helps or not."""
        planner = self._planner(device, self._timeline(device))
        for plan in planner.plan_annotated(wanted):
            self._rewrite(plan)
        self._decline(planner.dropped)
        self._eligibility.sum_orders.keep(self._rewriter)
        self._simulated.forget()

    def fit(self, device: Device) -> None:
        """Swap until a device's memory is enough, or nothing more helps.

        Each iteration plans for the graph as the last one left it. One that does not lower the
        peak, or that lets another device exceed its memory, is undone and the last.
        """
        dropped: dict[Node, str] = {}
        timeline = self._timeline(device)
        for _ in range(MOST_ITERATIONS):
            if timeline.peak_bytes <= device.memory_bytes:
                break
            excess = self._excess(device)
            planner = self._planner(device, timeline)
            start = self._rewriter.checkpoint()
            plans = planner.plan(device.memory_bytes)
            dropped |= planner.dropped
            if not plans:
                break
            for plan in plans:
                self._rewrite(plan)
            after = self._timeline(device)
            if after.peak_bytes >= timeline.peak_bytes or self._excess(device) > excess:
                self._rewriter.revert(start)
                break
            timeline = after
        if timeline.peak_bytes > device.memory_bytes:
            dropped |= self._left_at_peak(device, timeline)
        self._decline(dropped)
        self._eligibility.sum_orders.keep(self._rewriter)
        self._simulated.forget()

    def _planner(self, device: Device, timeline: DeviceTimeline) -> Planner:
        return Planner(device, timeline, self._eligibility)

    def _left_at_peak(self, device: Device, timeline: DeviceTimeline) -> dict[Node, str]:
        """Why the larger tensors that are live at a peak stay there."""
        planner = self._planner(device, timeline)
        live = set(timeline.live_at_peak(SMALLEST_BYTES))
        reasons: dict[Node, str] = {}
        for life in timeline.lives(SMALLEST_BYTES):
            node = life.tensor.node
            if node in live and not is_swap(node):
                reasons.setdefault(node, planner.why_not(life))
        return reasons

    def _timeline(self, device: Device) -> DeviceTimeline:
        return DeviceTimeline(self._graph, self._simulated.simulation(), device.name)

    def _excess(self, device: Device) -> int:
        """The bytes by which other devices exceed their memory, together."""
        memory = GraphMemory(self._simulated.simulation(), host_memory=True)
        excess = 0
        for other in self._simulated.cluster:
            if other.name != device.name and other.memory_bytes > 0:
                excess += max(memory.peak(other.name).used_bytes - other.memory_bytes, 0)
        return excess

    def _rewrite(self, plan: Plan) -> None:
        """Give later readers of a tensor copies back of one copy out."""
        tensor = plan.life.tensor
        device = plan.returns[0].reads[0].reader.device
        dtype = op_types.port_types(tensor.node).outputs[tensor.port]
        suffix = self._free_suffix(plan)
        swapped = Swapped(tensor, dtype, device, suffix)
        triggers = ", ".join(repr(back.trigger.name) for back in plan.returns)
        reason = (
            f"{tensor.name!r} is on the host from before {plan.waiting.name!r}; copies come back"
            f" after {triggers}"
        )
        with self._rewriter.edit(reason, releases=(tensor,)):
            copy = self._swapper.copy_out(swapped)
            for number, back in enumerate(plan.returns):
                last = self._swapper.copy_in(
                    swapped.named(_numbered(suffix, number)), copy, back.trigger
                )
                for read in back.reads:
                    self._rewriter.set_input(read.reader, read.slot, last.output())
            self._rewriter.add_control_input(plan.waiting, copy)

    def _free_suffix(self, plan: Plan) -> str:
        """What the names of a tensor's swap end with: the tensor, and more if that is taken."""
        tensor = plan.life.tensor
        suffix = wanted = f"{tensor.node.name}_{tensor.port}"
        tries = 0
        while any(
            prefix + _numbered(suffix, number) in self._graph
            for prefix in PREFIXES
            for number in range(len(plan.returns))
        ):
            tries += 1
            suffix = f"{wanted}_again{tries}"
        return suffix

    def _decline(self, reasons: Mapping[Node, str]) -> None:
        for node, reason in reasons.items():
            self._rewriter.decline(node, reason)


def _numbered(suffix: str, number: int) -> str:
    return f"{suffix}_{number}" if number else suffix
