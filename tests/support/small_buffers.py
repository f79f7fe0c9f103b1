"""Small buffer graphs in the shape of training steps and of XLA's computations, told by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.buffer_graph import BufferGraph
from memopt.graph.graph import Graph
from memopt.graph.traversal import Numbering
from memopt.sequencing.precedence import Precedence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.sequencing.enforcement import Chain

SIZE_BYTES = 64
"""Of each of `equal_buffers`."""

LOOP = """
x = Placeholder() {dtype=float}
before = Neg(x) {T=float}
enter = Enter(before) {T=float, frame_name="loop"}
limit = Enter(x) {T=float, frame_name="loop", is_constant=true}
merge = Merge(enter, next) {N=2, T=float}
less = Less(merge, limit) {T=float}
also = Neg(merge) {T=float}
goes = LoopCond(less)
switch = Switch(merge, goes) {T=float}
a = Neg(switch:1) {T=float}
b = Square(switch:1) {T=float}
c = Add(a, b) {T=float}
next = NextIteration(c) {T=float}
exit = Exit(switch) {T=float}
after = Neg(exit) {T=float}
beside = Square(x) {T=float}
"""
"""A graph with a loop: in each turn `less` and `also`, in its body `a`, `b` and `c`."""


class Step(NamedTuple):
    """One operation: what it reads and makes.

    Attributes:
        name: Its name.
        reads: The names of the operations whose results it reads.
        size_bytes: What it makes; -1 for one whose result is there before the step.
        aliases: Whether it hands on what it reads instead of making anything.
        waits: The names of the operations that it waits for besides.
        op: Its op.
        scratch_bytes: What it has only while it runs.
        lasting: Whether its result is kept.
        reuses: The operations whose memory its result takes over if nobody else reads them.
        more_bytes: The sizes of further results, which its readers read as well.
    """

    name: str
    reads: tuple[str, ...] = ()
    size_bytes: int = 0
    aliases: bool = False
    waits: tuple[str, ...] = ()
    op: str = "A"
    scratch_bytes: int = 0
    lasting: bool = False
    reuses: tuple[str, ...] = ()
    more_bytes: tuple[int, ...] = ()


class SmallGraph(NamedTuple):
    """A buffer graph whose nodes are known by name."""

    buffers: BufferGraph
    precedence: Precedence

    def names(self, sequence: Sequence[int]) -> list[str]:
        """The names of nodes."""
        return [self.buffers.nodes[node].name for node in sequence]


def small_graph(steps: Sequence[Step]) -> SmallGraph:
    """The graph of some operations, each after those that it needs."""
    graph = Graph()
    place = {step.name: number for number, step in enumerate(steps)}
    holds: list[list[int]] = []
    made: list[list[int]] = []
    read: list[list[int]] = []
    size_bytes: list[int] = []
    lasting: list[bool] = []
    reusable: list[list[int]] = []
    for step in steps:
        node = graph.add_node(step.name, step.op, attributes={})
        inputs = tuple(graph[name].output() for name in step.reads)
        graph.connect(node, inputs, dict.fromkeys(graph[name] for name in step.waits))
        found = list(dict.fromkeys(b for name in step.reads for b in holds[place[name]]))
        read.append(found)
        made.append([])
        holds.append(list(found) if step.aliases else [])
        if step.size_bytes:
            given = step.size_bytes < 0
            holds[-1].append(len(size_bytes))
            made[-1] += [] if given else [len(size_bytes)]
            size_bytes.append(0 if given else step.size_bytes)
            lasting.append(given or step.lasting)
            sources = [b for name in step.reuses for b in holds[place[name]]]
            reusable.append([b for b in sources if size_bytes[b] >= size_bytes[-1]])
        for more_bytes in step.more_bytes:
            holds[-1].append(len(size_bytes))
            made[-1].append(len(size_bytes))
            size_bytes.append(more_bytes)
            lasting.append(step.lasting)
            reusable.append([])
    for number, step in enumerate(steps):
        if step.aliases and step.lasting:
            for buffer in holds[number]:
                lasting[buffer] = True
    buffers = BufferGraph(
        nodes=tuple(graph),
        producers=[[place[name] for name in (*step.reads, *step.waits)] for step in steps],
        made=made,
        read=read,
        size_bytes=size_bytes,
        scratch_bytes=[step.scratch_bytes for step in steps],
        lasting=lasting,
        reusable=reusable,
    )
    return SmallGraph(buffers, Precedence(buffers.producers))


def chain_graph(count: int) -> SmallGraph:
    """A forward chain of so many nodes and its way back, in which each node reads both ways."""
    half = count // 2
    steps = [Step("f0", (), 8)]
    steps += [Step(f"f{n}", (f"f{n - 1}",), 8) for n in range(1, half)]
    steps.append(Step(f"b{half - 1}", (f"f{half - 1}",), 8))
    steps += [Step(f"b{n}", (f"b{n + 1}", f"f{n}"), 8) for n in reversed(range(half - 1))]
    return small_graph(steps)


def equal_buffers(graph: Graph) -> BufferGraph:
    """A graph in numbers; every node makes one buffer of 64 bytes, which its readers read."""
    numbering = Numbering.of(graph)
    count = len(numbering.nodes)
    closing = ("NextIteration",)
    return BufferGraph(
        nodes=tuple(numbering.nodes),
        producers=[
            [p for p in dict.fromkeys(sources) if numbering.nodes[p].op not in closing]
            for sources in numbering.producers
        ],
        made=[[place] for place in range(count)],
        read=[[numbering.place(t.node) for t in node.inputs] for node in numbering.nodes],
        size_bytes=[SIZE_BYTES] * count,
        scratch_bytes=[0] * count,
        lasting=[False] * count,
        reusable=[[] for _ in range(count)],
    )


def spell(buffers: BufferGraph, chains: Sequence[Chain]) -> list[str]:
    """The edges of chains by the names of their ends."""
    names = [node.name for node in buffers.nodes]
    return [f"{names[before]}>{names[after]}" for chain in chains for before, after in chain.edges]
