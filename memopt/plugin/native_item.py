"""What TensorFlow tells of a graph inside the callback: what is fetched and kept, and shapes."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.errors import InvalidGraphError
from memopt.graph import op_types
from memopt.graph.functiondef import ARGUMENT, RESULT
from memopt.item import GrapplerItem
from memopt.plugin.structures import OK, Buffer, api
from memopt.shapes.grappler_inference import read_properties
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef


class Names(NamedTuple):
    """What TensorFlow says of the nodes of a graph.

    Attributes:
        fetched: What the caller gets: a session's fetches, the results of a function.
        kept: What must stay as it is called: that, what is fed, and what has effects.
    """

    fetched: tuple[str, ...]
    kept: tuple[str, ...]


def read_names(item: int) -> Names:
    """The names that TensorFlow has for an item.

    Raises:
        InvalidGraphError: TensorFlow does not tell.
    """
    functions = api()
    return Names(
        _strings(functions.TF_GetFetchNodesListSize, functions.TF_GetFetchNodesList, item),
        _strings(
            functions.TF_GetNodesToPreserveListSize, functions.TF_GetNodesToPreserveList, item
        ),
    )


def item_of(graph_def: GraphDef, names: Names) -> GrapplerItem:
    """A graph that TensorFlow is about to run as an item.

    In a function every node runs: its results and what has effects are asked for. In a session,
    what is kept and neither fetched nor has an effect may be fed: TensorFlow does not say more.
    """
    present = {node.name: node for node in graph_def.node}
    fetched = tuple(name for name in names.fetched if name in present)
    kept = tuple(name for name in names.kept if name in present)
    if is_function(graph_def):
        return GrapplerItem(graph_def, fetch=fetched, keep=kept)
    asked_for = frozenset(fetched)
    fed = tuple(
        f"{name}:0" for name in kept if name not in asked_for and not _has_effect(present[name].op)
    )
    return GrapplerItem(graph_def, feed=fed, fetch=fetched, keep=kept)


def is_function(graph_def: GraphDef) -> bool:
    """Whether a graph is the body of a function, and not what a v1 session runs."""
    return any(node.op in (ARGUMENT, RESULT) for node in graph_def.node)


def _has_effect(op: str) -> bool:
    signature = op_types.signature(op)
    return signature is None or signature.is_stateful


def read_shapes(item: int, graph_def: GraphDef) -> Properties:
    """The types and shapes that Grappler infers for every tensor of an item's graph.

    All are read at once: what TensorFlow knows does not outlive the callback.

    Raises:
        InvalidGraphError: TensorFlow refuses the graph.
    """
    functions = api()
    with _status() as status:
        inferred = functions.TF_NewGraphProperties(item)
        try:
            # Valid feeds; not aggressive; neither values of inputs nor of outputs.
            functions.TF_InferStatically(inferred, 1, 0, 0, 0, status)
            _check(status, "infers no shapes")
            outputs = {
                node.name: _outputs(inferred, node.name.encode(), status) for node in graph_def.node
            }
        finally:
            functions.TF_DeleteGraphProperties(inferred)
    return Properties.given(read_properties(outputs))


def _outputs(inferred: int, node: bytes, status: int) -> list[bytes]:
    """The serialized properties of a node's outputs."""
    functions = api()
    count = c_int()
    functions.TF_GetOutputPropertiesListSize(inferred, node, ctypes.byref(count), status)
    _check(status, "tells no number of outputs")
    if not count.value:
        return []
    buffers = (c_void_p * count.value)(*[functions.TF_NewBuffer() for _ in range(count.value)])
    try:
        functions.TF_GetOutputPropertiesList(inferred, node, buffers, count.value, status)
        _check(status, "tells no shapes")
        return [_content(buffer) for buffer in buffers if buffer]
    finally:
        for buffer in buffers:
            functions.TF_DeleteBuffer(buffer)


def _content(buffer: int) -> bytes:
    found = Buffer.from_address(buffer)
    return ctypes.string_at(found.data, found.length) if found.length else b""


def _strings(size: Callable[..., Any], fill: Callable[..., Any], item: int) -> tuple[str, ...]:
    """A list of strings that TensorFlow copies into memory that is given to it."""
    with _status() as status:
        count, storage_bytes = c_int(), c_size_t()
        size(item, ctypes.byref(count), ctypes.byref(storage_bytes), status)
        _check(status, "tells no number of names")
        values, lengths = (c_char_p * count.value)(), (c_size_t * count.value)()
        storage = ctypes.create_string_buffer(max(1, storage_bytes.value))
        fill(item, values, lengths, count.value, storage, storage_bytes.value, status)
        _check(status, "tells no names")
        places = ctypes.cast(values, ctypes.POINTER(c_void_p))
        return tuple(
            ctypes.string_at(places[number], lengths[number]).decode()
            for number in range(count.value)
        )


@contextmanager
def _status() -> Iterator[int]:
    functions = api()
    status = functions.TF_NewStatus()
    try:
        yield status
    finally:
        functions.TF_DeleteStatus(status)


def _check(status: int, what: str) -> None:
    functions = api()
    if functions.TF_GetCode(status) != OK:
        reason = functions.TF_Message(status).decode(errors="replace")
        raise InvalidGraphError(f"TensorFlow {what} of the graph: {reason}")
