"""Branches made of Switch and Merge: who may wait for whom, and sequences that do not mix them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from memopt.graph import op_types
from memopt.graph.op_types import joins_branches
from memopt.sequencing.frames import Side, find_places

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from memopt.graph.graph import Node
    from memopt.sequencing.frames import Condition, Place
    from memopt.sequencing.precedence import Precedence

Conditions = frozenset["Condition"]

_ALWAYS: Conditions = frozenset()
_DEEPEST = 4
"""Branches that lie deeper inside of others are not gathered."""


class Branches(NamedTuple):
    """Which of the nodes that no loop runs are in branches, and where these end.

    Attributes:
        conditions: By node in a branch: which sides have to be taken for it to run.
        joins: The Merges that join the sides of a branch. Who waits for one waits for what led to
            it, on the side that was taken.
    """

    conditions: Mapping[int, Conditions]
    joins: frozenset[int]

    @classmethod
    def of(
        cls,
        nodes: Sequence[Node],
        places: Sequence[Place],
        sequence: Iterable[int],
        is_ordered: Sequence[bool],
    ) -> Branches:
        """The branches in which something has to be ordered.

        Args:
            nodes: All nodes, by number.
            places: By node where it runs: see `find_places`.
            sequence: Those that run.
            is_ordered: By node whether it has to be ordered.
        """
        outside = [node for node in sequence if not places[node].frames]
        conditions = {node: places[node].conditions for node in outside if places[node].conditions}
        if not any(is_ordered[node] for node in conditions):
            return NO_BRANCHES
        return cls(conditions, frozenset(node for node in outside if joins_branches(nodes[node])))

    def of_node(self, node: int) -> Conditions:
        """Which sides have to be taken for a node to run."""
        return self.conditions.get(node, _ALWAYS)

    def may_wait(self, node: int, before: int) -> bool:
        """Whether a control edge may lead to a node from another, which runs whenever it does.

        None ends where sides join: TensorFlow goes on there as soon as one of them has come.
        """
        return node not in self.joins and self.of_node(before) <= self.of_node(node)


def excludes(some: Conditions, others: Conditions) -> bool:
    """Whether nothing that runs under some conditions runs where others hold."""
    sides = {(each.predicate, each.sides): each.side for each in some if isinstance(each, Side)}
    return any(
        isinstance(each, Side) and sides.get((each.predicate, each.sides), each.side) != each.side
        for each in others
    )


NO_BRANCHES = Branches({}, frozenset())


class Gathered(NamedTuple):
    """A sequence with each branch in one piece.

    Attributes:
        late: Each where its last operation stands.
        early: Each where all that it reads is there.
    """

    late: list[int]
    early: list[int]


def gather(nodes: Sequence[Node], precedence: Precedence, sequence: Sequence[int]) -> Gathered:
    """The sequence with each branch, both its sides, in one piece.

    No edge can make what is outside wait for what is in a branch, but for where its sides join. So
    only a sequence that mixes nothing into a branch can be kept to.

    Args:
        nodes: All nodes, by number.
        precedence: What must come before what.
        sequence: The nodes that run, producers first.
    """
    if not any(joins_branches(nodes[node]) for node in sequence):
        return Gathered(list(sequence), list(sequence))
    position = [0] * len(nodes)
    for rank, number in enumerate(sequence):
        position[number] = rank
    late: list[tuple[int, ...]] = [()] * len(nodes)
    early = list(late)
    depth = {
        number: len(place.frames[0].around if place.frames else place.conditions)
        for number, place in enumerate(find_places(nodes, sequence))
    }
    for level in range(1, _DEEPEST + 1):
        inside = [number for number in sequence if depth[number] >= level]
        piece_of: dict[Node, int] = {}
        for name, piece in enumerate(_pieces(nodes, inside, sequence)):
            piece_of.update(dict.fromkeys(piece, name))
        pieces: dict[int, list[int]] = {}
        for number in sequence:
            found = _piece(nodes[number], piece_of)
            if found is not None:
                pieces.setdefault(found, []).append(number)
        for members in pieces.values():
            last = max(position[number] for number in members if nodes[number] in piece_of)
            ready = _ready_at(members, precedence, position)
            for number in members:
                late[number] = (*late[number], last)
                early[number] = (*early[number], ready)
    return Gathered(*(_sorted_by(keys, precedence, position) for keys in (late, early)))


def _sorted_by(
    keys: Sequence[tuple[int, ...]], precedence: Precedence, position: Sequence[int]
) -> list[int]:
    return precedence.sorted_by([(*key, place) for key, place in zip(keys, position, strict=True)])


def _piece(node: Node, piece_of: Mapping[Node, int]) -> int | None:
    """The piece of a node; what parts and joins its sides is of it as well."""
    around = [node]
    if joins_branches(node):
        around += [tensor.node for tensor in node.inputs]
    elif node.op in op_types.SWITCHES:
        around += [reader for output in node.outputs for reader, _ in output.uses]
    return next((piece_of[each] for each in around if each in piece_of), None)


def _ready_at(members: Sequence[int], precedence: Precedence, position: Sequence[int]) -> int:
    """Behind which place of the sequence all is there that nodes need."""
    own = frozenset(members)
    needed = (p for number in members for p in precedence.producers[number] if p not in own)
    return max((position[number] for number in needed), default=-1)


def _pieces(
    nodes: Sequence[Node], inside: Sequence[int], sequence: Iterable[int]
) -> Iterator[dict[Node, int]]:
    """Nodes of branches, those together that hang together: by edges, by a Switch or by a Merge."""
    number = {nodes[node]: node for node in inside}
    neighbours: dict[Node, list[Node]] = {node: [] for node in number}
    for each in sequence:
        node = nodes[each]
        around = [t.node for t in node.inputs if t.node in number]
        if node in number:
            around += [node, *(c for c in node.control_inputs if c in number)]
        elif node.op in op_types.SWITCHES:
            around += [reader for out in node.outputs for reader, _ in out.uses if reader in number]
        elif node.op not in op_types.MERGES:
            continue
        for one, other in pairwise(around):
            neighbours[one].append(other)
            neighbours[other].append(one)
    seen: set[Node] = set()
    for start in number:
        if start in seen:
            continue
        seen.add(start)
        piece = [start]
        for node in piece:
            found = [other for other in dict.fromkeys(neighbours[node]) if other not in seen]
            seen.update(found)
            piece += found
        yield {node: number[node] for node in piece}
