"""Whether a rewritten function still takes every shape that it took before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.item import GrapplerItem


def fixed_shape(item: GrapplerItem, graph_def: GraphDef, other: GrapplerItem) -> str:
    """A node that takes only the shapes that a rewriting was planned with; "" if there is none.

    The rewritten graph is given other shapes, and what TensorFlow infers of every node that both
    graphs have has to be what it infers of the original.

    Args:
        item: The original, with dimensions open.
        graph_def: The rewritten graph.
        other: The original with other sizes in the open dimensions than those of the plan.
    """
    rewritten = replace(item, graph_def=with_arguments_of(other, graph_def))
    before, after = Properties.of(other), Properties.of(rewritten)
    if before.failure:
        # These sizes are none that the model takes: what is open has to be open still.
        before = Properties.of(item)
        after = Properties.of(replace(item, graph_def=graph_def))
    names = {node.name for node in graph_def.node}
    try:
        after.require()
        for node in other.graph_def.node:
            if node.name in names and _differ(before, after, node.name):
                return str(node.name)
    except InvalidGraphError as error:
        return error.node or "a node"
    return ""


def with_arguments_of(item: GrapplerItem, graph_def: GraphDef) -> GraphDef:
    """A graph whose arguments are as an item declares them."""
    fed = {node.name: node for node in item.graph_def.node if node.op == "Placeholder"}
    changed = type(graph_def)()
    changed.CopyFrom(graph_def)
    for node in changed.node:
        if node.op == "Placeholder" and node.name in fed:
            node.CopyFrom(fed[node.name])
    return changed


def _differ(before: Properties, after: Properties, name: str) -> bool:
    pairs = zip(before.outputs(name), after.outputs(name), strict=False)
    for old, new in pairs:
        if old.shape is None or new.shape is None:
            if new.shape is not None:
                return True
            continue
        if len(old.shape) != len(new.shape):
            return True
        if any(b >= 0 and b != a for a, b in zip(old.shape, new.shape, strict=True)):
            return True
    return False
