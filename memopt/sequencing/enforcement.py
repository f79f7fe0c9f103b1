"""The fewest control edges that make TensorFlow keep to a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph.op_types import CONTROL_FLOW
from memopt.sequencing.branches import NO_BRANCHES, Branches
from memopt.sequencing.devices import queue_names
from memopt.sequencing.frames import OUTSIDE, find_places, find_serial_frames
from memopt.sequencing.holding_edges import HoldingEdges

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.graph.graph import Node
    from memopt.sequencing.branches import Conditions
    from memopt.sequencing.frames import Place

_NO_ENDS = CONTROL_FLOW | frozenset(
    "_Arg _Retval _DeviceArg _DeviceRetval Placeholder PlaceholderV2 PlaceholderWithDefault "
    "Const HostConst VarHandleOp NoOp".split()
)
"""Ops at which no edge starts or ends: they hold nothing new, or lie on a frame's border."""


class ControlEdge(NamedTuple):
    """One node that has to wait for another, both as numbers."""

    before: int
    after: int


class Chain(NamedTuple):
    """Nodes that are ordered among each other.

    Attributes:
        device: Where they run, such as "GPU:0"; "" if the graph does not say.
        nodes: The nodes, as numbers, in the order of the sequence.
        edges: What it takes to keep them in that order.
        in_turns: Whether they run once for each turn of a loop, while another turn may run.
        branches: Which of them run on one side of a branch only, and where sides join.
    """

    device: str
    nodes: list[int]
    edges: list[ControlEdge]
    in_turns: bool = False
    branches: Branches = NO_BRANCHES


def enforce(
    buffer_graph: BufferGraph,
    sequence: Sequence[int],
    *,
    smallest_bytes: int = 0,
    fed: Collection[str] = (),
) -> list[Chain]:
    """The control edges that enforce a sequence, as few as there can be.

    1. Nodes are ordered that hold memory: that make or read a buffer of at least `smallest_bytes`,
       or have so much scratch memory. What was there before the step and stays does not count,
       nor does a node that hands on what it reads: its users read that after it.
    2. Nodes of one device form a chain, of those in loops those of one loop and one branch. No edge
       leads from one chain to another: none makes a device wait for another, or crosses a frame's
       border. What is in a branch waits for what is outside. No edge comes out of a branch, which
       may be dead: what is outside waits for the Merges that join its sides.
    3. Two neighbours of a chain get an edge, unless a path leads from the one to the other, by the
       graph's edges or by those added, through any nodes. (Such a path over a third node of the
       chain there cannot be. So this is the transitive reduction.) A path into a Merge counts for
       nothing: it does not wait for the other side. Nor do data that a call or a branch reads or
       gives: see `falls_apart`.
    4. What oneDNN may make one node of (see `BufferGraph.fused_pairs`) it does only if both wait
       for the same nodes; otherwise results would differ in their last bits. So the two of such a
       pair, side by side in a chain, wait for the same and not for each other.

    Near-linear: the search for a path looks only at what stands between two neighbours in the
    sequence.

    Args:
        buffer_graph: The graph in numbers.
        sequence: The nodes that run, as numbers, producers first.
        smallest_bytes: Nodes that touch nothing as large as this are left free.
        fed: Names of nodes whose own computation does not run.

    Returns:
        The chains in which there is something to order, each with the edges to add.
    """
    chains = find_chains(buffer_graph, sequence, smallest_bytes=smallest_bytes, fed=fed)
    search = _PathSearch(buffer_graph, sequence)
    pairs = find_pairs(buffer_graph)
    links = {
        node: link
        for link in (_Links(chain, search) for chain in chains)
        for node in link.chain.nodes
    }
    for node in sequence:
        if node in links:
            links[node].append(node, pairs)
    return chains


def find_chains(
    buffer_graph: BufferGraph,
    sequence: Sequence[int],
    *,
    smallest_bytes: int = 0,
    fed: Collection[str] = (),
) -> list[Chain]:
    """The chains in which there is something to order, without edges; see `enforce`."""
    nodes = buffer_graph.nodes
    places = find_places(nodes, sequence)
    matters = _find_nodes_that_matter(buffer_graph, sequence, smallest_bytes, fed)
    branches = Branches.of(nodes, places, sequence, matters)
    chains: dict[tuple[str, Place], Chain] = {}
    names = queue_names({nodes[node].device for node in sequence})
    serial = find_serial_frames(nodes)
    for node in sequence:
        if matters[node] or node in branches.joins:
            device, place = names[nodes[node].device], places[node]
            if not place.frames:
                place = OUTSIDE
            in_turns = any(frame.name not in serial for frame in place.frames)
            chain = Chain(device, [], [], in_turns, branches)
            chains.setdefault((device, place), chain).nodes.append(node)
    return [chain for chain in chains.values() if len(chain.nodes) > 1]


