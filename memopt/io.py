"""Graph files in and out: GraphDef and MetaGraphDef, binary and text, told apart by content."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from memopt.errors import FileError, OptionsError
from memopt.files.whole_files import read_bytes, write_bytes
from memopt.item import STEP_SIGNATURE, TRAIN_OP_COLLECTION, GrapplerItem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    GraphSource: TypeAlias = (
        GraphDef | MetaGraphDef | ConcreteFunction | GrapplerItem | str | os.PathLike[str]
    )

GRAPH_SUFFIXES = (".pb", ".pbtxt", ".meta")
"""What names of graph files end in, in small letters; none of these is the end of another."""

_NODE_NAME = re.compile(r"[A-Za-z0-9._][A-Za-z0-9_.\\/>-]*")
_OP_NAME = re.compile(r"[A-Za-z0-9_.>]+")


@dataclass(frozen=True)
class GraphFile:
    """A graph as a file holds it.

    Attributes:
        message: The GraphDef or MetaGraphDef.
        is_text: Whether the file is in protobuf's text format.
    """

    message: GraphDef | MetaGraphDef
    is_text: bool

    @property
    def graph_def(self) -> GraphDef:
        """The graph itself."""
        return _graph_def(self.message)

    def item(
        self, fetch: Sequence[str] | None = None, feed: Sequence[str] | None = None
    ) -> GrapplerItem:
        """The graph with how it is used: as given, or as the file says.

        A MetaGraphDef says it by its signatures and by the collection `train_op`. Where nothing
        says it, Placeholders are fed and the nodes that nothing uses are fetched.
        """
        return item_of(self.message, fetch, feed)

    def with_graph(self, graph_def: GraphDef) -> GraphFile:
        """The same file with another graph."""
        if _is_graph_def(self.message):
            return replace(self, message=graph_def)
        message = type(self.message)()
        message.CopyFrom(self.message)
        message.graph_def.CopyFrom(graph_def)
        return replace(self, message=message)


def is_graph_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file holds a graph, by its name."""
    return os.fspath(path).lower().endswith(GRAPH_SUFFIXES)


def read_graph(path: str) -> GraphFile:
    """Read a graph file; anywhere that `tf.io.gfile` or fsspec reaches.

    Raises:
        FileError: There is no such file, it is a folder or empty, is larger than 2 GiB, or holds no
            graph.
    """
    content = read_bytes(path)
    for is_text, parse in ((False, _parse_binary), (True, _parse_text)):
        for kind in _message_types():
            message = parse(kind, content)
            if message is not None and _looks_like_a_graph(message):
                return GraphFile(message, is_text)
    raise FileError(
        f"{path}: holds no graph; it is neither a GraphDef nor a MetaGraphDef, binary or text "
        "(or it is cut short)"
    )


def write_graph(file: GraphFile, path: str) -> None:
    """Write a graph file, whole or not at all, with the same bytes for the same graph.

    Raises:
        FileError: The graph is larger or deeper than a protobuf can be, or the place cannot be
            written to.
    """
    from google.protobuf import message as protobuf
    from google.protobuf import text_format

    try:
        if file.is_text:
            content = text_format.MessageToString(file.message).encode()
        else:
            content = file.message.SerializeToString(deterministic=True)
    except (protobuf.Error, ValueError, RecursionError) as error:
        raise FileError(
            f"{path}: the graph is larger than the 2 GiB of a protobuf, or nested too deeply for it"
        ) from error
    write_bytes(path, content)


def as_item(
    graph: GraphSource,
    fetch: Sequence[str] | None = None,
    feed: Sequence[str] | None = None,
) -> GrapplerItem:
    """Anything that holds a graph as an item.

    Args:
        graph: A GraphDef, MetaGraphDef, ConcreteFunction, path of a graph file, or item.
        fetch: What the caller asks for, instead of what the graph says.
        feed: What the caller gives, instead of what the graph says.

    Raises:
        FileError: The path holds no graph.
        OptionsError: The argument is none of these.
    """
    if isinstance(graph, (str, os.PathLike)):
        return read_graph(os.fspath(graph)).item(fetch, feed)
    if isinstance(graph, _message_types()):
        return item_of(graph, fetch, feed)
    if isinstance(graph, GrapplerItem):
        item = graph
    elif hasattr(graph, "captured_inputs"):
        item = GrapplerItem.from_concrete_function(graph)
    else:
        raise OptionsError(
            f"a {type(graph).__name__} holds no graph; give a GraphDef, a MetaGraphDef, a "
            "ConcreteFunction (function.get_concrete_function(...)), a path or a GrapplerItem"
        )
    return replace(
        item,
        fetch=item.fetch if fetch is None else tuple(fetch),
        feed=item.feed if feed is None else tuple(feed),
    )


def item_of(
    message: GraphDef | MetaGraphDef,
    fetch: Sequence[str] | None = None,
    feed: Sequence[str] | None = None,
) -> GrapplerItem:
    """A message's graph with how it is used; see `GraphFile.item`."""
    graph_def = _graph_def(message)
    if _is_graph_def(message):
        found_feed = _placeholders(graph_def) if feed is None else feed
        found_fetch = _unused_nodes(graph_def) if fetch is None else fetch
    else:
        found_feed = _feeds(message) if feed is None else feed
        found_fetch = _fetches(message) if fetch is None else fetch
    return GrapplerItem(graph_def, feed=tuple(found_feed), fetch=tuple(found_fetch))


