"""A GraphDef as a TensorFlow graph, with TensorFlow's complaints as InvalidGraphError."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow.core.framework.graph_pb2 import GraphDef


def import_graph(graph_def: GraphDef, graph: tf.Graph) -> None:
    """Add the nodes of `graph_def` to `graph`, under their own names.

    Raises:
        InvalidGraphError: TensorFlow refuses the graph.
    """
    from tensorflow.python.framework import errors, importer

    try:
        with graph.as_default():
            importer.import_graph_def(graph_def, name="")
    except (ValueError, errors.OpError) as error:
        raise InvalidGraphError(f"TensorFlow refuses the graph: {error}") from error


def find_tensor(graph: tf.Graph, name: str, role: str) -> tf.Tensor:
    """The tensor of that name (`"x:0"`).

    Args:
        graph: Where to look.
        name: Name of the tensor.
        role: What it is to the caller, for the message.

    Raises:
        InvalidGraphError: There is none.
    """
    try:
        return graph.get_tensor_by_name(name)
    except (KeyError, ValueError) as error:
        node = name.partition(":")[0]
        raise InvalidGraphError(f"the graph has no {role} {name}", node=node) from error


def find_operation(graph: tf.Graph, name: str, role: str) -> tf.Operation:
    """The operation of that name.

    Args:
        graph: Where to look.
        name: Name of the operation.
        role: What it is to the caller, for the message.

    Raises:
        InvalidGraphError: There is none.
    """
    try:
        return graph.get_operation_by_name(name)
    except (KeyError, ValueError) as error:
        raise InvalidGraphError(f"the graph has no {role} {name}", node=name) from error