class _Links:
    """A chain whose nodes are linked one after the other, and whom its next nodes wait for."""

    def __init__(self, chain: Chain, search: _PathSearch) -> None:
        self.chain = chain
        self._search = search
        self._branches = chain.branches
        self._before: list[int] = []
        self._recent: set[ControlEdge] = set()
        self._newest: int | None = None
        self._last: dict[Conditions, list[int]] = {}
        self._around: dict[Conditions, list[Conditions]] = {}

    def append(self, node: int, pairs: Mapping[int, int]) -> None:
        """Let a node wait for the last ones, or for the same as what it makes a pair with."""
        conditions = self._branches.of_node(node)
        if node in self._branches.joins:
            self._last_of(conditions).append(node)
            return
        last = self._last_of(conditions)
        if self._newest is not None and pairs.get(self._newest) == node and self._newest in last:
            self._join(self._newest, node)
            last.append(node)
            return
        self._before = [each for around in self._around[conditions] for each in self._last[around]]
        self._newest, self._recent = node, set()
        for before in self._before:
            if not self._search.leads(before, node):
                self._add(before, node)
        self._last[conditions] = [node]

    def _last_of(self, conditions: Conditions) -> list[int]:
        """The last ones that run under the same conditions."""
        if conditions not in self._last:
            for other, around in self._around.items():
                if conditions < other:
                    around.append(conditions)
            self._around[conditions] = [conditions, *(c for c in self._last if c < conditions)]
            self._last[conditions] = []
        return self._last[conditions]

    def _join(self, first: int, second: int) -> None:
        for before in self._before:
            is_needed = not self._search.leads(before, second)
            if is_needed or ControlEdge(before, first) in self._recent:
                self._add(before, second)
                self._add(before, first)

    def _add(self, before: int, after: int) -> None:
        edge = ControlEdge(before, after)
        if edge not in self._recent:
            self._recent.add(edge)
            self.chain.edges.append(edge)
            self._search.add(edge)


def find_pairs(graph: BufferGraph) -> dict[int, int]:
    """The pairs that oneDNN makes one node of as the graph stands, first to second."""
    nodes = graph.nodes
    return {
        first: second
        for first, second in graph.fused_pairs.items()
        if frozenset(nodes[first].control_inputs) == frozenset(nodes[second].control_inputs)
    }


def _find_nodes_that_matter(
    graph: BufferGraph, sequence: Sequence[int], smallest_bytes: int, fed: Collection[str]
) -> list[bool]:
    """By node whether its place in the sequence can change what is in use."""
    is_large = _find_large_buffers(graph, smallest_bytes)
    handed_on = _find_handed_on(graph, sequence)
    matters = [False] * len(graph.nodes)
    for place in sequence:
        touched = [*graph.made[place], *graph.read[place]]
        if not graph.made[place]:
            touched = [buffer for buffer in touched if buffer not in handed_on[place]]
        needs_scratch = graph.scratch_bytes[place] >= max(1, smallest_bytes)
        if needs_scratch or any(is_large[buffer] for buffer in touched):
            matters[place] = _can_end(graph.nodes[place], fed)
    return matters


def _find_large_buffers(graph: BufferGraph, smallest_bytes: int) -> list[bool]:
    """By buffer whether it is of at least that size, and comes or goes during the step."""
    is_made = [False] * len(graph.size_bytes)
    for buffers in graph.made:
        for buffer in buffers:
            is_made[buffer] = True
    return [
        size_bytes >= smallest_bytes and (made or not lasting)
        for size_bytes, made, lasting in zip(graph.size_bytes, is_made, graph.lasting, strict=True)
    ]


def _find_handed_on(graph: BufferGraph, sequence: Sequence[int]) -> list[set[int]]:
    """By node the buffers that one of its users reads as well, so that it never is the last."""
    handed_on: list[set[int]] = [set() for _ in graph.nodes]
    for user in sequence:
        for producer in graph.producers[user]:
            handed_on[producer].update(graph.read[user])
    return handed_on


def _can_end(node: Node, fed: Collection[str]) -> bool:
    return node.op not in _NO_ENDS and node.name not in fed


class _PathSearch:
    """Whether a path leads from a node to a later one of the sequence."""

    def __init__(self, buffer_graph: BufferGraph, sequence: Sequence[int]) -> None:
        self._rank = [-1] * len(buffer_graph.nodes)
        for rank, node in enumerate(sequence):
            self._rank[node] = rank
        self._edges = HoldingEdges(buffer_graph)
        self._added: dict[int, list[int]] = {}

    def add(self, edge: ControlEdge) -> None:
        """Count an edge that is to be added."""
        self._added.setdefault(edge.after, []).append(edge.before)

    def leads(self, before: int, after: int) -> bool:
        """Whether a path leads from the one to the other."""
        first = self._rank[before]
        seen = {after}
        pending = [after]
        while pending:
            node = pending.pop()
            earlier, added = self._edges.before(node), self._added.get(node, ())
            if before in added or (before in earlier and before not in self._edges.parted):
                return True
            for producer in (*earlier, *added):
                if producer not in seen and self._rank[producer] > first:
                    seen.add(producer)
                    pending.append(producer)
        return False