def meta_graph_of(item: GrapplerItem) -> MetaGraphDef:
    """An item as a MetaGraphDef that says how its graph is used.

    Captured variables become VarHandleOps, so that the file knows their types and shapes; fed and
    fetched tensors stand in the signature "step", fetched operations in the collection `train_op`.
    """
    from tensorflow.core.protobuf import meta_graph_pb2

    meta_graph: MetaGraphDef = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(item.with_variable_handles())
    signature = meta_graph.signature_def[STEP_SIGNATURE]
    for entries, names in (
        (signature.inputs, item.feed),
        (signature.outputs, item.fetched_tensors),
    ):
        for number, name in enumerate(names):
            entries[f"{number:04}"].name = name
    meta_graph.collection_def[TRAIN_OP_COLLECTION].node_list.value.extend(item.fetched_operations)
    return meta_graph


def save(graph: GraphSource, path: str | os.PathLike[str]) -> None:
    """Write a graph or a training step to a file that memopt and TensorFlow read.

    Args:
        graph: A GraphDef or MetaGraphDef, written as it is, or a ConcreteFunction, GrapplerItem or
            path, which becomes a MetaGraphDef that says how it is called (see `meta_graph_of`).
        path: The file; text if it ends in `.pbtxt`.

    Raises:
        FileError: The place cannot be written to.
        OptionsError: The argument holds no graph.
    """
    message = graph
    if not isinstance(graph, _message_types()):
        message = meta_graph_of(as_item(graph))
        if hasattr(graph, "captured_inputs"):
            _embed_captured_constants(message, graph)
    write_graph(GraphFile(message, is_text=str(path).endswith(".pbtxt")), os.fspath(path))


def _embed_captured_constants(meta_graph: MetaGraphDef, function: ConcreteFunction) -> None:
    """Make constants of captured tensors: unlike arguments, no caller gives them."""
    import tensorflow as tf

    captured = {
        placeholder.op.name: value
        for value, placeholder in function.graph.captures
        if value.dtype not in (tf.resource, tf.variant)
    }
    for node in meta_graph.graph_def.node:
        if node.name in captured:
            tensor = tf.make_tensor_proto(captured[node.name])
            node.op = "Const"
            node.ClearField("attr")
            node.attr["dtype"].type = tensor.dtype
            node.attr["value"].tensor.CopyFrom(tensor)
    inputs = meta_graph.signature_def[STEP_SIGNATURE].inputs
    for key in [key for key, entry in inputs.items() if entry.name.partition(":")[0] in captured]:
        del inputs[key]


def _message_types() -> tuple[Any, ...]:
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.protobuf import meta_graph_pb2

    return graph_pb2.GraphDef, meta_graph_pb2.MetaGraphDef


def _parse_binary(kind: Any, content: bytes) -> Any | None:
    from google.protobuf import message as protobuf

    try:
        return kind.FromString(content)
    except protobuf.DecodeError:
        return None


def _parse_text(kind: Any, content: bytes) -> Any | None:
    from google.protobuf import text_format

    try:
        return text_format.Parse(content.decode(), kind())
    except (UnicodeDecodeError, text_format.ParseError, RecursionError):
        return None


def _looks_like_a_graph(message: GraphDef | MetaGraphDef) -> bool:
    """Whether a parsed message is of its kind: other bytes parse too, as nodes without sense."""
    nodes = _graph_def(message).node
    return bool(nodes) and all(
        _NODE_NAME.fullmatch(node.name) and _OP_NAME.fullmatch(node.op) for node in nodes
    )


def _is_graph_def(message: GraphDef | MetaGraphDef) -> bool:
    return bool(message.DESCRIPTOR.full_name == "tensorflow.GraphDef")


def _graph_def(message: Any) -> GraphDef:
    graph_def: GraphDef = message if _is_graph_def(message) else message.graph_def
    return graph_def


def _placeholders(graph_def: GraphDef) -> list[str]:
    return [f"{node.name}:0" for node in graph_def.node if node.op == "Placeholder"]


def _unused_nodes(graph_def: GraphDef) -> list[str]:
    used = {
        name.removeprefix("^").partition(":")[0] for node in graph_def.node for name in node.input
    }
    return [node.name for node in graph_def.node if node.name not in used]


def _signature_tensors(meta_graph: MetaGraphDef, side: str) -> list[str]:
    names = (
        entry.name
        for _, signature in sorted(meta_graph.signature_def.items())
        for _, entry in sorted(getattr(signature, side).items())
    )
    return _distinct(name for name in names if name)


def _feeds(meta_graph: MetaGraphDef) -> list[str]:
    return _signature_tensors(meta_graph, "inputs") or _placeholders(meta_graph.graph_def)


def _fetches(meta_graph: MetaGraphDef) -> list[str]:
    found = _signature_tensors(meta_graph, "outputs")
    # Only looking a collection up would add it to the message.
    if TRAIN_OP_COLLECTION in meta_graph.collection_def:
        found += meta_graph.collection_def[TRAIN_OP_COLLECTION].node_list.value
    return _distinct(found) or _unused_nodes(meta_graph.graph_def)


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
