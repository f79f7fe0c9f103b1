"""Triggers as in Grappler: what a copy back waits for, and what waits for the copy out.

Grappler's `FindSwapInTrigger` and `FindSwapOutTrigger`
(tensorflow/core/grappler/optimizers/memory_optimizer.cc).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.simulation.earliest_times import NEVER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memopt.graph.graph import Node, Tensor

FRAME_OPS = op_types.ENTERS | op_types.EXITS | op_types.NEXT_ITERATIONS
BORDERS = op_types.SWITCHES | FRAME_OPS | op_types.MERGES
"""What lies behind these is in another frame, or may not run."""


class TriggerSearch:
    """Finds triggers by the earliest times of a graph as it was before the first swap.

    Nodes that were added since have no time. A search that meets one fails, as in TensorFlow.

    Args:
        ends_ns: For each node, by its index, when it ends at the earliest.
    """

    def __init__(self, ends_ns: list[int]) -> None:
        self._ends_ns = ends_ns
        self._first_readers: dict[Tensor, list[Node]] = {}

    def note_readers(self, tensors: Iterable[Tensor]) -> None:
        """Note who reads tensors before swaps change it: the two that end first, in that order."""
        ends_ns = self._ends_ns
        for tensor in tensors:
            if tensor in self._first_readers:
                continue
            readers = dict.fromkeys(reader for reader, _ in tensor.uses)
            timed = [reader for reader in readers if ends_ns[reader.index] != NEVER]
            timed.sort(key=lambda reader: (ends_ns[reader.index], reader.index))
            self._first_readers[tensor] = timed[:2]

    def out_trigger(self, tensor: Tensor, reader: Node) -> Node | None:
        """The reader that ends first, other than the given one, of a tensor that was noted.

        Of those that end together the one that stands first in the graph. (TensorFlow: the one
        that its hash table has first.)
        """
        others = (node for node in self._first_readers[tensor] if node is not reader)
        return next(others, None)

    def in_trigger(self, reader: Node, swapped: Collection[Tensor], transfer_ns: int) -> Node | str:
        """The last node that leads to a reader and leaves the time for a transfer after it.

        The search goes back from the reader's other inputs, not beyond frames, Switches and Merges.

        Args:
            reader: Who needs the copies.
            swapped: The inputs that are copied.
            transfer_ns: How long the copies take together.

        Returns:
            The node, or in words why there is none.
        """
        ends_ns, limit = self._ends_ns, len(self._ends_ns)
        producers = dict.fromkeys(tensor.node for tensor in reader.inputs)
        producers.update(dict.fromkeys(reader.control_inputs))
        for node in producers:
            if node.index >= limit:
                return "it waits for another swap"
            if ends_ns[node.index] == NEVER:
                return f"{node.name!r}, which it waits for, never runs"
        latest_ns = max((ends_ns[node.index] for node in producers), default=0)
        for tensor in swapped:
            producers.pop(tensor.node, None)
        if not producers:
            return "it waits for nothing else"
        return self._last_before(latest_ns - transfer_ns, list(producers))

    def _last_before(self, deadline_ns: int, starts: list[Node]) -> Node | str:
        """The node that ends last of those that end before the deadline and are found first."""
        ends_ns, limit = self._ends_ns, len(self._ends_ns)
        pending, seen = list(starts), set(starts)
        last_ns, last = NEVER, [starts[0]]
        while pending:
            node = pending.pop()
            if node.index >= limit:
                return "what leads to it waits for another swap"
            if node.op in BORDERS:
                continue
            end_ns = ends_ns[node.index]
            if end_ns == NEVER:
                return f"{node.name!r}, which leads to it, never runs"
            if end_ns >= deadline_ns:
                fresh = [near for near in _producers(node) if near not in seen]
                seen.update(fresh)
                pending.extend(fresh)
            elif end_ns > last_ns:
                last_ns, last = end_ns, [node]
            elif end_ns == last_ns and node not in last:
                last.append(node)
        if last_ns == NEVER:
            return "nothing that leads to it ends early enough for the transfer"
        if len(last) == 1:
            return last[0]
        return self._last_by_name(deadline_ns, starts, last)

    def _last_by_name(self, deadline_ns: int, starts: list[Node], last: list[Node]) -> Node:
        """Of several nodes that end together, the one that TensorFlow's search comes to last.

        It takes, of all that it knows of, the first by name next.
        """
        ends_ns = self._ends_ns
        equal, found = set(last), last[0]
        pending = [(node.name, node) for node in starts]
        heapify(pending)
        seen = set(starts)
        while pending:
            _, node = heappop(pending)
            if node in equal:
                found = node
            if node.op in BORDERS or ends_ns[node.index] < deadline_ns:
                continue
            for near in _producers(node):
                if near not in seen:
                    seen.add(near)
                    heappush(pending, (near.name, near))
        return found


def _producers(node: Node) -> tuple[Node, ...]:
    return (*(tensor.node for tensor in node.inputs), *node.control_inputs)
