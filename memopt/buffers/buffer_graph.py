"""BufferGraph: a graph as the allocator sees it, in numbers, and the memory of a sequence of it.

Nothing here knows ops or kernels; `buffers` turns a graph into a `BufferGraph`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from memopt.display import Displayed, Overview, bytes_text, count_text
from memopt.errors import OptionsError
from memopt.graph.onednn_fusions import find_fused_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.graph.graph import Node

    Kind = Literal["allocate", "free"]

SCRATCH = -1
"""The number that scratch memory has among the buffers of a timeline."""


class UnknownKernels(NamedTuple):
    """Kernels of an op that no rule knows: their outputs count, and no scratch memory.

    Attributes:
        op: The op.
        nodes: How many nodes run one.
        node: The name of the one that reads and makes most.
        most_bytes: What it reads and makes, which scratch memory is often as large as.
    """

    op: str
    nodes: int
    node: str
    most_bytes: int

    def __str__(self) -> str:
        return (
            f"{count_text(self.nodes, 'kernel')} of {self.op}, such as {self.node}, may need "
            f"memory that no rule knows; it reads and makes {bytes_text(self.most_bytes)}"
        )


@dataclass(frozen=True, repr=False)
class BufferGraph(Displayed):
    """A graph as the allocator sees it: integers for nodes and for buffers.

    Nodes are numbered as in `Numbering.of(graph)`. A buffer is made by one node, or by none if it
    is there before the step. Aliases are resolved: who reads an alias reads the buffer behind it.

    Attributes:
        nodes: The nodes.
        producers: By node: the nodes that come before it in any case, by data or control, each
            once; without the edges that close a loop.
        made: By node: the buffers that it allocates, in the order in which it does.
        read: By node: the buffers that it reads, through whatever aliases, each once. It holds them
            while it runs.
        size_bytes: By buffer: its size as requested.
        scratch_bytes: By node: the memory that its kernel has only while it runs.
        lasting: By buffer: whether it is kept to the end of the step: constants, feeds, fetches,
            variables. A value that a variable takes is kept, and the variable's old value is a
            buffer that no node makes and that is free when its last reader has ended; the node that
            updates the variable is one of its readers.
        reusable: By buffer: those buffers whose memory its maker puts it into if nobody else reads
            them any more, in the order in which the kernel tries them. The maker reads each of
            them, and they are of the same size, or larger: it reads a piece of one, and what it
            puts there keeps all of that memory.
        next_values: By buffer of the value that a variable has before the step: the buffer of the
            one that it has after, which the next step finds. In the order of the handles.
        may_fuse: Whether oneDNN may be on where the graph runs.
        unknown: The kernels that no rule knows and nobody has measured, the largest first.
        lists_are_told: Whether it is known what lists in loops of Switch and Merge hold.
        unsure: Nodes of which nobody knows whether they need a multiple of what they make, as
            convolutions do that no rule knows.
    """

    nodes: tuple[Node, ...]
    producers: list[list[int]]
    made: list[list[int]]
    read: list[list[int]]
    size_bytes: list[int]
    scratch_bytes: list[int]
    lasting: list[bool]
    reusable: list[list[int]]
    next_values: dict[int, int] = field(default_factory=dict)
    may_fuse: bool = True
    unknown: tuple[UnknownKernels, ...] = ()
    lists_are_told: bool = True
    unsure: frozenset[int] = frozenset()

    @cached_property
    def fused_pairs(self) -> dict[int, int]:
        """The nodes that oneDNN may run as one, first to second: they have to run side by side."""
        return find_fused_pairs(self.nodes) if self.may_fuse else {}

    @cached_property
    def makers(self) -> tuple[int, ...]:
        """By buffer: the node that makes it, -1 if it is there before the step."""
        makers = [-1] * len(self.size_bytes)
        for node, buffers in enumerate(self.made):
            for buffer in buffers:
                makers[buffer] = node
        return tuple(makers)

    @property
    def held_bytes(self) -> int:
        """What is in use before the step: the buffers that no node makes."""
        made = sum(self.size_bytes[buffer] for buffers in self.made for buffer in buffers)
        return sum(self.size_bytes) - made

    def only(self, holds: Sequence[bool], runs: Sequence[bool]) -> BufferGraph:
        """The same graph, of which other buffers, and other nodes' scratch memory, take nothing.

        Memory that comes from another buffer counts from then on.

        Args:
            holds: By buffer whether it counts.
            runs: By node whether its scratch memory counts.
        """
        size_bytes = [
            size if held else 0 for size, held in zip(self.size_bytes, holds, strict=True)
        ]
        return replace(
            self,
            size_bytes=size_bytes,
            scratch_bytes=[
                scratch if it_runs else 0
                for scratch, it_runs in zip(self.scratch_bytes, runs, strict=True)
            ],
            reusable=[
                [source for source in sources if holds[source] == holds[buffer]]
                for buffer, sources in enumerate(self.reusable)
            ],
        )

    def _overview(self) -> Overview:
        counts = (
            f"{count_text(len(self.nodes), 'node')}, {count_text(len(self.size_bytes), 'buffer')}"
        )
        return Overview("BufferGraph", f"{counts}, {bytes_text(self.held_bytes)} held")


class MemoryEvent(NamedTuple):
    """One change of what is in use.

    Attributes:
        position: Position of the node in the sequence.
        kind: "allocate" or "free".
        buffer: The buffer; `SCRATCH` for scratch memory. When memory that several buffers had one
            after the other is freed, it is the last of them.
        size_bytes: Its size; of memory that is freed, how large that is.
    """

    position: int
    kind: Kind
    buffer: int
    size_bytes: int


@dataclass(frozen=True, repr=False)
class MemoryTimeline(Displayed):
    """The memory that a sequence uses; everything that is held counts.

    Attributes:
        buffer_graph: What was simulated.
        sequence: The nodes in the order in which they run.
        held_bytes: In use before the step.
        usage_bytes: By position in the sequence: the most that is in use while that node runs.
        peak_bytes: The most that is in use at any time.
        peak_position: Where that is so for the first time; -1 for an empty sequence.
        last_position: By buffer: the position of its last reader, or of its maker if nobody reads
            it; -1 if neither runs.
        reused: For each buffer that took over the memory of another: that other.
        larger_bytes: By buffer that lies in memory of which it needs only a piece: all of that.
    """

    buffer_graph: BufferGraph
    sequence: tuple[int, ...]
    held_bytes: int
    usage_bytes: list[int]
    peak_bytes: int
    peak_position: int
    last_position: list[int]
    reused: dict[int, int]
    larger_bytes: dict[int, int] = field(default_factory=dict)

    @property
    def step_peak_bytes(self) -> int:
        """The most that the step has in use on top of what is held before it."""
        return self.peak_bytes - self.held_bytes

    def memory_bytes(self, buffer: int) -> int:
        """The size of the memory in which a buffer lies."""
        return self.larger_bytes.get(buffer, self.buffer_graph.size_bytes[buffer])

    def live_at(self, position: int) -> list[int]:
        """The buffers in use while the node at a position runs, what is held before included.

        Of buffers that share memory, the one that has it then. The largest ones come first.
        """
        graph = self.buffer_graph
        made = [buffer for node in self.sequence[: position + 1] for buffer in graph.made[node]]
        given = {self.reused[buffer] for buffer in made if buffer in self.reused}
        held = [buffer for buffer, maker in enumerate(graph.makers) if maker < 0]
        live = [
            buffer
            for buffer in (*held, *made)
            # What nobody reads that was there before stays.
            if buffer not in given
            and (graph.lasting[buffer] or not 0 <= self.last_position[buffer] < position)
        ]
        return sorted(live, key=lambda buffer: (-self.memory_bytes(buffer), buffer))

    def results_at_peak(self) -> list[int]:
        """The buffers of the step's own that are in use at its peak, the largest ones first."""
        if self.peak_position < 0:
            return []
        makers = self.buffer_graph.makers
        return [buffer for buffer in self.live_at(self.peak_position) if makers[buffer] >= 0]

    def events(self) -> Iterator[MemoryEvent]:
        """Every change, in order. What has no size makes none."""
        graph = self.buffer_graph
        given = set(self.reused.values())
        for position, node in enumerate(self.sequence):
            for buffer in graph.made[node]:
                if graph.size_bytes[buffer] and buffer not in self.reused:
                    yield MemoryEvent(position, "allocate", buffer, graph.size_bytes[buffer])
            if scratch_bytes := graph.scratch_bytes[node]:
                yield MemoryEvent(position, "allocate", SCRATCH, scratch_bytes)
                yield MemoryEvent(position, "free", SCRATCH, scratch_bytes)
            for buffer in (*graph.read[node], *graph.made[node]):
                if self._is_freed(buffer, position) and buffer not in given:
                    yield MemoryEvent(position, "free", buffer, self.memory_bytes(buffer))

    def _overview(self) -> Overview:
        outcome = (
            f"peak {bytes_text(self.peak_bytes)}, {bytes_text(self.held_bytes)} of it held before "
            "the step"
        )
        if self.peak_position >= 0:
            name = self.buffer_graph.nodes[self.sequence[self.peak_position]].name
            ran = count_text(len(self.sequence), "node")
            outcome += f"; at node {self.peak_position + 1:,} of {ran}: {name}"
        return Overview("MemoryTimeline", outcome)

    def _is_freed(self, buffer: int, position: int) -> bool:
        graph = self.buffer_graph
        ends = self.last_position[buffer] == position and not graph.lasting[buffer]
        return ends and bool(graph.size_bytes[buffer])


