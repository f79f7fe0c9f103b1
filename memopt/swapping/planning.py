"""What to swap on a device, when and around what: the improved way, for a simulated step.

Nothing of it is Grappler's; see `Swapping.improved`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.swapping.candidates import SMALLEST_BYTES
from memopt.swapping.order_triggers import OrderTriggers
from memopt.swapping.selection import Stretch, select

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memopt.cluster import Device
    from memopt.graph.graph import Node
    from memopt.swapping.eligibility import Eligibility
    from memopt.swapping.timeline import DeviceTimeline, Read, TensorLife

_NS_PER_S = 1_000_000_000


class Return(NamedTuple):
    """A copy back: the node after which it may start, and who reads it."""

    trigger: Node
    reads: tuple[Read, ...]


class Plan(NamedTuple):
    """A tensor's swap: one copy out, which a node waits for, and its copies back, in order."""

    life: TensorLife
    waiting: Node
    returns: tuple[Return, ...]


class Gap(NamedTuple):
    """A stretch of time in which nothing reads a tensor.

    Attributes:
        life: The tensor.
        next_read: The number of the read that ends the gap.
        idle_ns: When what read the tensor before has ended.
        needed_ns: When the next read starts.
    """

    life: TensorLife
    next_read: int
    idle_ns: int
    needed_ns: int


