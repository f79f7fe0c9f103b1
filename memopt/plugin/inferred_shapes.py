"""What Grappler does not infer: what functions give that it only declares, and lists in loops."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from memopt.kernels.choice import bodies_of
from memopt.shapes.popped_elements import pops_unknown, with_popped_shapes
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import known_by_either

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.item import GrapplerItem
    from memopt.shapes.tensor_properties import TensorProperties

_ROUNDS = 2
"""How often what loops take out is looked at: the first time, what they put in may not be known."""


def with_declared(properties: Properties, item: GrapplerItem) -> Properties:
    """What is known of a graph's tensors, and of what functions give that XLA compiles.

    To Grappler they are operations of which it infers nothing, and nothing of all that follows.

    Args:
        properties: What Grappler infers.
        item: The graph and its use.
    """
    if not _calls_without_shapes(properties, item.graph_def):
        return properties
    completed = _with_bodies(item.graph_def)
    return properties if completed is None else _completed(properties, item, completed, {})


def with_popped(properties: Properties, item: GrapplerItem) -> Properties:
    """What is known of a graph's tensors, and of what loops take out of lists.

    Args:
        properties: What is known of it without.
        item: The graph and its use.
    """
    for _ in range(_ROUNDS):
        known = partial(_output, properties)
        if not pops_unknown(item.graph_def, known):
            break
        properties = _completed(properties, item, *with_popped_shapes(item.graph_def, known))
    return properties


def _output(properties: Properties, node: str, port: int) -> TensorProperties | None:
    outputs = properties.outputs(node)
    return outputs[port] if port < len(outputs) else None


def _completed(
    properties: Properties, item: GrapplerItem, completed: GraphDef, shaped: Mapping[str, str]
) -> Properties:
    """What is known of a graph, or of the same with more in it.

    Args:
        properties: What is known of it without.
        item: The graph and its use.
        completed: The graph with more.
        shaped: By node: the one whose output is its last output, with a shape.
    """
    more = Properties.of(replace(item, graph_def=completed))
    if more.failure:
        return properties
    known = {}
    for node in item.graph_def.node:
        before, after = properties.outputs(node.name), more.outputs(node.name)
        if node.name in shaped:
            after = (*after[:-1], *more.outputs(shaped[node.name]))
        known[node.name] = before
        if len(before) == len(after):
            known[node.name] = tuple(map(known_by_either, before, after))
    return Properties.given(known)


def _calls_without_shapes(properties: Properties, graph_def: GraphDef) -> bool:
    """Whether a call of a declared function gives something of an unknown size."""
    declared = {
        function.signature.name for function in graph_def.library.function if not function.node_def
    }
    return any(
        value.func.name in declared
        for node in graph_def.node
        if any(tensor.size_bytes is None for tensor in properties.outputs(node.name))
        for value in node.attr.values()
    )


def _with_bodies(graph_def: GraphDef) -> GraphDef | None:
    """The graph with the bodies of the functions that it declares; `None` if one is not known."""
    completed = type(graph_def)()
    completed.CopyFrom(graph_def)
    bodies = bodies_of(graph_def)
    for function in completed.library.function:
        body = bodies(function.signature.name)
        if body is None:
            return None
        function.CopyFrom(body)
    return completed
