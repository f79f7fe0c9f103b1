"""Threads: how TensorFlow's run a step that nobody has ordered, and the memory that it then takes.

A model of `ExecutorState` (tensorflow/core/common_runtime/executor.cc) on a pool of threads that
take work from each other (Eigen's `ThreadPoolTempl`). When a node ends, its thread goes on with
what it made ready: with what is not expensive, and if there is none of that with the expensive node
that got ready last. Further expensive nodes go onto the thread's own stack. A thread with nothing
left takes the last of its own stack, or the first of another one's.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.buffer_graph import MemoryTimeline
from memopt.sequencing.free_running import find_expensive

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.sequencing.precedence import Precedence


class Gates(NamedTuple):
    """Windows of a sequence, as nodes wait for them.

    Attributes:
        chain: The nodes that are ordered, in the order of the sequence.
        waits: By place in the chain: all up to that place must have ended before; -1 for none.
    """

    chain: Sequence[int]
    waits: Sequence[int]


class ThreadedRun(NamedTuple):
    """Nodes as threads run them.

    Attributes:
        sequence: The nodes that run, as they start.
        start_ns: By node when it starts; 0 if it does not run.
        end_ns: By node when it ends.
    """

    sequence: list[int]
    start_ns: list[int]
    end_ns: list[int]


def run_on_threads(
    buffer_graph: BufferGraph,
    precedence: Precedence,
    times_ns: Sequence[int],
    threads: int,
    gates: Sequence[Gates] = (),
) -> ThreadedRun:
    """The nodes that run, as the threads of TensorFlow's executor share them.

    Args:
        buffer_graph: The graph in numbers.
        precedence: What must come before what.
        times_ns: By node: how long it runs, at least 1.
        threads: How many operations can run at once.
        gates: The windows within which nodes may run ahead, of chains that share no node.
    """
    frontier = _Frontier(gates, len(times_ns))
    pool = _Pool(find_expensive(buffer_graph.nodes), threads)
    waiting = [len(producers) for producers in precedence.producers]
    pool.start(frontier.opened(node for node in precedence.program if not waiting[node]))
    run = ThreadedRun([], [0] * len(waiting), [0] * len(waiting))
    running: list[tuple[int, int, int, int]] = []
    idle = list(range(threads))
    now_ns = 0
    while True:
        still_idle = []
        for thread in sorted(idle):
            node = pool.take(thread)
            if node is None:
                still_idle.append(thread)
                continue
            run.start_ns[node], run.end_ns[node] = now_ns, now_ns + times_ns[node]
            heapq.heappush(running, (run.end_ns[node], len(run.sequence), node, thread))
            run.sequence.append(node)
        if not running:
            return run
        now_ns, _, ended, thread = heapq.heappop(running)
        idle = [*still_idle, thread]
        ready = []
        for user in precedence.users[ended]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
        pool.add(thread, [*frontier.opened(ready), *frontier.ended(ended)])


class _Frontier:
    """What has ended of each chain, and the nodes that wait for more of it only."""

    def __init__(self, gates: Sequence[Gates], nodes: int) -> None:
        self._chains = [chain for chain, _ in gates]
        self._chain_of = [-1] * nodes
        self._waits = [-1] * nodes
        for number, (chain, waits) in enumerate(gates):
            for node, wait in zip(chain, waits, strict=True):
                self._chain_of[node] = number
                self._waits[node] = wait
        self._ended = [False] * nodes
        self._next = [0] * len(gates)
        self._behind: dict[tuple[int, int], list[int]] = {}

    def opened(self, ready: Iterable[int]) -> Iterator[int]:
        """Of nodes that wait for no other, those that need not wait here either."""
        for node in ready:
            number, wait = self._chain_of[node], self._waits[node]
            if wait < 0 or wait < self._next[number]:
                yield node
            else:
                self._behind.setdefault((number, wait), []).append(node)

    def ended(self, node: int) -> list[int]:
        """Nodes that waited here until a node ended."""
        self._ended[node] = True
        number = self._chain_of[node]
        if number < 0:
            return []
        chain, place = self._chains[number], self._next[number]
        released: list[int] = []
        while place < len(chain) and self._ended[chain[place]]:
            released += self._behind.pop((number, place), ())
            place += 1
        self._next[number] = place
        return released


class _Pool:
    """The nodes that are ready, and who may take them."""

    def __init__(self, is_expensive: Sequence[bool], threads: int) -> None:
        self._is_expensive = is_expensive
        self._first = deque[int]()
        self._next = [deque[int]() for _ in range(threads)]
        self._stacks = [deque[int]() for _ in range(threads)]

    def start(self, nodes: Iterable[int]) -> None:
        """Give what waits for nothing to whoever comes first."""
        self._first.extend(nodes)

    def add(self, thread: int, ready: Sequence[int]) -> None:
        """Give a thread what it made ready."""
        at_once, stack = self._next[thread], self._stacks[thread]
        at_once.extend(node for node in ready if not self._is_expensive[node])
        expensive = [node for node in ready if self._is_expensive[node]]
        last = expensive.pop() if expensive and not at_once else None
        stack.extend(expensive)
        if last is not None:
            at_once.append(last)

    def take(self, thread: int) -> int | None:
        """What a thread runs next, if there is anything."""
        if self._next[thread]:
            return self._next[thread].popleft()
        if self._stacks[thread]:
            return self._stacks[thread].pop()
        for queue in (self._first, *self._stacks):
            if queue:
                return queue.popleft()
        return None


def simulate_threads(buffer_graph: BufferGraph, run: ThreadedRun) -> MemoryTimeline:
    """The memory of a step whose operations run side by side.

    What an operation makes is in use from its start, what it reads until it has ended. At each
    position of the sequence counts what is in use when that node has started; a buffer's last
    position is that of the last node that starts before its last reader has ended.
    """
    memory = _Memory(buffer_graph, run)
    ends = sorted(run.sequence, key=run.end_ns.__getitem__)
    ended = 0
    for position, node in enumerate(run.sequence):
        while run.end_ns[ends[ended]] <= run.start_ns[node]:
            memory.end(ends[ended], position - 1)
            ended += 1
        memory.start(node, position)
    usage_bytes = memory.usage_bytes
    peak_bytes = max(usage_bytes, default=buffer_graph.held_bytes)
    return MemoryTimeline(
        buffer_graph=buffer_graph,
        sequence=tuple(run.sequence),
        held_bytes=buffer_graph.held_bytes,
        usage_bytes=usage_bytes,
        peak_bytes=peak_bytes,
        peak_position=usage_bytes.index(peak_bytes) if usage_bytes else -1,
        last_position=memory.last_position,
        reused=memory.reused,
        larger_bytes=memory.larger_bytes,
    )


class _Memory:
    """What is in use while nodes start and end."""

    def __init__(self, graph: BufferGraph, run: ThreadedRun) -> None:
        self._graph = graph
        self._touched = {node: {*graph.made[node], *graph.read[node]} for node in run.sequence}
        self._holders = Counter(buffer for held in self._touched.values() for buffer in held)
        self._in_use_bytes = graph.held_bytes
        self._given: set[int] = set()
        self.usage_bytes: list[int] = []
        self.reused: dict[int, int] = {}
        self.larger_bytes: dict[int, int] = {}
        self.last_position = [
            len(run.sequence) - 1 if buffer in self._holders else -1
            for buffer in range(len(graph.size_bytes))
        ]

    def start(self, node: int, position: int) -> None:
        """A node allocates, or takes over what nobody else reads any more."""
        graph = self._graph
        for buffer in graph.made[node]:
            source = next((s for s in graph.reusable[buffer] if self._is_free(s)), None)
            if source is None:
                self._in_use_bytes += graph.size_bytes[buffer]
                continue
            self.reused[buffer] = source
            self._given.add(source)
            self.last_position[source] = position
            if self._memory_bytes(source) != graph.size_bytes[buffer]:
                self.larger_bytes[buffer] = self._memory_bytes(source)
        self._in_use_bytes += graph.scratch_bytes[node]
        self.usage_bytes.append(self._in_use_bytes)

    def end(self, node: int, position: int) -> None:
        """A node lets go what it made and read; no node after a position started before that."""
        graph = self._graph
        self._in_use_bytes -= graph.scratch_bytes[node]
        for buffer in self._touched[node]:
            self._holders[buffer] -= 1
            is_last = not self._holders[buffer] and buffer not in self._given
            if is_last and not graph.lasting[buffer]:
                self._in_use_bytes -= self._memory_bytes(buffer)
                self.last_position[buffer] = position

    def _memory_bytes(self, buffer: int) -> int:
        return self.larger_bytes.get(buffer, self._graph.size_bytes[buffer])

    def _is_free(self, source: int) -> bool:
        is_only = self._holders[source] == 1 and source not in self._given
        return is_only and not self._graph.lasting[source]
