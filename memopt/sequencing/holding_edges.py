"""Which edges make an operation wait until all of another has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.buffers.kernel_signature import is_compiled
from memopt.graph import op_types
from memopt.shapes.function_calls import BRANCHES, CALLS, LOOPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.graph.graph import Node


_PARTED = BRANCHES | CALLS


def falls_apart(node: Node) -> bool:
    """Whether TensorFlow puts the operations of functions in the place of a node.

    A branch or a call is gone when the step runs. Who reads one of its results waits for what makes
    that, not for the rest; who waits for it waits for what has an effect; and what needs one of its
    arguments does not wait for the others. But all of it waits for whom it waits for by control
    (tensorflow/core/common_runtime/inline_function_utils.h).
    """
    return node.op in _PARTED and not is_compiled(node)


class HoldingEdges:
    """The edges of a graph by which operations wait for the end of others.

    Attributes:
        parted: The nodes that fall apart, as numbers.
        begun_early: The nodes that need not have all that they read when they begin: those, and
            loops, of which each variable enters as soon as it is there. They have all for which
            they wait by control (tensorflow/core/common_runtime/lower_while_op.cc).
    """

    def __init__(self, buffer_graph: BufferGraph) -> None:
        nodes = self._nodes = buffer_graph.nodes
        self._producers = buffer_graph.producers
        self.parted = frozenset(n for n, node in enumerate(nodes) if falls_apart(node))
        loops = (number for number, node in enumerate(nodes) if node.op in LOOPS)
        self.begun_early = self.parted.union(loops)
        # A Merge does not wait for the other side.
        merges = (n for n, node in enumerate(nodes) if node.op in op_types.MERGES)
        self._controls: Mapping[int, Sequence[int]] = {
            number: _controls(buffer_graph, number) for number in (*merges, *self.begun_early)
        }

    def before(self, number: int) -> Sequence[int]:
        """The nodes whose ancestors a node waits for: for themselves as well but those `parted`."""
        return self._controls.get(number, self._producers[number])

    def joined_by(self, number: int) -> Sequence[int]:
        """Of a Merge the nodes that it joins."""
        data = {tensor.node for tensor in self._nodes[number].inputs}
        return [each for each in self._producers[number] if self._nodes[each] in data]


def _controls(buffer_graph: BufferGraph, number: int) -> list[int]:
    """Those producers of a node that it waits for by control."""
    nodes = buffer_graph.nodes
    controls = frozenset(nodes[number].control_inputs)
    return [producer for producer in buffer_graph.producers[number] if nodes[producer] in controls]
