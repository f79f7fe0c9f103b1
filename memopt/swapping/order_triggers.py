"""Triggers by the order of a simulated step: what runs just before a copy back, or after one out.

An edge from what ran earlier in a simulation to what ran later never closes a cycle, whatever other
such edges there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from memopt.swapping.triggers import BORDERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.graph.graph import Node, Tensor
    from memopt.swapping.timeline import DeviceTimeline

MOST_VISITED = 64
"""How many nodes one search along edges looks at."""


class OrderTriggers:
    """Finds triggers among what a device ran.

    Args:
        timeline: The device's step.
        may_trigger: Whether a node may wait or be waited for.
    """

    def __init__(self, timeline: DeviceTimeline, may_trigger: Callable[[Node], bool]) -> None:
        starts_ns, ends_ns = timeline.starts_ns, timeline.ends_ns
        nodes = [
            node
            for node in timeline.nodes
            if (node.inputs or node.control_inputs) and may_trigger(node)
        ]
        self._starts_ns, self._ends_ns = starts_ns, ends_ns
        self._eligible = frozenset(nodes)
        self._by_end = sorted(nodes, key=lambda node: (ends_ns[node.index], node.index))
        self._sorted_ends_ns = [ends_ns[node.index] for node in self._by_end]
        self._by_start = sorted(nodes, key=lambda node: (starts_ns[node.index], node.index))
        self._sorted_starts_ns = [starts_ns[node.index] for node in self._by_start]

    def before(self, reader: Node, earliest_ns: int, latest_ns: int) -> Node | None:
        """The node that ends last in a span of time, of those that lead to a reader.

        If there is none, or none near, any node of the device that ends last in the span.
        """
        ends_ns = self._ends_ns
        pending: list[tuple[int, int, Node]] = []
        seen: set[Node] = set()

        def look_behind(node: Node) -> None:
            for near in (*(tensor.node for tensor in node.inputs), *node.control_inputs):
                if near not in seen and ends_ns[near.index] >= 0:
                    seen.add(near)
                    heappush(pending, (-ends_ns[near.index], near.index, near))

        look_behind(reader)
        for _ in range(MOST_VISITED):
            if not pending or -pending[0][0] < earliest_ns:
                break
            negative_ns, _, node = heappop(pending)
            if -negative_ns <= latest_ns and node in self._eligible:
                return node
            if node.op not in BORDERS:
                look_behind(node)
        place = bisect_right(self._sorted_ends_ns, latest_ns) - 1
        if place < 0 or self._sorted_ends_ns[place] < earliest_ns:
            return None
        return self._by_end[place]

    def after(self, tensor: Tensor, earliest_ns: int, latest_ns: int) -> Node | None:
        """The node that starts first in a span of time, of those that a tensor's node leads to.

        If there is none, or none near, any node of the device that starts first in the span.
        """
        starts_ns = self._starts_ns
        pending: list[tuple[int, int, Node]] = []
        seen: set[Node] = set()

        def look_ahead(node: Node) -> None:
            for near in node.users:
                if near not in seen and starts_ns[near.index] >= 0:
                    seen.add(near)
                    heappush(pending, (starts_ns[near.index], near.index, near))

        look_ahead(tensor.node)
        for _ in range(MOST_VISITED):
            if not pending or pending[0][0] > latest_ns:
                break
            started_ns, _, node = heappop(pending)
            if started_ns >= earliest_ns and node in self._eligible:
                return node
            if node.op not in BORDERS:
                look_ahead(node)
        place = bisect_left(self._sorted_starts_ns, earliest_ns)
        if place == len(self._by_start) or self._sorted_starts_ns[place] > latest_ns:
            return None
        return self._by_start[place]
