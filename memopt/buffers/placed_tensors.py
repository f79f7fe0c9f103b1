"""PlacedTensors: the buffers in which the tensors of one run of a graph lie, as they are placed."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.graph.op_types import DT_RESOURCE, DT_STRING, DT_VARIANT
from memopt.graph.traversal import Numbering
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memopt.buffers.pool import Pool
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.shapes.properties import Properties
    from memopt.shapes.tensor_properties import TensorProperties

LIST_BYTES = 64
"""The size of a scalar that refers to a TensorList; its elements lie in buffers of their own."""

_HANDLE_BYTES = 200
"""The size of a scalar that refers to a resource."""

_STRING_BYTES = 24
"""The size of one string's header; long strings are not allocated by TensorFlow's allocator."""

_NOTHING_KNOWN = tensor_properties(0, None)


class PlacedTensors:
    """Which buffers the nodes of one run of a graph allocate and read, filled in node by node.

    Args:
        graph: The nodes.
        properties: The sizes of its tensors.
        pool: All buffers.
        told: By place: what is known of outputs, the same in all runs of the graph; grows.

    Attributes:
        pool: All buffers.
        graph: The nodes.
        numbering: Likewise, in numbers.
        made: By place: the buffers that a node allocates.
        read: By place: the buffers that it reads.
        scratch_bytes: By place: what its kernel allocates only while it runs.
    """

    def __init__(
        self,
        graph: Graph,
        properties: Properties,
        pool: Pool,
        told: dict[int, Sequence[TensorProperties]],
    ) -> None:
        self.pool = pool
        self.graph = graph
        self.numbering = Numbering.of(graph)
        count = len(self.numbering.nodes)
        self.made: list[list[int]] = [[] for _ in range(count)]
        self.read: list[list[int]] = [[] for _ in range(count)]
        self.scratch_bytes = [0] * count
        self._properties = properties
        self._told = told
        self._library = graph.library
        self._outputs: list[Sequence[TensorProperties]] = [()] * count
        self._buffers: list[list[int]] = [[] for _ in range(count)]
        """By place: the buffer of each output port."""

    def start(self, place: int) -> Sequence[TensorProperties]:
        """Begin with a node: nothing of it is placed yet. Returns what is known of its outputs."""
        told = self._told.get(place)
        if told is None:
            told = self._told[place] = self._known_outputs(self.numbering.nodes[place])
        self._outputs[place] = told
        self._buffers[place] = []
        return told

    def _known_outputs(self, node: Node) -> Sequence[TensorProperties]:
        """What is known of a node's outputs, with an entry for each even if nothing is known."""
        known = self._properties.outputs(node.name)
        signature = None if known else op_types.signature(node.op, self._library)
        if signature is None or not signature.outputs:
            return known
        types = op_types.port_types(node, self._library).outputs
        return [tensor_properties(dtype, None) for dtype in types]

    def buffer(self, tensor: Tensor) -> int:
        """The buffer in which a tensor lies."""
        place, port = self.numbering.place(tensor.node), tensor.port
        buffers = self._buffers[place]
        while len(buffers) <= port:
            # Nothing is known of the tensor, or it comes from the end of a loop.
            buffers.append(self.pool.add(0, lasting=True))
        return buffers[port]

    def buffers(self, place: int) -> list[int]:
        """The buffers of a node's outputs that are placed, by port."""
        return self._buffers[place]

    def elements(self, tensor: Tensor) -> tuple[int, ...]:
        """The buffers of a list's elements, -1 for one not set."""
        return self.pool.contents.get(self.buffer(tensor), ())

    def number(self, tensor: Tensor) -> int | None:
        """The integer that a tensor of one element holds, if it is known."""
        return self.pool.numbers.get(self.buffer(tensor))

    def known(self, tensor: Tensor) -> TensorProperties:
        """What is known of a tensor."""
        outputs = self._outputs[self.numbering.place(tensor.node)]
        return outputs[tensor.port] if tensor.port < len(outputs) else _NOTHING_KNOWN

    def outputs(self, place: int) -> Sequence[TensorProperties]:
        """What is known of a node's outputs."""
        return self._outputs[place]

    def output_bytes(self, place: int, port: int) -> int:
        """The bytes of an output."""
        outputs = self._outputs[place]
        return allocated_bytes(outputs[port]) if port < len(outputs) else 0

    def make(self, place: int, size_bytes: int, reusable: Sequence[int] = ()) -> int:
        """A buffer that a node allocates, or forwards from one of `reusable` of the same size."""
        sizes = self.pool.size_bytes
        return self.put(place, size_bytes, [b for b in reusable if sizes[b] == size_bytes])

    def put(self, place: int, size_bytes: int, reusable: Sequence[int]) -> int:
        """A buffer that a node allocates, or puts into one of `reusable`, or into a piece of it."""
        sizes = self.pool.size_bytes
        buffer = self.pool.add(size_bytes, [b for b in reusable if sizes[b] >= size_bytes])
        self.made[place].append(buffer)
        return buffer

    def give(self, place: int, buffer: int) -> None:
        """Place the next output of a node in a buffer."""
        self._buffers[place].append(buffer)

    def give_list(
        self, place: int, elements: tuple[int, ...], reusable: Sequence[int] = ()
    ) -> None:
        """The next output of a node is a list of these elements."""
        buffer = self.make(place, LIST_BYTES, reusable)
        self.pool.contents[buffer] = elements
        self.give(place, buffer)

    def hold(self, place: int, buffers: Iterable[int]) -> None:
        """Let a node read buffers, and the elements of those that are lists."""
        found = self.pool.with_contents(buffers)
        read = self.read[place]
        self.read[place] = list(dict.fromkeys((*read, *found))) if read else list(found)


def allocated_bytes(tensor: TensorProperties) -> int:
    """The bytes that a tensor takes; handles, lists and strings have sizes of their own."""
    if tensor.dtype == DT_RESOURCE:
        return _HANDLE_BYTES
    if tensor.dtype == DT_STRING:
        return _STRING_BYTES * (prod(tensor.shape or ()) if tensor.is_known else 1)
    return LIST_BYTES if tensor.dtype == DT_VARIANT else tensor.least_bytes