def simulate(buffer_graph: BufferGraph, sequence: Sequence[int]) -> MemoryTimeline:
    """Follow the allocator through the nodes, one after the other; linear in nodes and edges.

    A node's buffers and scratch memory come while all that it reads is still there; then what
    nobody reads any more goes. Nodes that are not in the sequence do not run and read nothing.

    Args:
        buffer_graph: The graph.
        sequence: Numbers of nodes, each once, producers first; `check_sequence` checks it.
    """
    graph = buffer_graph
    made, size_bytes, scratch_bytes = graph.made, graph.size_bytes, graph.scratch_bytes
    reusable = graph.reusable
    last_position = _last_positions(graph, sequence)
    freed_bytes = _freed_bytes(graph, sequence, last_position)
    reused: dict[int, int] = {}
    larger_bytes: dict[int, int] = {}
    held_bytes = in_use_bytes = graph.held_bytes
    usage_bytes: list[int] = []
    for position, node in enumerate(sequence):
        given: list[int] = []
        for buffer in made[node]:
            source = None
            if reusable[buffer]:
                source = _find_source(graph, buffer, position, last_position, given)
            if source is None:
                in_use_bytes += size_bytes[buffer]
                continue
            reused[buffer] = source
            given.append(source)
            taken_bytes = larger_bytes.get(source, size_bytes[source])
            freed_bytes[position] -= taken_bytes
            if taken_bytes != size_bytes[buffer]:
                larger_bytes[buffer] = taken_bytes
                if not graph.lasting[buffer]:
                    freed_bytes[last_position[buffer]] += taken_bytes - size_bytes[buffer]
        usage_bytes.append(in_use_bytes + scratch_bytes[node])
        in_use_bytes -= freed_bytes[position]
    peak_bytes = max(usage_bytes, default=held_bytes)
    return MemoryTimeline(
        buffer_graph=graph,
        sequence=tuple(sequence),
        held_bytes=held_bytes,
        usage_bytes=usage_bytes,
        peak_bytes=peak_bytes,
        peak_position=usage_bytes.index(peak_bytes) if usage_bytes else -1,
        last_position=last_position,
        reused=reused,
        larger_bytes=larger_bytes,
    )


