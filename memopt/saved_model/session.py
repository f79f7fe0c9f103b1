"""A SavedModel in TensorFlow's C++ loader and session, through the C API: no graph of Python's."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.errors import ExecutionError
from memopt.runtime.step_graph import needed_nodes
from memopt.saved_model.files import read_saved_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

    from memopt.runtime.replay import Buffer
    from memopt.saved_model.job import Job

    Array = npt.NDArray[Any]

_POINTER = ctypes.c_void_p
_LIBRARIES = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
_READ = "ReadVariableOp"
_REFERENCES = frozenset({"Variable", "VariableV2"})


class _Output(ctypes.Structure):
    """`TF_Output`: an operation and which of its outputs."""

    _fields_ = (("operation", _POINTER), ("index", ctypes.c_int))


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    import tensorflow as tf

    folder = Path(tf.__file__).parent
    try:
        return tuple(ctypes.CDLL(str(folder / n), mode=ctypes.RTLD_GLOBAL) for n in _LIBRARIES)
    except OSError as error:
        raise ExecutionError(f"TensorFlow's C API cannot be loaded: {error}") from error


def _function(name: str, result: Any, *arguments: Any) -> Any:
    for library in _libraries():
        found = getattr(library, name, None)
        if found is not None:
            found.restype, found.argtypes = result, arguments
            return found
    raise ExecutionError(f"this TensorFlow has no {name}")


class LoadedSession:
    """A signature in a session that the C++ loader made.

    Args:
        job: Which.
        inputs: Values by name of the signature's input.
        config: How the session runs.

    Raises:
        ExecutionError: TensorFlow refuses to load or to run it, or a type of it cannot be passed.
    """

    outside: Sequence[Buffer] = ()

    def __init__(self, job: Job, inputs: Mapping[str, Array], config: ConfigProto) -> None:
        meta_graph = _graph_with(job)
        self._status = _function("TF_NewStatus", _POINTER)()
        self._graph = _function("TF_NewGraph", _POINTER)()
        self._session = self._load(job, config)
        signature = meta_graph.signature_def[job.signature]
        self._inputs = dict(signature.inputs)
        self.feed(inputs)
        self._outputs = [signature.outputs[name] for name in job.names]
        self._reads = _reads_of_variables(meta_graph, job.signature)

    def feed(self, inputs: Mapping[str, Array]) -> None:
        """Have steps from now on run with values of the inputs, by name of the signature's."""
        self._fed = [self._output(self._inputs[name].name) for name in inputs]
        self._values = [
            _as_tensor(self._inputs[name].dtype, value) for name, value in inputs.items()
        ]

    def step(self) -> Sequence[Any]:
        """Run once."""
        names = [output.name for output in self._outputs]
        outputs: Sequence[Any] = self._run(names, self._fed, self._values)
        return outputs

    def variables(self) -> dict[str, Array]:
        """Copies of the values of the variables that the signature uses, by node name."""
        values = self._run([f"{read}:0" for read in self._reads.values()], [], [])
        return dict(zip(self._reads, values, strict=True))

    def _load(self, job: Job, config: ConfigProto) -> Any:
        options = _function("TF_NewSessionOptions", _POINTER)()
        data = config.SerializeToString()
        set_config = _function("TF_SetConfig", None, *[_POINTER] * 2, ctypes.c_size_t, _POINTER)
        set_config(options, data, len(data), self._status)
        self._check()
        tags = (ctypes.c_char_p * len(job.tags))(*(tag.encode() for tag in job.tags))
        arguments = (_POINTER, _POINTER, ctypes.c_char_p, _POINTER, ctypes.c_int, *[_POINTER] * 3)
        load = _function("TF_LoadSessionFromSavedModel", _POINTER, *arguments)
        path = job.path.encode()
        session = load(options, None, path, tags, len(tags), self._graph, None, self._status)
        self._check()
        return session

    def _output(self, name: str) -> _Output:
        node, _, port = name.partition(":")
        by_name = _function("TF_GraphOperationByName", _POINTER, _POINTER, ctypes.c_char_p)
        operation = by_name(self._graph, node.encode())
        if not operation:
            raise ExecutionError(f"the session's graph has no operation {node!r}")
        return _Output(operation, int(port or 0))

    def _run(self, names: Sequence[str], fed: Sequence[_Output], values: Sequence[Any]) -> Any:
        pointers, count = (_POINTER, _POINTER), ctypes.c_int
        arguments = (_POINTER, *pointers, _POINTER, count, *pointers, count, _POINTER, count)
        run = _function("TF_SessionRun", None, *arguments, *pointers)
        outputs = (_Output * len(names))(*map(self._output, names))
        got = (_POINTER * len(names))()
        given = ((_Output * len(fed))(*fed), (_POINTER * len(values))(*values), len(fed))
        called = (*given, outputs, got, len(names))
        run(self._session, None, *called, None, 0, None, self._status)
        self._check()
        return [_as_array(tensor) for tensor in got]

    def _check(self) -> None:
        if _function("TF_GetCode", ctypes.c_int, _POINTER)(self._status):
            message = _function("TF_Message", ctypes.c_char_p, _POINTER)(self._status)
            raise ExecutionError(f"the C++ loader: {message.decode(errors='replace')}")


