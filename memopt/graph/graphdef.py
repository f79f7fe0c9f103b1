"""GraphDef in and out, without loss: what was not changed comes out byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError
from memopt.graph.functiondef import Library
from memopt.graph.graph import Graph, Node, Tensor
from memopt.graph.nodedef import add_node_def, spell_inputs, write_node_def

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef


def from_graph_def(graph_def: GraphDef) -> Graph:
    """The graph that a GraphDef describes.

    The message is shared, not copied: leave it unchanged while the graph is in use. Repeated
    control inputs, which TensorFlow accepts, count once.

    Raises:
        InvalidGraphError: A name is missing or used twice, an input does not exist or is spelled
            wrongly, or a data input comes after a control input.
    """
    graph = Graph(Library(graph_def.library), envelope=graph_def)
    nodes = [add_node_def(graph, node_def) for node_def in graph_def.node]
    by_name = graph.by_name
    for node, node_def in zip(nodes, graph_def.node, strict=True):
        names = node_def.input
        producers = [by_name.get(name) for name in names]
        if None in producers:
            graph.connect(node, *_parse_inputs(by_name, node, names))
        elif producers:
            # By far the most nodes read first outputs and nothing else.
            graph.connect(node, tuple([producer.output() for producer in producers if producer]))
    graph.mark_loaded()
    return graph


def to_graph_def(graph: Graph) -> GraphDef:
    """The GraphDef of a graph: a new message, nodes in insertion order."""
    from tensorflow.core.framework import graph_pb2

    graph_def: GraphDef = graph_pb2.GraphDef()
    if graph.envelope is not None:
        # One deep copy in C++ carries all that memopt does not know of; then only what differs
        # is written.
        graph_def.CopyFrom(graph.envelope)
    library = graph.library
    if isinstance(library, Library) and library.changed:
        graph_def.library.CopyFrom(library.to_proto())
    nodes = list(graph)
    loaded = len(graph_def.node)
    if loaded and (len(nodes) < loaded or nodes[loaded - 1].index >= loaded):
        # Nodes were removed, so places in the message no longer are indices.
        graph_def.ClearField("node")
        for node in nodes:
            write_node_def(graph_def.node.add(), node, spell_inputs)
    else:
        for node in nodes:
            if node.changed:
                place = node.index
                node_def = graph_def.node[place] if place < loaded else graph_def.node.add()
                write_node_def(node_def, node, spell_inputs)
    return graph_def


def _parse_inputs(
    by_name: Mapping[str, Node], node: Node, names: Iterable[str]
) -> tuple[tuple[Tensor, ...], dict[Node, None]]:
    tensors: list[Tensor] = []
    controls: dict[Node, None] = {}
    for name in names:
        if name.startswith("^"):
            producer = by_name.get(name[1:])
            if producer is None:
                raise _missing(node, name)
            controls[producer] = None
            continue
        if controls:
            raise InvalidGraphError(
                f"node {node.name!r}: data input {name!r} comes after a control input",
                node=node.name,
                input=name,
            )
        producer = by_name.get(name)
        tensors.append(_parse_port(by_name, node, name) if producer is None else producer.output(0))
    return tuple(tensors), controls


def _parse_port(by_name: Mapping[str, Node], node: Node, name: str) -> Tensor:
    """The tensor of an input that spells its port, `producer:port`."""
    producer_name, colon, port = name.rpartition(":")
    producer = by_name.get(producer_name)
    if not colon or producer is None:
        raise _missing(node, name)
    if not (port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS):
        raise InvalidGraphError(
            f"node {node.name!r}: input {name!r} has no valid port after the colon",
            node=node.name,
            input=name,
        )
    return producer.output(int(port))


_PORT_DIGITS = 5
"""No op has 100,000 outputs; a longer port is a damaged file and must not become a long list."""


def _missing(node: Node, name: str) -> InvalidGraphError:
    return InvalidGraphError(
        f"node {node.name!r}: input {name!r} does not exist in the graph",
        node=node.name,
        input=name,
    )
