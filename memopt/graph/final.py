"""The mark of a graph that Grappler has been at: it runs as it is, with Grappler off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.op_types import called_functions

if TYPE_CHECKING:
    from collections.abc import Collection

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.graph.functiondef import Library
    from memopt.graph.graph import Node

FINAL = "_memopt_final"
"""An attribute of nodes that are asked for. TensorFlow carries it along and ignores it."""


def is_final(graph_def: GraphDef) -> bool:
    """Whether a graph is to run without Grappler, which would change the last bits."""
    return any(FINAL in node.attr for node in graph_def.node)


def mark_final(graph_def: GraphDef, names: Collection[str]) -> None:
    """Say of a graph that it is to run without Grappler.

    Args:
        graph_def: The graph.
        names: Of nodes that it keeps, whatever is rewritten.
    """
    wanted = frozenset(names)
    for node in graph_def.node:
        if node.name in wanted:
            node.attr[FINAL].s = b"1"


def is_given_to_grappler(node: Node, library: Library) -> bool:
    """Whether Grappler works on what a node calls when it runs, even where it is off around it.

    A function that is not inlined is prepared as its call's own configuration says
    (tensorflow/core/kernels/partitioned_function_ops.cc).
    """
    if "config_proto" not in node.attributes:
        return False
    if not any(library.stays_a_call(name) for name in called_functions(node, library)):
        return False
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf.config_pb2 import ConfigProto

    try:
        config = ConfigProto.FromString(node.attributes["config_proto"].s)
    except DecodeError:
        # Nobody knows what TensorFlow will make of it.
        return True
    return not config.graph_options.rewrite_options.disable_meta_optimizer
