"""What runs before what in any case: paths through a graph, within one turn of a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.op_types import MERGES, NEXT_ITERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memopt.graph.graph import Node
    from memopt.graph.traversal import Numbering


def find_earlier(numbering: Numbering, node: Node, nodes: Iterable[Node]) -> set[Node]:
    """Those of some nodes that have run when a node starts, because a path leads from them to it.

    Nodes that were added after the numbering are not among them.
    """
    component, place = numbering.component, numbering.place
    wanted = {place(other): other for other in nodes if place(other) >= 0}
    if not wanted:
        return set()
    # Nothing on a path comes before its start, so the search stays small.
    earliest = max(component[other] for other in wanted)
    start = place(node)
    seen = {start}
    pending = [start]
    while pending:
        for producer in _producers(numbering, pending.pop()):
            if producer not in seen and component[producer] <= earliest:
                seen.add(producer)
                pending.append(producer)
    return {other for where, other in wanted.items() if where in seen and where != start}


def leads_to(numbering: Numbering, start: Node, end: Node) -> bool:
    """Whether a path leads from one node to another."""
    return bool(find_earlier(numbering, end, (start,)))


def _producers(numbering: Numbering, place: int) -> list[int]:
    producers, nodes = numbering.producers[place], numbering.nodes
    if nodes[place].op not in MERGES:
        return producers
    # What comes from the turn before says nothing of this one.
    return [producer for producer in producers if nodes[producer].op not in NEXT_ITERATIONS]