class Planner:
    """Plans swaps for one device, from one simulation.

    1. A gap lies between two reads of a tensor, or before its first. It can be used if the tensor
       can be swapped, all reads behind it can be of a copy, and it is longer than the transfers.
       The copy out starts when the tensor is made, the copy back so that it ends with the gap.
    2. Gaps are chosen at the highest point of the device's memory, those of the most bytes times
       nanoseconds first, until the memory keeps the limit; see `selection.select`.
    3. Transfers in one direction come one after another, over the device's link. A gap that this
       leaves no time is dropped.
    4. For each gap a node is found that waits for the copy out, and one that the copy back waits
       for; see `OrderTriggers`. A gap without them is dropped.

    Attributes:
        dropped: What was chosen and dropped: the tensor's node, and why.
    """

    def __init__(self, device: Device, timeline: DeviceTimeline, eligibility: Eligibility) -> None:
        self.dropped: dict[Node, str] = {}
        self._device = device
        self._timeline = timeline
        self._eligibility = eligibility
        self._triggers = OrderTriggers(timeline, eligibility.may_trigger)

    def plan(self, limit_bytes: int) -> list[Plan]:
        """The swaps that bring the device's memory to a limit, or as near as can be."""
        gaps = [
            gap
            for life in self._timeline.lives(SMALLEST_BYTES, self._transfer_ns)
            for gap in self._gaps(life)
        ]
        stretches = [self._stretch(gap) for gap in gaps]
        chosen = select(self._timeline.usage, limit_bytes, stretches)
        return self._find_triggers([gaps[number] for number in chosen])

    def plan_annotated(self, wanted: dict[Node, list[int]]) -> list[Plan]:
        """The swaps before given inputs of nodes."""
        gaps = []
        for life in self._timeline.lives():
            numbers = [
                number
                for number, read in enumerate(life.reads)
                if read.slot in wanted.get(read.reader, ())
            ]
            if not numbers:
                continue
            found = {gap.next_read: gap for gap in self._gaps(life)}
            gaps += [found[number] for number in numbers if number in found]
            if any(number not in found for number in numbers):
                self.dropped[life.tensor.node] = self.why_not(life)
        return self._find_triggers(gaps)

    def why_not(self, life: TensorLife) -> str:
        """Why a tensor is not swapped."""
        reason = self._eligibility.why_not(life.tensor)
        return reason or "is not idle for long enough before reads that could be of a copy"

    def _gaps(self, life: TensorLife) -> list[Gap]:
        """The gaps before those reads that can, with all later ones, be of a copy."""
        gaps = []
        idle_ns = life.made_ns
        for number, read in enumerate(life.reads):
            gap = Gap(life, number, idle_ns, read.start_ns)
            stretch = self._stretch(gap)
            if stretch.first < stretch.stop and stretch.score > 0:
                gaps.append(gap)
            idle_ns = max(idle_ns, read.end_ns)
        if not gaps or self._eligibility.why_not(life.tensor) is not None:
            return []
        first = len(life.reads)
        while first and self._can_be_of_copy(life.reads[first - 1]):
            first -= 1
        return [gap for gap in gaps if gap.next_read >= first]

    def _can_be_of_copy(self, read: Read) -> bool:
        return self._timeline.ran_here(read.reader) and self._eligibility.can_read_copy(
            read.reader, read.slot
        )

    def _stretch(self, gap: Gap) -> Stretch:
        """Where in the profile a tensor is away if transfers need not wait for one another."""
        transfer_ns = self._transfer_ns(gap.life.size_bytes)
        away_ns = max(gap.idle_ns, gap.life.made_ns + transfer_ns)
        back_ns = gap.needed_ns - transfer_ns
        timeline = self._timeline
        return Stretch(
            timeline.point_after(away_ns),
            timeline.point_from(back_ns),
            gap.life.size_bytes,
            (back_ns - away_ns) * gap.life.size_bytes,
        )

    def _transfer_ns(self, size_bytes: int) -> int:
        device = self._device
        return device.link_latency_ns + -(-size_bytes * _NS_PER_S // device.link_bytes_per_s)

    def _find_triggers(self, gaps: Sequence[Gap]) -> list[Plan]:
        """Time the transfers, then find what triggers them and what waits for them."""
        out_ns = self._time_copies_out(gaps)
        back_ns = self._time_copies_back(gaps)
        by_life: dict[TensorLife, list[Gap]] = {}
        for gap in gaps:
            by_life.setdefault(gap.life, []).append(gap)
        plans = []
        for life, own in by_life.items():
            plan = self._plan_tensor(life, own, out_ns[life], back_ns)
            if isinstance(plan, str):
                self.dropped[life.tensor.node] = plan
            else:
                plans.append(plan)
        return plans

    def _plan_tensor(
        self, life: TensorLife, gaps: list[Gap], out_ns: int, back_ns: dict[Gap, int]
    ) -> Plan | str:
        """The plan of one tensor, or in words why there is none."""
        used: list[tuple[int, Node]] = []
        for gap in gaps:
            away_ns = max(gap.idle_ns, out_ns)
            read = life.reads[gap.next_read]
            trigger = self._triggers.before(read.reader, away_ns, back_ns[gap])
            if trigger is not None:
                used.append((gap.next_read, trigger))
        if not used:
            return "nothing runs at the time to start its copy back"
        first_trigger = used[0][1]
        waiting = self._triggers.after(
            life.tensor, out_ns, self._timeline.starts_ns[first_trigger.index]
        )
        if waiting is None:
            return "nothing runs at the time to wait for its copy out"
        stops = [number for number, _ in used[1:]] + [len(life.reads)]
        returns = tuple(
            Return(trigger, life.reads[number:stop])
            for (number, trigger), stop in zip(used, stops, strict=True)
        )
        return Plan(life, waiting, returns)

    def _time_copies_out(self, gaps: Iterable[Gap]) -> dict[TensorLife, int]:
        """When each tensor's copy out ends: in the order in which they are made."""
        lives = sorted({gap.life: None for gap in gaps}, key=lambda life: life.made_ns)
        free_ns = 0
        out_ns: dict[TensorLife, int] = {}
        for life in lives:
            free_ns = max(free_ns, life.made_ns) + self._transfer_ns(life.size_bytes)
            out_ns[life] = free_ns
        return out_ns

    def _time_copies_back(self, gaps: Iterable[Gap]) -> dict[Gap, int]:
        """When each copy back must start at the latest, so that none comes late."""
        latest_first = sorted(gaps, key=lambda gap: -gap.needed_ns)
        back_ns: dict[Gap, int] = {}
        free_ns = latest_first[0].needed_ns if latest_first else 0
        for gap in latest_first:
            free_ns = min(free_ns, gap.needed_ns) - self._transfer_ns(gap.life.size_bytes)
            back_ns[gap] = free_ns
        return back_ns
