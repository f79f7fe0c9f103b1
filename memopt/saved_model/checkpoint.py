"""Values of a SavedModel's variables, read from its files without loading the model."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.errors import FileError
from memopt.saved_model.files import VARIABLES_FOLDER

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import numpy.typing as npt
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

    from memopt.saved_model.functions import ModelFunction

    Array = npt.NDArray[Any]

_OBJECTS, _VALUE = "_CHECKPOINTABLE_OBJECT_GRAPH", "VARIABLE_VALUE"
_HANDLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})


def variable_values(
    path: str | os.PathLike[str], meta_graph: MetaGraphDef, one: ModelFunction
) -> dict[str, Array]:
    """Values of the variables that a function uses, by name of the argument that stands for each.

    Of a use of the main graph, by name of the variable's node. What the files do not hold is left
    out.

    Args:
        path: The folder of the SavedModel.
        meta_graph: The graph that the function belongs to.
        one: The function.

    Raises:
        FileError: There are files, and they cannot be read.
    """
    import tensorflow as tf

    prefix = Path(path) / VARIABLES_FOLDER / "variables"
    if not prefix.with_suffix(".index").exists():
        return {}
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        keys = _keys_in_graph(meta_graph) if one.fetch else _keys(reader, meta_graph, one)
        return {
            name: reader.get_tensor(key) for name, key in keys.items() if reader.has_tensor(key)
        }
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise FileError(f"{prefix}: cannot be read: {reason}") from error


def _keys(reader: Any, meta_graph: MetaGraphDef, one: ModelFunction) -> dict[str, str]:
    """By name of an argument the name of the variable in the files.

    Objects are found by the way to them from the root, as TensorFlow's loader does.
    """
    from google.protobuf import message as protobuf
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    if not reader.has_tensor(_OBJECTS):
        return {}
    saved: Any = trackable_object_graph_pb2.TrackableObjectGraph()
    try:
        saved.ParseFromString(reader.get_tensor(_OBJECTS))
    except protobuf.DecodeError:
        return {}
    places = _places(meta_graph.object_graph_def.nodes, saved.nodes)
    return {
        name: attribute.checkpoint_key
        for name, number in one.objects.items()
        if number in places
        for attribute in saved.nodes[places[number]].attributes
        if attribute.name == _VALUE
    }


def _places(objects: Sequence[Any], saved: Sequence[Any]) -> dict[int, int]:
    """By number of an object of the model its number among those of the files."""
    places = {0: 0} if objects and saved else {}
    pending = deque(places)
    while pending:
        number = pending.popleft()
        there = {child.local_name: child.node_id for child in saved[places[number]].children}
        for child in objects[number].children:
            place = there.get(child.local_name, len(saved))
            is_there = 0 <= child.node_id < len(objects) and 0 <= place < len(saved)
            if is_there and child.node_id not in places:
                places[child.node_id] = place
                pending.append(child.node_id)
    return places


def _keys_in_graph(meta_graph: MetaGraphDef) -> dict[str, str]:
    return {node.name: node.name for node in meta_graph.graph_def.node if node.op in _HANDLES}
