"""The instructions through which paths lead: where path rematerialization begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def find_articulations(users: Sequence[Sequence[int]], sequence: Iterable[int]) -> list[bool]:
    """By node: whether a search along users goes on through it, as in Microsoft's patch.

    The search goes by depth first from each instruction of the sequence that it has not reached
    yet. A root is an articulation if it leads to at least two others, and any other node if it
    leads to one. The search is Tarjan's, but looks only at users that are new, so that no path
    around a node ever speaks against it. In a training step, whose forward and backward nodes are
    tied together by what the one reads from the other, hardly any node is a true cut point (see
    `find_cut_points`). Linear in edges.

    Args:
        users: By node: the nodes that read from it.
        sequence: The nodes from which the search begins, in order.
    """
    articulations = [False] * len(users)
    reached = [False] * len(users)
    at = [0] * len(users)
    for root in sequence:
        if reached[root]:
            continue
        reached[root] = True
        children = 0
        path = [root]
        while path:
            node = path[-1]
            if at[node] == len(users[node]):
                path.pop()
                continue
            user = users[node][at[node]]
            at[node] += 1
            if reached[user]:
                continue
            reached[user] = True
            path.append(user)
            if node == root:
                children += 1
            articulations[node] = node != root or children > 1
    return articulations


def find_cut_points(users: Sequence[Sequence[int]], sequence: Iterable[int]) -> list[bool]:
    """By node: whether others that are connected are not without it, whichever way edges go.

    Tarjan's algorithm (Hopcroft and Tarjan, "Algorithm 447: efficient algorithms for graph
    manipulation", 1973), without recursion. Linear in edges.

    Args:
        users: By node: the nodes that read from it.
        sequence: The nodes that there are.
    """
    nodes = list(sequence)
    neighbours = _neighbours(users, nodes)
    cuts = [False] * len(users)
    found = [-1] * len(users)
    low = [0] * len(users)
    at = [0] * len(users)
    count = 0
    for root in nodes:
        if found[root] >= 0:
            continue
        found[root] = low[root] = count
        count += 1
        children = 0
        path = [root]
        while path:
            node = path[-1]
            if at[node] < len(neighbours[node]):
                other = neighbours[node][at[node]]
                at[node] += 1
                if found[other] < 0:
                    found[other] = low[other] = count
                    count += 1
                    children += node == root
                    path.append(other)
                else:
                    low[node] = min(low[node], found[other])
                continue
            path.pop()
            if not path:
                continue
            parent = path[-1]
            low[parent] = min(low[parent], low[node])
            if parent != root and low[node] >= found[parent]:
                cuts[parent] = True
        cuts[root] = children > 1
    return cuts


def _neighbours(users: Sequence[Sequence[int]], nodes: Sequence[int]) -> list[list[int]]:
    neighbours: list[list[int]] = [[] for _ in users]
    runs = frozenset(nodes)
    for node in nodes:
        for user in users[node]:
            if user in runs:
                neighbours[node].append(user)
                neighbours[user].append(node)
    return neighbours
