"""A GraphDef as a TensorFlow graph, with TensorFlow's complaints as InvalidGraphError."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError
from memopt.graph.op_types import DT_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tensorflow as tf
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_SHAPE = "shape"
_BY_COORDINATES = ("ResourceGatherNd", "ResourceScatterNd")
"""What ops begin with that take a resource for the variable, if nobody says what is behind it."""


def import_graph(graph_def: GraphDef, graph: tf.Graph) -> None:
    """Add the nodes of `graph_def` to `graph`, under their own names.

    Raises:
        InvalidGraphError: TensorFlow refuses the graph.
    """
    from tensorflow.python.framework import errors, importer

    resources = _read_by_coordinates(graph_def)
    try:
        with graph.as_default():
            importer.import_graph_def(_without_shapes(graph_def, resources), name="")
    except (ValueError, errors.OpError) as error:
        raise InvalidGraphError(f"TensorFlow refuses the graph: {error}") from error
    for node in resources:
        operation = graph.get_operation_by_name(node.name)
        operation._set_attr(_SHAPE, node.attr[_SHAPE])  # noqa: SLF001 - there is no other way
        operation.outputs[0].set_shape(node.attr[_SHAPE].shape)


def _read_by_coordinates(graph_def: GraphDef) -> list[NodeDef]:
    """The Placeholders of resources that such ops read."""
    readers = (node for node in graph_def.node if node.op.startswith(_BY_COORDINATES))
    read = {name for node in readers for name in node.input}
    return [
        node
        for node in (graph_def.node if read else ())
        if node.op == "Placeholder" and node.name in read and node.attr["dtype"].type == DT_RESOURCE
    ]


def _without_shapes(graph_def: GraphDef, placeholders: Sequence[NodeDef]) -> GraphDef:
    """The same, but for the shapes of some Placeholders: a copy if there are any."""
    if not placeholders:
        return graph_def
    open_graph_def = type(graph_def)()
    open_graph_def.CopyFrom(graph_def)
    names = {node.name for node in placeholders}
    for node in open_graph_def.node:
        if node.name in names:
            node.attr[_SHAPE].shape.unknown_rank = True
    return open_graph_def


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
