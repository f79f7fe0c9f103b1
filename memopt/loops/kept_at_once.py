"""What all pairs of loops in a graph keep at the same moment, in whatever order it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.traversal import Numbering
from memopt.loops.pairs import UnfitError, find_pairs
from memopt.loops.worth import Kept

if TYPE_CHECKING:
    from collections.abc import Collection

    from memopt.graph.graph import Graph
    from memopt.shapes.properties import Properties


def kept_at_once_bytes(graph: Graph, named: Collection[str], properties: Properties) -> int:
    """What lists of loops take at least at some moment, in every order of the graph, in bytes.

    No operation makes a list again, so what a pair keeps is there from its first loop to the second
    one. While an operation runs that comes after the first loops of some pairs, and before the
    second ones of these, they all are there. Linear in nodes and edges for some dozen pairs.

    Args:
        graph: The graph with the loops, which run functions of its library.
        named: Names of the nodes that must stay; what they do not depend on does not run.
        properties: What is known of the graph.
    """
    numbering = Numbering.of(graph)
    begun, needed = [0] * len(numbering.nodes), [0] * len(numbering.nodes)
    kept_bytes: list[int] = []
    for node, pair in find_pairs(graph, named):
        if isinstance(pair, str):
            continue
        try:
            kept = Kept.of(pair, graph, properties)
        except UnfitError:
            continue
        begun[numbering.place(node)] |= 1 << len(kept_bytes)
        needed[numbering.place(pair.backward.node)] |= 1 << len(kept_bytes)
        kept_bytes.append(kept.whole_bytes)
    for place in numbering.order:
        for producer in numbering.producers[place]:
            begun[place] |= begun[producer]
    for place in reversed(numbering.order):
        for user in numbering.users[place]:
            needed[place] |= needed[user]
    at_once = {one & other for one, other in zip(begun, needed, strict=True)}
    return max((_sum_of(pairs, kept_bytes) for pairs in at_once), default=0)


def _sum_of(pairs: int, kept_bytes: list[int]) -> int:
    """What the pairs keep whose bits are set."""
    return sum(size for number, size in enumerate(kept_bytes) if pairs >> number & 1)
