"""Shapes, types and sizes of every tensor of a graph; what is unknown stays unknown."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from memopt.errors import InvalidGraphError
from memopt.graph.op_types import DT_RESOURCE, DT_VARIANT, REF_TYPE_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import tensorflow as tf

    from memopt.item import GrapplerItem

DT_STRING = 7
_DATA_ELSEWHERE = frozenset({DT_STRING, DT_VARIANT})
"""Types whose elements point to memory that the shape says nothing of."""


class TensorProperties(NamedTuple):
    """What is known of one tensor.

    Attributes:
        dtype: TensorFlow's enumeration value of the element type; references as values.
        shape: Dimensions in elements, -1 for one that is not known; `None` if the rank is not.
        size_bytes: Bytes of the elements; `None` when not known, never zero for not known.
    """

    dtype: int
    shape: tuple[int, ...] | None
    size_bytes: int | None


class Properties:
    """The tensors of one graph by node name, inferred when first asked for."""

    def __init__(self, infer: Callable[[], Mapping[str, tuple[TensorProperties, ...]]]) -> None:
        self._infer = infer

    @classmethod
    def unknown(cls) -> Properties:
        """Properties of a graph of which nothing is known."""
        return cls(dict)

    @classmethod
    def of(cls, item: GrapplerItem) -> Properties:
        """The properties of an item's graph; inferred when first asked for."""
        return cls(lambda: infer_properties(item))

    @cached_property
    def _nodes(self) -> Mapping[str, tuple[TensorProperties, ...]]:
        return self._infer()

    def outputs(self, node: str) -> tuple[TensorProperties, ...]:
        """What is known of each output of a node, by port; empty for an unknown node."""
        return self._nodes.get(node, ())

    def tensor(self, name: str) -> TensorProperties | None:
        """What is known of a tensor, `node:port`."""
        node, _, port = name.rpartition(":")
        outputs = self.outputs(node)
        return outputs[int(port)] if int(port) < len(outputs) else None

    def size_bytes(self, name: str) -> int | None:
        """The bytes of a tensor, `node:port`; `None` when not known."""
        tensor = self.tensor(name)
        return None if tensor is None else tensor.size_bytes

    def unknown_sizes(self) -> Iterator[str]:
        """The names of the tensors whose size is not known."""
        for node, outputs in self._nodes.items():
            for port, tensor in enumerate(outputs):
                if tensor.size_bytes is None:
                    yield f"{node}:{port}"


def infer_properties(item: GrapplerItem) -> dict[str, tuple[TensorProperties, ...]]:
    """The properties of every output of every node, by TensorFlow's own shape functions.

    Captured variables arrive as Placeholders whose shape functions know nothing; they are replaced
    by variable handles, so that reads of them, and all that follows, have shapes. Where the item
    does not say what a captured resource holds, what depends on it stays unknown.

    Raises:
        InvalidGraphError: TensorFlow cannot import the graph; the message is TensorFlow's.
    """
    import tensorflow as tf

    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.graph_util.import_graph_def(item.with_variable_handles(), name="")
    except Exception as error:  # a damaged graph raises whatever TensorFlow's layers raise
        reason = " ".join(str(error).split())
        raise InvalidGraphError(f"TensorFlow cannot import the graph: {reason}") from error
    return {
        operation.name: tuple(_properties(tensor) for tensor in operation.outputs)
        for operation in graph.get_operations()
    }


def _properties(tensor: tf.Tensor) -> TensorProperties:
    dtype = int(tensor.dtype.as_datatype_enum) % REF_TYPE_OFFSET
    rank = tensor.shape.rank
    if rank is None:
        return TensorProperties(dtype, None, 0 if dtype == DT_RESOURCE else None)
    shape = tuple(-1 if size is None else int(size) for size in tensor.shape)
    return TensorProperties(dtype, shape, _size_bytes(dtype, shape, tensor.dtype.size))


def _size_bytes(dtype: int, shape: tuple[int, ...], element_bytes: int) -> int | None:
    if dtype == DT_RESOURCE:
        return 0  # A handle; the variable behind it is no tensor of the graph.
    if -1 in shape or dtype in _DATA_ELSEWHERE:
        return None
    elements = 1
    for size in shape:
        elements *= size
    return elements * element_bytes
