"""A graph that TensorFlow has imported, asked for the shapes of its tensors."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from memopt.shapes.c_graph import CGraph, import_error
from memopt.shapes.recursion import refuse_recursion
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

    import tensorflow as tf
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.shapes.tensor_properties import TensorProperties


class ImportedGraph(Protocol):
    """Nodes whose shapes TensorFlow has inferred, one after the other as they were added."""

    def add(
        self,
        graph_def: GraphDef,
        prefix: str = "",
        given: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Add a GraphDef's nodes, infer their shapes.

        Args:
            graph_def: The nodes, and functions that they call. It is not changed.
            prefix: Put before the nodes' names, with a slash.
            given: For tensors that the GraphDef reads but does not have those of the graph that
                stand for them, each `node:port`.

        Raises:
            InvalidGraphError: TensorFlow refuses the nodes; the message is TensorFlow's.
        """

    def outputs(self, node: str) -> tuple[TensorProperties, ...] | None:
        """What is known of each output of a node, by port; `None` if there is no such node."""


def new_graph() -> ImportedGraph:
    """An empty graph: behind the C API, or in Python where TensorFlow's C library is elsewhere."""
    try:
        return CGraph()
    except (OSError, AttributeError):
        return PythonGraph()


class PythonGraph:
    """The same by `tf.graph_util.import_graph_def`, which every TensorFlow has; slower."""

    def __init__(self) -> None:
        import tensorflow as tf

        self._graph = tf.Graph()

    def add(
        self,
        graph_def: GraphDef,
        prefix: str = "",
        given: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """See `ImportedGraph`."""
        import tensorflow as tf
        from tensorflow.core.framework import graph_pb2

        refuse_recursion(graph_def)
        # The importer writes defaults into the message that it is given.
        own: GraphDef = graph_pb2.GraphDef()
        own.CopyFrom(graph_def)
        try:
            inputs = {read: self._tensor(tensor) for read, tensor in given.items()}
            with self._graph.as_default():
                tf.graph_util.import_graph_def(own, input_map=inputs, name=prefix)
        except Exception as error:  # A broken graph raises whatever TensorFlow's layers raise.
            raise import_error(str(error)) from error

    def outputs(self, node: str) -> tuple[TensorProperties, ...] | None:
        """See `ImportedGraph`."""
        try:
            operation = self._graph.get_operation_by_name(node)
        except KeyError:
            return None
        return tuple(_properties(tensor) for tensor in operation.outputs)

    def _tensor(self, name: str) -> tf.Tensor:
        return self._graph.get_tensor_by_name(name)


def _properties(tensor: tf.Tensor) -> TensorProperties:
    shape = tensor.shape
    known = None if shape.rank is None else tuple(-1 if d is None else int(d) for d in shape)
    return tensor_properties(int(tensor.dtype.as_datatype_enum), known)
