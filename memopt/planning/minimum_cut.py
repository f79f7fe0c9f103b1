"""The minimum cut of a network of integers, by Dinic's algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memopt.compilation.jit import compiled, compiled_apart

if TYPE_CHECKING:
    import numpy.typing as npt

    from memopt.planning.arrays import IntArray

SOURCE, SINK = 0, 1
NO_LIMIT = 1 << 61
"""The capacity of an arc that is never cut; all others together have less than 1 << 60."""


class FlowNetwork(NamedTuple):
    """Arcs between nodes; those of a node stand side by side, each with the way back.

    Attributes:
        head: By arc, where it leads; arc `2 k + 1` is the way back of arc `2 k`.
        start: By node, where its arcs start in `arcs`.
        arcs: The arcs of each node, ways back included.
    """

    head: IntArray
    start: IntArray
    arcs: IntArray

    @classmethod
    def of(cls, node_count: int, tails: IntArray, heads: IntArray) -> FlowNetwork:
        """The network of some arcs, from tail to head."""
        head = np.stack([heads, tails], 1).ravel()
        tail = np.stack([tails, heads], 1).ravel()
        start = np.zeros(node_count + 1, np.int64)
        np.cumsum(np.bincount(tail, minlength=node_count), out=start[1:])
        return cls(head, start, np.argsort(tail, kind="stable"))

    def minimum_cut(self, capacities: IntArray) -> tuple[int, npt.NDArray[np.bool_]]:
        """The least capacity that parts the sink from the source, and the nodes on its side.

        Args:
            capacities: By arc as they were given, none negative.
        """
        residual = np.zeros(2 * len(capacities), np.int64)
        residual[::2] = capacities
        nodes = len(self.start) - 1
        level, queue, path, following = np.zeros((4, nodes), np.int64)
        cut = _push_all(self, residual, level, queue, path, following)
        return int(cut), level >= 0


@compiled_apart
def _push_all(
    network: FlowNetwork,
    residual: IntArray,
    level: IntArray,
    queue: IntArray,
    path: IntArray,
    following: IntArray,
) -> int:
    """The most that flows; leaves the levels of the nodes that are still reached, -1 elsewhere."""
    flow = 0
    while True:
        _find_levels(network, residual, level, queue)
        if level[SINK] < 0:
            return flow
        for node in range(len(level)):
            following[node] = network.start[node]
        flow += _push(network, residual, level, path, following)


@compiled
def _find_levels(
    network: FlowNetwork, residual: IntArray, level: IntArray, queue: IntArray
) -> None:
    """How far from the source each node is, over arcs that are not full; -1 for out of reach."""
    for node in range(len(level)):
        level[node] = -1
    level[SOURCE] = 0
    queue[0] = SOURCE
    found = 1
    at = 0
    while at < found:
        node = queue[at]
        at += 1
        for place in range(network.start[node], network.start[node + 1]):
            arc = network.arcs[place]
            other = network.head[arc]
            if residual[arc] > 0 and level[other] < 0:
                level[other] = level[node] + 1
                queue[found] = other
                found += 1


@compiled
def _push(
    network: FlowNetwork,
    residual: IntArray,
    level: IntArray,
    path: IntArray,
    following: IntArray,
) -> int:
    """Push all that flows from level to level, path after path."""
    node, depth, flow = SOURCE, 0, 0
    while True:
        if node == SINK:
            least, depth = _fill(residual, path, depth)
            flow += least
            node = network.head[path[depth] ^ 1]
        arc = _next_arc(network, residual, level, following, node)
        if arc >= 0:
            path[depth] = arc
            node = network.head[arc]
            depth += 1
        elif node == SOURCE:
            return flow
        else:
            depth -= 1
            node = network.head[path[depth] ^ 1]
            following[node] += 1


@compiled
def _fill(residual: IntArray, path: IntArray, depth: int) -> tuple[int, int]:
    """Push along a path; returns how much, and at what depth the first arc is full."""
    least = residual[path[0]]
    for step in range(1, depth):
        least = min(least, residual[path[step]])
    full = depth
    for step in range(depth - 1, -1, -1):
        arc = path[step]
        residual[arc] -= least
        residual[arc ^ 1] += least
        if residual[arc] == 0:
            full = step
    return least, full


@compiled
def _next_arc(
    network: FlowNetwork, residual: IntArray, level: IntArray, following: IntArray, node: int
) -> int:
    """The next arc of a node that leads on, -1 if there is none left."""
    while following[node] < network.start[node + 1]:
        arc: int = network.arcs[following[node]]
        if residual[arc] > 0 and level[network.head[arc]] == level[node] + 1:
            return arc
        following[node] += 1
    return -1
