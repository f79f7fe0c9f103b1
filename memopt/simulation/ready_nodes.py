"""Ready-node managers: which of the nodes that could run runs next.

The managers of TensorFlow's virtual scheduler
(tensorflow/core/grappler/costs/virtual_scheduler.cc). Nodes are numbers of a `Wiring`; times are
nanoseconds.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

from memopt.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memopt.simulation.wiring import Wiring


class ReadyNodes(Protocol):
    """The nodes whose inputs are there and that have not run yet."""

    def push(self, node: int) -> None:
        """Add a node; its time of readiness is set."""

    def pop(self) -> int:
        """Take out the node that runs next."""

    def __bool__(self) -> bool:
        """Whether any node is ready."""


class Fifo:
    """First in, first out (`FIFOManager`)."""

    def __init__(self) -> None:
        self._nodes: deque[int] = deque()
        self.push = self._nodes.append
        self.pop = self._nodes.popleft

    def __bool__(self) -> bool:
        return bool(self._nodes)


class Lifo:
    """Last in, first out, but Merges after everything else (`LIFOManager`).

    Several inputs of a Merge may run, and all of them should before it does.
    """

    def __init__(self, merges: Collection[int]) -> None:
        self._merges = merges
        self._nodes: deque[int] = deque()
        self._current: int | None = None

    def push(self, node: int) -> None:
        """Add a node."""
        if node in self._merges:
            self._nodes.appendleft(node)
        else:
            self._nodes.append(node)

    def peek(self) -> int:
        """The node that runs next; it stays the next one whatever is added."""
        if self._current is None:
            self._current = self._nodes.pop()
        return self._current

    def pop(self) -> int:
        """Take out the node that runs next."""
        node = self.peek()
        self._current = None
        return node

    def __bool__(self) -> bool:
        return bool(self._nodes) or self._current is not None


class FirstReady:
    """The node that was ready first, ties by name (`FirstReadyManager`).

    Args:
        ready_ns: For each node when it became ready; kept up to date by the scheduler.
        rank: For each node its position by name.
    """

    def __init__(self, ready_ns: Sequence[int], rank: Sequence[int]) -> None:
        self._ready_ns = ready_ns
        self._rank = rank
        self._shift = max(1, len(rank)).bit_length()
        self._mask = (1 << self._shift) - 1
        self._by_rank = [0] * len(rank)
        for node, place in enumerate(rank):
            self._by_rank[place] = node
        self._heap: list[int] = []

    def push(self, node: int) -> None:
        """Add a node."""
        # One integer for both, so that the heap compares no tuples.
        heappush(self._heap, self._ready_ns[node] << self._shift | self._rank[node])

    def pop(self) -> int:
        """Take out the node that runs next."""
        return self._by_rank[heappop(self._heap) & self._mask]

    def __bool__(self) -> bool:
        return bool(self._heap)


class FirstReadyByReference:
    """`FirstReady` where nodes can become ready again while they wait: graphs with Merges.

    Such a node's time changes inside the heap, which is not put in order then. What comes out next
    depends on how the heap is kept, so this one is kept as the C++ standard library does.
    """

    def __init__(self, ready_ns: Sequence[int], rank: Sequence[int]) -> None:
        self._ready_ns = ready_ns
        self._rank = rank
        self._heap: list[int] = []
        self._current: int | None = None

    def push(self, node: int) -> None:
        """Add a node (`std::push_heap`)."""
        self._heap.append(node)
        self._sift_up(len(self._heap) - 1, node)

    def peek(self) -> int:
        """The node that runs next; it stays the next one whatever is added."""
        if self._current is None:
            self._current = self._take()
        return self._current

    def pop(self) -> int:
        """Take out the node that runs next."""
        node = self.peek()
        self._current = None
        return node

    def __bool__(self) -> bool:
        return bool(self._heap) or self._current is not None

    def _take(self) -> int:
        """`std::pop_heap`: the hole sinks to the bottom, then the last element rises into it."""
        heap = self._heap
        first, last = heap[0], heap.pop()
        size = len(heap)
        if not size:
            return first
        hole = 0
        while 2 * hole + 2 < size:
            child = 2 * hole + 2
            if self._is_later(heap[child], heap[child - 1]):
                child -= 1
            heap[hole] = heap[child]
            hole = child
        if 2 * hole + 1 < size:
            heap[hole] = heap[2 * hole + 1]
            hole = 2 * hole + 1
        self._sift_up(hole, last)
        return first

    def _sift_up(self, hole: int, node: int) -> None:
        heap = self._heap
        while hole and self._is_later(heap[(hole - 1) // 2], node):
            heap[hole] = heap[(hole - 1) // 2]
            hole = (hole - 1) // 2
        heap[hole] = node

    def _is_later(self, one: int, other: int) -> bool:
        ready_ns, rank = self._ready_ns, self._rank
        if ready_ns[one] == ready_ns[other]:
            return rank[one] > rank[other]
        return ready_ns[one] > ready_ns[other]


class Composite:
    """Sends first, then receives, then each device's latest (`CompositeNodeManager`).

    Between them the one that was ready first runs, ties in that order and then by name.
    """

    def __init__(self, ready_ns: Sequence[int], rank: Sequence[int], wiring: Wiring) -> None:
        self._ready_ns = ready_ns
        self._rank = rank
        self._wiring = wiring
        self._transfers = (
            FirstReadyByReference(ready_ns, rank),
            FirstReadyByReference(ready_ns, rank),
        )
        self._operations: dict[int, Lifo] = {}

    def push(self, node: int) -> None:
        """Add a node."""
        wiring = self._wiring
        if node in wiring.sends:
            self._transfers[0].push(node)
        elif node in wiring.receives:
            self._transfers[1].push(node)
        else:
            device = wiring.device[node]
            if device not in self._operations:
                self._operations[device] = Lifo(wiring.merges)
            self._operations[device].push(node)

    def pop(self) -> int:
        """Take out the node that runs next."""
        queues: list[FirstReadyByReference | Lifo] = [*self._transfers, *self._operations.values()]
        candidates = [queue for queue in queues if queue]
        first = min(candidates, key=self._priority)
        return first.pop()

    def _priority(self, queue: FirstReadyByReference | Lifo) -> tuple[int, int, int]:
        node = queue.peek()
        kind = next((k for k, known in enumerate(self._transfers) if known is queue), 2)
        return self._ready_ns[node], kind, self._rank[node]

    def __bool__(self) -> bool:
        return any(self._transfers) or any(self._operations.values())


FIRST_READY = "FirstReady"
MANAGERS = (FIRST_READY, "FIFO", "LIFO", "Composite")


def ready_nodes(
    manager: str, ready_ns: Sequence[int], rank: Sequence[int], wiring: Wiring
) -> ReadyNodes:
    """The manager of that name (`ReadyNodeManagerFactory`).

    Raises:
        OptionsError: There is no such manager.
    """
    if manager == "FIFO":
        return Fifo()
    if manager == "LIFO":
        return Lifo(wiring.merges)
    if manager == FIRST_READY:
        return (FirstReadyByReference if wiring.merges else FirstReady)(ready_ns, rank)
    if manager == "Composite":
        return Composite(ready_ns, rank, wiring)
    raise OptionsError(f"there is no ready-node manager {manager!r}, only {', '.join(MANAGERS)}")