def check_sequence(buffer_graph: BufferGraph, sequence: Sequence[int]) -> None:
    """Check that a sequence can run: every node at most once and after all its producers.

    Raises:
        OptionsError: It cannot; the message names the node.
    """
    ran = [False] * len(buffer_graph.nodes)
    for node in sequence:
        if not 0 <= node < len(ran):
            raise OptionsError(f"the sequence has node {node}, but the graph {len(ran)} nodes")
        name = buffer_graph.nodes[node].name
        if ran[node]:
            raise OptionsError(f"node {name!r} is in the sequence twice")
        for producer in buffer_graph.producers[node]:
            if not ran[producer]:
                needed = buffer_graph.nodes[producer].name
                raise OptionsError(f"node {name!r} comes before {needed!r}, which it needs")
        ran[node] = True


def _last_positions(graph: BufferGraph, sequence: Sequence[int]) -> list[int]:
    """By buffer: when it was made or read last, -1 if never."""
    made, read = graph.made, graph.read
    last_position = [-1] * len(graph.size_bytes)
    for position, node in enumerate(sequence):
        for buffer in made[node]:
            last_position[buffer] = position
        for buffer in read[node]:
            last_position[buffer] = position
    return last_position


def _freed_bytes(
    graph: BufferGraph, sequence: Sequence[int], last_position: Sequence[int]
) -> list[int]:
    """By position: the sizes of the buffers that nobody reads any more when its node has ended."""
    # One more, which those that neither run nor are read have (-1): it is looked at by nobody.
    freed_bytes = [0] * (len(sequence) + 1)
    for position, size, stays in zip(last_position, graph.size_bytes, graph.lasting, strict=True):
        if not stays:
            freed_bytes[position] += size
    return freed_bytes


def _find_source(
    graph: BufferGraph, buffer: int, position: int, last_position: list[int], given: list[int]
) -> int | None:
    """The buffer whose memory a new one takes over, if there is one."""
    for source in graph.reusable[buffer]:
        ends = last_position[source] == position and not graph.lasting[source]
        if ends and source not in given:
            return source
    return None
