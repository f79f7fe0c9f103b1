"""Which nodes of a graph compute the same from the same: global value numbering.

As TensorFlow finds them before it runs a graph (`OptimizerCSE`, tensorflow/core/graph/
optimizer_cse.cc), which it does in every function and session unless `opt_level` is `L0`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.attributes import attributes_key
from memopt.graph.functiondef import ARGUMENT
from memopt.graph.op_types import (
    MERGES,
    REF_TYPE_OFFSET,
    is_commutative,
    is_stateful,
    port_types,
)
from memopt.graph.traversal import Numbering

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from memopt.graph.graph import Graph, Node

_ITSELF = MERGES | {"Placeholder", "PlaceholderV2", "PlaceholderWithDefault", ARGUMENT}
"""Ops whose nodes are never equal: what is given to the graph, and what closes a loop."""


def find_equal(graph: Graph, fed: Collection[str] = ()) -> list[list[Node]]:
    """The nodes that compute the same, in groups of two and more; each in the graph's order.

    Two nodes are equal if their ops, attributes and devices are, if they read the same outputs of
    equal nodes (in any order if the op is commutative), and if they wait for the same. Nodes with
    state or effects, of references and of unknown ops are equal to no other.

    Args:
        graph: The graph. Linear in nodes, edges and the bytes of attributes.
        fed: Names of nodes whose outputs are given.
    """
    numbering = Numbering.of(graph)
    numbers = list(range(len(numbering.nodes)))
    groups: dict[Hashable, list[int]] = {}
    for place in numbering.order:
        node = numbering.nodes[place]
        if node.name in fed or not _may_be_equal(node, graph):
            continue
        group = groups.setdefault(_key(node, graph, numbering, numbers), [])
        group.append(place)
        numbers[place] = group[0]
    return [
        [numbering.nodes[place] for place in sorted(group)]
        for group in groups.values()
        if len(group) > 1
    ]


def _may_be_equal(node: Node, graph: Graph) -> bool:
    if node.op in _ITSELF or is_stateful(node, graph.library):
        return False
    return all(dtype < REF_TYPE_OFFSET for dtype in port_types(node, graph.library).inputs)


def _key(node: Node, graph: Graph, numbering: Numbering, numbers: list[int]) -> Hashable:
    sources = numbering.producers[numbering.place(node)]
    count = len(node.inputs)
    inputs = [
        (numbers[source], tensor.port)
        for source, tensor in zip(sources[:count], node.inputs, strict=True)
    ]
    if is_commutative(node, graph.library):
        inputs.sort()
    controls = frozenset(numbers[source] for source in sources[count:])
    attributes = attributes_key(node.attributes.items())
    return node.op, node.device, attributes, tuple(inputs), controls
