"""Earliest times: when each node could end on a machine that runs everything at once.

TensorFlow's `EstimateEarliestExecutionTimes`
(tensorflow/core/grappler/optimizers/static_schedule.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.op_types import MERGES
from memopt.graph.traversal import Numbering

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.graph.graph import Graph, Node

NEVER = -1
"""The time of a node that nothing starts."""


def earliest_ends_ns(graph: Graph, execution_ns: Callable[[Node], int]) -> list[int]:
    """When each node ends at the earliest, in nanoseconds; linear in nodes and edges.

    A node starts when the last of its producers has ended, a Merge when the first has; no two nodes
    wait for one another's device. Every node takes a nanosecond at least. Unlike in a simulation,
    all nodes of the graph run, whatever is fetched or fed.

    Args:
        graph: The graph.
        execution_ns: How long one execution of a node takes.

    Returns:
        For each node, by its index, the end; `NEVER` for what is never reached. On a cycle without
        a Merge, and behind one, it is what the producers outside give, as in TensorFlow.
    """
    numbering = Numbering.of(graph)
    nodes, users = numbering.nodes, numbering.users
    waiting = [len(set(sources)) for sources in numbering.producers]
    for place, node in enumerate(nodes):
        if node.op in MERGES and waiting[place]:
            waiting[place] = 1
    ends_ns = [NEVER] * len(nodes)
    ready = [place for place, sources in enumerate(waiting) if not sources]
    for place in ready:
        ends_ns[place] = 0
    for place in ready:
        end_ns = ends_ns[place] + max(execution_ns(nodes[place]), 1)
        ends_ns[place] = end_ns
        for user in users[place]:
            if not waiting[user]:
                # A Merge that started already, or the closing edge of a loop.
                continue
            waiting[user] -= 1
            ends_ns[user] = max(ends_ns[user], end_ns)
            if not waiting[user]:
                ready.append(user)
    by_index = [NEVER] * graph.index_limit
    for place, node in enumerate(nodes):
        by_index[node.index] = ends_ns[place]
    return by_index
