"""A graph behind TensorFlow's C API, asked for the shapes of its tensors.

The C API is public (tensorflow/c/c_api.h), and called directly it spares what the Python importer
does with every node, which takes six times as long as the import itself.
"""

from __future__ import annotations

import ctypes
import weakref
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from memopt.errors import InvalidGraphError
from memopt.shapes.recursion import refuse_recursion
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.shapes.tensor_properties import Shape, TensorProperties

_LIBRARY = "libtensorflow_cc.so.2"


class _Output(Structure):
    """`TF_Output`: an output port of an operation."""

    _fields_ = (("operation", c_void_p), ("port", c_int))


_LONG_CALLS = {
    "TF_NewGraph": (c_void_p, ()),
    "TF_DeleteGraph": (None, (c_void_p,)),
    "TF_NewStatus": (c_void_p, ()),
    "TF_DeleteStatus": (None, (c_void_p,)),
    "TF_GetCode": (c_int, (c_void_p,)),
    "TF_Message": (c_char_p, (c_void_p,)),
    "TF_NewBufferFromString": (c_void_p, (c_char_p, c_size_t)),
    "TF_DeleteBuffer": (None, (c_void_p,)),
    "TF_NewImportGraphDefOptions": (c_void_p, ()),
    "TF_DeleteImportGraphDefOptions": (None, (c_void_p,)),
    "TF_ImportGraphDefOptionsSetPrefix": (None, (c_void_p, c_char_p)),
    "TF_ImportGraphDefOptionsAddInputMapping": (None, (c_void_p, c_char_p, c_int, _Output)),
    "TF_GraphImportGraphDef": (None, (c_void_p, c_void_p, c_void_p, c_void_p)),
}
"""Results and arguments of functions that may take long: other threads run meanwhile."""

_SHORT_CALLS = {
    "TF_GraphOperationByName": (c_void_p, (c_void_p, c_char_p)),
    "TF_OperationNumOutputs": (c_int, (c_void_p,)),
    "TF_OperationOutputType": (c_int, (_Output,)),
    "TF_GraphGetTensorNumDims": (c_int, (c_void_p, _Output, c_void_p)),
    "TF_GraphGetTensorShape": (
        None,
        (c_void_p, _Output, POINTER(c_int64), c_int, c_void_p),
    ),
}
"""The same of functions so short that letting other threads run takes longer than they do."""


@cache
def _load() -> Any:
    """The functions of the C API by name, without their `TF_`.

    Raises:
        OSError: TensorFlow has no such library here.
        AttributeError: The library lacks a function.
    """
    import tensorflow as tf

    path = str(Path(tf.sysconfig.get_lib()) / _LIBRARY)
    api = SimpleNamespace()
    for library, calls in (
        (ctypes.CDLL(path), _LONG_CALLS),
        (ctypes.PyDLL(path), _SHORT_CALLS),
    ):
        for name, (result, arguments) in calls.items():
            function = library[name]
            function.restype, function.argtypes = result, arguments
            setattr(api, name.removeprefix("TF_"), function)
    return api


class CGraph:
    """A graph that TensorFlow holds and of which Python knows nothing.

    Raises:
        OSError: The C API is not to be had here; nor with `AttributeError`.
    """

    def __init__(self) -> None:
        self._api = _load()
        self._graph: int = self._api.NewGraph()
        self._status: int = self._api.NewStatus()
        self._finalizer = weakref.finalize(self, _delete, self._graph, self._status)
        # When the process ends, so does the graph.
        self._finalizer.atexit = False

    def add(
        self,
        graph_def: GraphDef,
        prefix: str = "",
        given: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Add a GraphDef's nodes, infer their shapes.

        Args:
            graph_def: The nodes, and functions that they call. It is not changed.
            prefix: Put before the nodes' names, with a slash.
            given: For tensors that the GraphDef reads but does not have those of the graph that
                stand for them, each `node:port`.

        Raises:
            InvalidGraphError: TensorFlow refuses the nodes; the message is TensorFlow's. Or a
                function calls itself.
        """
        refuse_recursion(graph_def)
        api = self._api
        content = graph_def.SerializeToString()
        options = api.NewImportGraphDefOptions()
        buffer = api.NewBufferFromString(content, len(content))
        status = api.NewStatus()
        try:
            if prefix:
                api.ImportGraphDefOptionsSetPrefix(options, prefix.encode())
            for read, tensor in given.items():
                node, _, port = read.rpartition(":")
                place = self._place(tensor)
                api.ImportGraphDefOptionsAddInputMapping(options, node.encode(), int(port), place)
            api.GraphImportGraphDef(self._graph, buffer, options, status)
            if api.GetCode(status):
                raise import_error(api.Message(status).decode(errors="replace"))
        finally:
            api.DeleteStatus(status)
            api.DeleteBuffer(buffer)
            api.DeleteImportGraphDefOptions(options)

    def outputs(self, node: str) -> tuple[TensorProperties, ...] | None:
        """What is known of each output of a node, by port; `None` if there is no such node."""
        api = self._api
        operation = api.GraphOperationByName(self._graph, node.encode())
        if operation is None:
            return None
        count = api.OperationNumOutputs(operation)
        return tuple([self._properties(_Output(operation, port)) for port in range(count)])

    def _place(self, tensor: str) -> _Output:
        node, _, port = tensor.rpartition(":")
        operation = self._api.GraphOperationByName(self._graph, node.encode())
        if operation is None:
            raise import_error(f"there is no node {node!r}")
        return _Output(operation, int(port))

    def _properties(self, place: _Output) -> TensorProperties:
        api = self._api
        rank = api.GraphGetTensorNumDims(self._graph, place, self._status)
        shape: Shape = () if rank == 0 else None
        if rank > 0:
            sizes = (c_int64 * rank)()
            api.GraphGetTensorShape(self._graph, place, sizes, rank, self._status)
            shape = tuple(sizes)
        return tensor_properties(api.OperationOutputType(place), shape)


def import_error(reason: str) -> InvalidGraphError:
    """The error for TensorFlow's reason, in one line."""
    return InvalidGraphError(f"TensorFlow cannot import the graph: {' '.join(reason.split())}")


def _delete(graph: int, status: int) -> None:
    api = _load()
    api.DeleteGraph(graph)
    api.DeleteStatus(status)
