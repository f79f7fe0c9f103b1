"""Graphs as text, one line per node: the language of tests and bug reports.

    y = MatMul(x, w:1, ^ready) {T=float, transpose_a=false} @/device:CPU:0

Inputs, control inputs after a `^`, attributes, device; debug information and full types are left
out. A line may be empty or a `#` comment.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError
from memopt.graph.attributes import VALUE_PATTERN, format_attribute, parse_attribute
from memopt.graph.graphdef import from_graph_def
from memopt.graph.nodedef import spell_inputs

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.graph.graph import Graph, Node

_LINE = re.compile(
    r"(?P<name>\S+) = (?P<op>[^\s(]+)\((?P<inputs>[^)]*)\)"
    r"(?: \{(?P<attributes>.*)\})?(?: @(?P<device>\S+))?"
)
_ATTRIBUTE = re.compile(rf"\s*(?P<key>\w+)=(?P<value>{VALUE_PATTERN})\s*(?:,|$)")


def format_graph(graph: Graph) -> str:
    """The graph as text, a line per node in insertion order; functions are not printed."""
    return "".join(f"{format_node(node)}\n" for node in graph)


def format_node(node: Node) -> str:
    """One node as a line of text, without the line's end."""
    line = f"{node.name} = {node.op}({', '.join(spell_inputs(node))})"
    attributes = ", ".join(
        f"{key}={format_attribute(node.attributes[key])}" for key in sorted(node.attributes)
    )
    if attributes:
        line += f" {{{attributes}}}"
    if node.device:
        line += f" @{node.device}"
    return line


def parse_graph(text: str) -> Graph:
    """The graph that a text describes.

    Raises:
        InvalidGraphError: A line is no node (names its number), or the nodes are no graph.
    """
    from tensorflow.core.framework import graph_pb2

    graph_def = graph_pb2.GraphDef()
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            try:
                _parse_line(stripped, graph_def.node.add())
            except InvalidGraphError as error:
                raise InvalidGraphError(f"line {number}: {error}") from error
    return from_graph_def(graph_def)


def _parse_line(line: str, node_def: NodeDef) -> None:
    match = _LINE.fullmatch(line)
    if match is None:
        raise InvalidGraphError(f"{line!r} is no node: name = Op(inputs) {{attributes}} @device")
    node_def.name = match["name"]
    node_def.op = match["op"]
    node_def.device = match["device"] or ""
    node_def.input.extend(part.strip() for part in match["inputs"].split(",") if part.strip())
    rest = match["attributes"] or ""
    position = 0
    while position < len(rest):
        attribute = _ATTRIBUTE.match(rest, position)
        if attribute is None:
            raise InvalidGraphError(f"{rest[position:]!r} is no attribute")
        node_def.attr[attribute["key"]].CopyFrom(parse_attribute(attribute["value"]))
        position = attribute.end()
