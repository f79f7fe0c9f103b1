"""Constants as TensorFlow's own optimizer leaves them: folded, and equal ones once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph.attributes import attributes_key
from memopt.graph.op_types import is_stateful
from memopt.graph.traversal import Numbering

if TYPE_CHECKING:
    from collections.abc import Container

    from memopt.costs.properties import Properties
    from memopt.graph.graph import Graph, Tensor

_LARGEST_BYTES = 10 << 20
"""What is larger is not folded (`kMaxConstantSize`)."""

_CONSTANT = "Const"


class Folding(NamedTuple):
    """What a function's or session's own optimizer does to a graph's constants.

    TensorFlow's `ConstantFold` (tensorflow/core/common_runtime/constant_folding.cc), which is not
    Grappler's and runs without it. A node is folded whose data inputs are all constants or folded.
    A tensor of it that others than folded nodes read becomes a constant, for all its readers. The
    node still runs if another that runs waits for it by a control edge, or reads such a tensor of
    it as only folded nodes read. Of equal constants one is left, which all readers share
    (`OptimizeCSE` in tensorflow/core/graph/optimizer_cse.cc).

    Attributes:
        is_folded: By place of the node: whether it is folded.
        runs: By place: whether the node itself still runs; true for all that are neither folded
            nor constants.
        same: By place: the first constant or folded node that is equal, the node itself if none is.
    """

    is_folded: list[bool]
    runs: list[bool]
    same: list[int]

    def replaces(self, numbering: Numbering, tensor: Tensor) -> bool:
        """Whether the readers of a tensor read a constant instead."""
        place = numbering.place(tensor.node)
        readers = (numbering.place(user) for user, _ in tensor.uses)
        return self.is_folded[place] and not all(self.is_folded[reader] for reader in readers)

    @classmethod
    def of(cls, graph: Graph, properties: Properties | None, kept: Container[str] = ()) -> Folding:
        """The folding of a graph; linear in nodes and edges.

        Args:
            graph: The graph.
            properties: The sizes of its tensors; `None` for a runtime that folds nothing.
            kept: Names of nodes that are fetched or fed, and so stay as they are.

        Raises:
            InvalidGraphError: TensorFlow refuses the graph; the message is TensorFlow's.
        """
        count = len(Numbering.of(graph).nodes)
        if properties is None:
            return cls([False] * count, [True] * count, list(range(count)))
        is_folded = _find_folded(graph, properties, kept)
        return cls(is_folded, _find_running(graph, is_folded), _find_same(graph, is_folded, kept))


def _find_folded(graph: Graph, properties: Properties, kept: Container[str]) -> list[bool]:
    numbering = Numbering.of(graph)
    constant = [node.op == _CONSTANT for node in numbering.nodes]
    is_folded = [False] * len(constant)
    for place in numbering.order:
        node = numbering.nodes[place]
        if not node.inputs or node.name in kept:
            continue
        if not all(constant[numbering.place(tensor.node)] for tensor in node.inputs):
            continue
        outputs = properties.outputs(node.name)
        small = all(tensor.least_bytes <= _LARGEST_BYTES for tensor in outputs)
        if outputs and small and not is_stateful(node, graph.library):
            constant[place] = is_folded[place] = True
    return is_folded


def _find_running(graph: Graph, is_folded: list[bool]) -> list[bool]:
    """Constants and folded nodes run if a node that runs waits for them or reads them."""
    numbering = Numbering.of(graph)
    runs = [True] * len(is_folded)
    for place in reversed(numbering.order):
        node = numbering.nodes[place]
        if not is_folded[place] and node.op != _CONSTANT:
            continue
        users = [numbering.place(user) for user in node.control_users]
        for tensor in node.outputs:
            readers = [numbering.place(user) for user, _ in tensor.uses]
            if not is_folded[place] or all(is_folded[reader] for reader in readers):
                users += readers
        runs[place] = any(runs[user] for user in users)
    return runs


def _find_same(graph: Graph, is_folded: list[bool], kept: Container[str]) -> list[int]:
    """For each constant and folded node the first that is equal; who waits for others stays."""
    numbering = Numbering.of(graph)
    same = list(range(len(is_folded)))
    first: dict[tuple[object, ...], int] = {}
    for place in numbering.order:
        node = numbering.nodes[place]
        is_given = is_folded[place] or node.op == _CONSTANT
        if node.name in kept or node.control_inputs or not is_given:
            continue
        inputs = [(same[numbering.place(tensor.node)], tensor.port) for tensor in node.inputs]
        key = (node.op, node.device, attributes_key(node.attributes.items()), tuple(inputs))
        same[place] = first.setdefault(key, place)
    return same
