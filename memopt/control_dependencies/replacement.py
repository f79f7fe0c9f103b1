"""What would be out of order without some barriers, and what keeps it in order instead."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from memopt.control_dependencies.state_access import find_state_uses
from memopt.graph.op_types import FORWARDING, NEXT_ITERATIONS, SWITCHES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memopt.control_dependencies.state_access import Use
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.graph.traversal import Numbering

_SUMS = frozenset({"AccumulateNV2", "AddN"})
_ANY_ORDER = 2
"""To exchange two inputs changes no sum."""

_MOST_PAIRS = 10_000
"""Uses of one state ahead of and behind barriers that are compared with each other."""


class Edge(NamedTuple):
    """A control edge that keeps two uses of a state in order.

    Attributes:
        before: The node that must have run.
        after: The node that waits for it.
        barriers: The numbers of the barriers that order the two today, as bits.
    """

    before: Node
    after: Node
    barriers: int


class Orders(NamedTuple):
    """What becomes of orders without barriers.

    Attributes:
        refused: By number the barriers that have to stay, with the reason.
        edges: What must be added for the others.
    """

    refused: dict[int, str]
    edges: list[Edge]


def find_orders(graph: Graph, numbering: Numbering, barriers: Sequence[int]) -> Orders:
    """What has to be done before some nodes stop to be barriers, that is, to be waited for.

    What ran before a barrier and what ran after it may run in any order then. For most operations
    that makes no difference. It does for these:

    1. Uses of one state of which one writes: a control edge keeps them in order, if there is none.
    2. Operations with effects that no edge tells of, against every use of state.
    3. What a v1 Switch comes before: a barrier is dead with any of its inputs.
    4. Sums: who has read an input already decides in which order AddN adds.

    Linear in nodes and edges, times the words that hold a bit for each barrier.

    Args:
        graph: The graph.
        numbering: Its numbering.
        barriers: Positions of the barriers; their numbers are those of this sequence.
    """
    return _Search(graph, numbering, barriers).search()


class _Search:
    def __init__(self, graph: Graph, numbering: Numbering, barriers: Sequence[int]) -> None:
        self._numbering = numbering
        self._barriers = barriers
        self._bits = {place: 1 << number for number, place in enumerate(barriers)}
        self._ahead = self._reach(reversed(numbering.order), numbering.users)
        self._behind = self._reach(iter(numbering.order), numbering.producers)
        self._uses = find_state_uses(graph)
        self._refused: dict[int, str] = {}
        self._edges: list[Edge] = []

    def search(self) -> Orders:
        for place, node in enumerate(self._numbering.nodes):
            if node.op in SWITCHES and self._ahead[place]:
                self._refuse(
                    self._ahead[place],
                    f"what it waits for comes from the Switch {node.name!r}, and may never be",
                )
            elif node.op in _SUMS and len(node.inputs) > _ANY_ORDER:
                self._look_at_sum(place, node)
        self._look_at_effects()
        for uses in self._uses.states:
            self._look_at_state(uses)
        return Orders(self._refused, self._edges)

    def _reach(self, order: Iterator[int], neighbours: list[list[int]]) -> list[int]:
        """For each node the barriers that its neighbours are or reach, as bits."""
        found = [0] * len(self._numbering.nodes)
        places = list(order)
        bits = self._bits
        has_loops = any(node.op in NEXT_ITERATIONS for node in self._numbering.nodes)
        while True:
            changed = False
            for place in places:
                reached = 0
                for near in neighbours[place]:
                    reached |= found[near] | bits.get(near, 0)
                if reached != found[place]:
                    found[place] = reached
                    changed = True
            if not (changed and has_loops):
                return found

    def _refuse(self, barriers: int, reason: str) -> None:
        while barriers:
            lowest = barriers & -barriers
            self._refused.setdefault(lowest.bit_length() - 1, reason)
            barriers ^= lowest

    def _look_at_sum(self, place: int, node: Node) -> None:
        """Refuse what could change who holds an input of a sum when it runs."""
        barriers = self._behind[place]
        for tensor in dict.fromkeys(node.inputs):
            for reader in _readers_of_buffer(tensor):
                where = self._numbering.place(reader)
                barriers |= self._bits.get(where, 0) | (self._ahead[place] & self._behind[where])
        self._refuse(barriers, f"the order in which the sum {node.name!r} adds could change")

    def _look_at_effects(self) -> None:
        """Refuse barriers between operations with effects, or one of them and a use of state."""
        effects = self._uses.effects
        used = {use.place for uses in self._uses.states for use in uses} | set(effects)
        ahead, behind = _union(self._ahead, used), _union(self._behind, used)
        for place in effects:
            name = self._numbering.nodes[place].name
            self._refuse(
                self._ahead[place] & behind,
                f"what follows may have to wait for {name!r}, which has effects of its own",
            )
            self._refuse(
                self._behind[place] & ahead,
                f"{name!r}, which has effects of its own, may have to wait for what comes before",
            )

    def _look_at_state(self, uses: tuple[Use, ...]) -> None:
        """Find the pairs of uses of which one writes and that have no edge between them."""
        before = [use for use in uses if self._ahead[use.place]]
        after = [use for use in uses if self._behind[use.place]]
        if len(before) * len(after) > _MOST_PAIRS:
            places = [use.place for use in before], [use.place for use in after]
            self._refuse(
                _union(self._ahead, places[0]) & _union(self._behind, places[1]),
                "it orders too many uses of one state",
            )
            return
        nodes, producers = self._numbering.nodes, self._numbering.producers
        for first, second in product(before, after):
            barriers = self._ahead[first.place] & self._behind[second.place]
            if not barriers or not (first.writes or second.writes):
                continue
            if first.place not in producers[second.place]:
                self._edges.append(Edge(nodes[first.place], nodes[second.place], barriers))


def _union(sets: list[int], places: Iterable[int]) -> int:
    union = 0
    for place in places:
        union |= sets[place]
    return union


def _readers_of_buffer(tensor: Tensor) -> list[Node]:
    """Who reads the buffer of a tensor, under whatever name it is handed on."""
    while tensor.node.op in FORWARDING and tensor.node.inputs:
        tensor = tensor.node.inputs[tensor.port if tensor.node.op == "IdentityN" else 0]
    tensors = {tensor: None}
    readers: dict[Node, None] = {}
    pending = [tensor]
    for shared in pending:
        for reader, slot in shared.uses:
            readers[reader] = None
            if reader.op not in FORWARDING:
                continue
            port = slot if reader.op == "IdentityN" else 0
            new = [t for t in reader.outputs if t.port == port and t not in tensors]
            tensors.update(dict.fromkeys(new))
            pending.extend(new)
    return list(readers)