def _graph_with(job: Job) -> MetaGraphDef:
    for meta_graph in read_saved_model(job.path).meta_graphs:
        if set(meta_graph.meta_info_def.tags) == set(job.tags):
            return meta_graph
    raise ExecutionError(f"{job.path}: has no graph with the tags {', '.join(job.tags)}")


def _reads_of_variables(meta_graph: MetaGraphDef, key: str) -> dict[str, str]:
    """By name of each variable that a signature uses an operation that reads it.

    Others may not have a value: Keras leaves handles behind that nothing restores. Variables of
    TensorFlow 1 that are references are read by their own operation.
    """
    outputs = (output.name for output in meta_graph.signature_def[key].outputs.values())
    used = needed_nodes(meta_graph.graph_def, [name for name in outputs if name], ())
    reads: dict[str, str] = {}
    for node in meta_graph.graph_def.node:
        if node.op in _REFERENCES and node.name in used:
            reads[node.name] = node.name
        # What reads as soon as the session asks, and waits for nothing that trains.
        if node.op == _READ and not _waits(node):
            handle = node.input[0].partition(":")[0]
            if handle in used:
                reads.setdefault(handle, node.name)
    return {name: reads[name] for name in sorted(reads)}


def _waits(read: NodeDef) -> bool:
    return any(source.startswith("^") for source in read.input)


def _as_tensor(dtype: int, value: Array) -> Any:
    """A tensor of the C API with a value of its own.

    Raises:
        ExecutionError: It is a text, whose layout in memory is TensorFlow's own.
    """
    import numpy as np

    if value.dtype.hasobject:
        raise ExecutionError("a text cannot be given to a session of the C API")
    whole = np.ascontiguousarray(value)
    dimensions = (ctypes.c_int64 * whole.ndim)(*whole.shape)
    types = (ctypes.c_int, _POINTER, ctypes.c_int, ctypes.c_size_t)
    allocate = _function("TF_AllocateTensor", _POINTER, *types)
    tensor = allocate(dtype, dimensions, value.ndim, whole.nbytes)
    ctypes.memmove(
        _function("TF_TensorData", _POINTER, _POINTER)(tensor), whole.ctypes.data, whole.nbytes
    )
    return tensor


def _as_array(tensor: Any) -> Array:
    """A copy of a tensor of the C API, which is deleted."""
    import numpy as np
    import tensorflow as tf

    dtype = tf.dtypes.as_dtype(_function("TF_TensorType", ctypes.c_int, _POINTER)(tensor))
    if dtype == tf.string:
        raise ExecutionError("a text cannot be read from a session of the C API")
    size_of = _function("TF_Dim", ctypes.c_int64, _POINTER, ctypes.c_int)
    rank = _function("TF_NumDims", ctypes.c_int, _POINTER)(tensor)
    size_bytes = _function("TF_TensorByteSize", ctypes.c_size_t, _POINTER)(tensor)
    data = ctypes.string_at(_function("TF_TensorData", _POINTER, _POINTER)(tensor), size_bytes)
    array: Array = np.frombuffer(data, dtype.as_numpy_dtype)
    array = array.reshape([size_of(tensor, axis) for axis in range(rank)])
    _function("TF_DeleteTensor", None, _POINTER)(tensor)
    return array
