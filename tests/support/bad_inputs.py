"""Everything that can be wrong with a graph file, each with the message that must name it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph

if TYPE_CHECKING:
    from pathlib import Path

    from tensorflow.core.framework.graph_pb2 import GraphDef

HOLDS_NO_GRAPH = "holds no graph; it is neither a GraphDef nor a MetaGraphDef, binary or text"

X = "x = Placeholder() {dtype=float, shape=[2,3]}\n"

_BROKEN_GRAPHS = {
    "an op that nobody knows": (X + "y = Frobnicate(x)", "node 'y': .* the op 'Frobnicate'"),
    "an input of the wrong type": (
        X + "y = Relu(x) {T=half}",
        "node 'y': input 'x:0' is float, Relu takes half",
    ),
    "a port that does not exist": (
        X + "y = Relu(x:7) {T=float}",
        "node 'y': input 'x:7' does not exist",
    ),
    "an attribute that is missing": (X + "y = Relu(x)", "node 'y': .* the attribute 'T'"),
    "a cycle": ("a = NoOp(^b)\nb = NoOp(^a)", "2 nodes form a cycle: "),
}

# TensorFlow says it when the sizes for the report are asked for.
SHAPES_THAT_DO_NOT_FIT = X + "y = MatMul(x, x) {T=float, transpose_a=false, transpose_b=false}"


class BadInput(NamedTuple):
    """A file, or a place where none is, and what must be said of it."""

    path: str
    message: str


def bad_graph_files(folder: Path, real: bytes) -> dict[str, BadInput]:
    """Bad inputs by what is wrong with them; the files are written.

    Args:
        folder: Where they go.
        real: A real model's GraphDef, to spoil.
    """
    contents: dict[str, tuple[bytes, str]] = {
        "empty file": (b"", "is empty"),
        "random bytes": (random.Random(0).randbytes(5000), HOLDS_NO_GRAPH),
        "text that is no graph": (b"To whom it may concern\n", HOLDS_NO_GRAPH),
        "text that is no UTF-8": (b"node { name: '\xff\xfe' op: 'NoOp' }", HOLDS_NO_GRAPH),
        "text cut short": (b'node { name: "a" op: "NoOp"', HOLDS_NO_GRAPH),
        "text nested too deeply": (nested_text(5000), HOLDS_NO_GRAPH),
        "cut short": (real[: len(real) // 2 + 1], HOLDS_NO_GRAPH),
        "another message": (_config(), HOLDS_NO_GRAPH),
        "no nodes": (_graph_def_bytes(""), HOLDS_NO_GRAPH),
    }
    for name, (text, message) in _BROKEN_GRAPHS.items():
        contents[name] = (_graph_def_bytes(text), message)
    contents["an input that does not exist"] = (
        _edited(X + "y = Relu(x) {T=float}", "y", "nowhere:3"),
        "node 'y': input 'nowhere:3' does not exist",
    )
    contents["two nodes of one name"] = (
        _graph_def_bytes(X) * 2,
        "two nodes are called 'x'",
    )
    found = {
        "missing file": BadInput(str(folder / "missing.pb"), "there is no such file"),
        "a folder": BadInput(str(folder), "is a folder"),
        "a file for a folder": BadInput(
            str(folder / "empty_file.pb" / "graph.pb"), "there is no such file"
        ),
        "an unknown file system": BadInput(
            "nowhere://graph.pb", "cannot be read: no file system for nowhere:"
        ),
    }
    for name, (content, message) in contents.items():
        path = folder / f"{name.replace(' ', '_')}.pb"
        path.write_bytes(content)
        found[name] = BadInput(str(path), message)
    return found


NAMES = (
    "missing file",
    "a folder",
    "a file for a folder",
    "an unknown file system",
    "empty file",
    "random bytes",
    "text that is no graph",
    "text that is no UTF-8",
    "text cut short",
    "text nested too deeply",
    "cut short",
    "another message",
    "no nodes",
    *_BROKEN_GRAPHS,
    "an input that does not exist",
    "two nodes of one name",
)
"""The names of all bad inputs, to parametrize tests with."""


def nested_text(depth: int) -> bytes:
    """A GraphDef as text whose one attribute holds functions within functions."""
    start, end = 'func { attr { key: "f" value { ', "} } } "
    inner = f"{start * depth}i: 1 {end * depth}"
    return f'node {{ name: "a" op: "NoOp" attr {{ key: "f" value {{ {inner} }} }} }}'.encode()


def graph_def_of(text: str) -> GraphDef:
    """The GraphDef of a graph in memopt's text form, as of this TensorFlow."""
    graph_def = to_graph_def(parse_graph(text))
    # Of a graph without a version, TensorFlow takes a scalar's shape for an unknown one.
    graph_def.versions.producer = 1882
    return graph_def


def _graph_def_bytes(text: str) -> bytes:
    return bytes(graph_def_of(text).SerializeToString(deterministic=True))


def _edited(text: str, node: str, first_input: str) -> bytes:
    graph_def = graph_def_of(text)
    next(one for one in graph_def.node if one.name == node).input[0] = first_input
    return bytes(graph_def.SerializeToString(deterministic=True))


def _config() -> bytes:
    from tensorflow.core.protobuf import config_pb2

    config: Any = config_pb2.ConfigProto(device_count={"CPU": 2}, inter_op_parallelism_threads=3)
    return bytes(config.SerializeToString(deterministic=True))
