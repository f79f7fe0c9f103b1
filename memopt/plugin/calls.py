"""The call for which TensorFlow hands over a graph: what it gives in shapes the graph leaves open.

Keras' `fit` traces its step for batches of any size, and Grappler is told no more. But the call
waits for memopt: its Python frames stand above, with the arguments and what feeds its iterator.
What is found there holds for this call, and tells sizes alone: see `GrapplerItem.assumed_shapes`.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memopt.graph.functiondef import ARGUMENT
from memopt.graph.op_types import (
    DT_RESOURCE,
    DT_STRING,
    DT_VARIANT,
    MERGES,
    OPTIONALS,
    SWITCHES,
)
from memopt.plugin.batches import batch_size_of, is_epoch_iterator, is_iterator
from memopt.shapes.assumed import declared_shapes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from types import FrameType

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.shapes.properties import Properties
    from memopt.shapes.tensor_properties import Shape, TensorProperties

    Shapes = Mapping[str, tuple[Shape, ...]]

USUAL_BATCH = 32
"""Samples of a batch of which nothing is known: Keras' own default."""
USUAL_SIZE = 64
"""What any other dimension has of which nothing is known."""
_MOST_FRAMES = 500
_OPENS = "OptionalGetValue"
_OF_DATA_SETS = frozenset({"IteratorGetNext", "IteratorGetNextSync", _OPENS})
"""Ops that give elements of data sets, of which the first dimension is the batch."""
_INPUTS = _OF_DATA_SETS | {ARGUMENT, "Placeholder"}
_OF_ANY_SIZE = _INPUTS | {"RaggedTensorToTensor"}
"""What has sizes that no graph tells: what comes in, and what a step pads to its longest row, as
of texts in words."""
_HANDED_ON = MERGES | SWITCHES | {"Identity"}
_NONE: Shapes = MappingProxyType({})
_WITHOUT_SIZES = frozenset({DT_RESOURCE, DT_VARIANT, DT_STRING})


def find_open_input(graph_def: GraphDef, properties: Properties, shapes: Shapes = _NONE) -> str:
    """The name of what comes in and is of a size that nobody knows; "" where there is none.

    Args:
        graph_def: What TensorFlow hands over.
        properties: What holds for every call.
        shapes: By node: what its outputs have in this call.
    """
    for node_def in _incoming(graph_def, _OF_ANY_SIZE):
        outputs = properties.outputs(node_def.name)
        for tensor, shape in zip(outputs, _shapes_of(node_def.name, outputs, shapes), strict=True):
            is_open = tensor.size_bytes is None and (shape is None or -1 in shape)
            if is_open and tensor.dtype not in _WITHOUT_SIZES:
                return str(node_def.name)
    return ""


def find_shapes(graph_def: GraphDef, properties: Properties) -> Shapes:
    """By node: the shapes of its outputs in the call that waits, where the graph leaves them open.

    Args:
        graph_def: What TensorFlow hands over.
        properties: What holds for every call.
    """
    open_nodes = [
        node_def
        for node_def in _incoming(graph_def, _INPUTS)
        if any(tensor.size_bytes is None for tensor in properties.outputs(node_def.name))
    ]
    if not open_nodes:
        return {}
    found = {}
    # What the frames of others hold may be anything.
    with suppress(Exception):
        call = _Call(frames_above(), graph_def)
        for node_def in open_nodes:
            shapes = call.shapes(node_def)
            known = properties.outputs(node_def.name)
            if shapes and all(map(_fits, shapes, (tensor.shape for tensor in known))):
                found[node_def.name] = shapes
    return found


def usual_shapes(
    graph_def: GraphDef, properties: Properties, shapes: Shapes = _NONE
) -> dict[str, tuple[Shape, ...]]:
    """By node: the shapes of what is of a size that nobody knows, as a usual call has them.

    Of one sample each, weights would outweigh all results, and a share of a step would be planned
    on them alone. The batch is as large as that of all else whose size the call tells.

    Args:
        graph_def: What TensorFlow hands over.
        properties: What holds for every call.
        shapes: By node: what its outputs have in this call.
    """
    batches = {shape[0] for given in shapes.values() for shape in given if shape}
    batch = batches.pop() if len(batches) == 1 else USUAL_BATCH
    found = {}
    for node_def in _incoming(graph_def, _OF_ANY_SIZE):
        known = _shapes_of(node_def.name, properties.outputs(node_def.name), shapes)
        is_open = any(shape is not None and -1 in shape for shape in known)
        # What has no rank has no usual shape, and a node is known as a whole or not at all.
        if is_open and None not in known:
            found[node_def.name] = tuple(_usual(shape, batch) for shape in known)
    return found


def _incoming(graph_def: GraphDef, ops: Collection[str]) -> Iterator[NodeDef]:
    """What gives what comes into a graph; not what opens an optional that a branch of it made."""
    by_name: dict[str, NodeDef] = {}
    for node_def in graph_def.node:
        if node_def.op == _OPENS and not by_name:
            by_name = {each.name: each for each in graph_def.node}
        if node_def.op in ops and not (node_def.op == _OPENS and _is_made(node_def, by_name)):
            yield node_def


def _is_made(opened: NodeDef, by_name: Mapping[str, NodeDef]) -> bool:
    """Whether what opens an optional can only be given one that the graph makes."""
    pending, seen = list(opened.input[:1]), set()
    while pending:
        name = pending.pop().removeprefix("^").partition(":")[0]
        node_def = by_name.get(name)
        if node_def is None:
            return False
        if name in seen or node_def.op in OPTIONALS:
            continue
        seen.add(name)
        if node_def.op not in _HANDED_ON:
            return False
        pending += node_def.input[: None if node_def.op in MERGES else 1]
    return True


def _shapes_of(node: str, outputs: Sequence[TensorProperties], shapes: Shapes) -> tuple[Shape, ...]:
    """What the outputs of a node have in this call, as far as that is known."""
    given = shapes.get(node, ())
    return given if len(given) == len(outputs) else tuple(tensor.shape for tensor in outputs)


def _usual(shape: Shape, batch: int) -> Shape:
    if shape is None or -1 not in shape:
        return shape
    sizes = (batch, *[USUAL_SIZE] * len(shape))
    return tuple(
        usual if known == -1 else known for known, usual in zip(shape, sizes, strict=False)
    )


def data_may_end() -> bool:
    """Whether an iterator that the call is given may come to its end in a step.

    Keras' loops end by count where the number of batches is known.
    """
    with suppress(Exception):
        for frame in frames_above():
            for value in _candidates(frame):
                if is_epoch_iterator(value):
                    # Its property tells what the caller asks for.
                    return value._num_batches is None  # noqa: SLF001
    return True


def _fits(shape: Shape, known: Shape) -> bool:
    """Whether a tensor of which something is known may have a shape."""
    if shape is None or known is None:
        return True
    sizes = zip(shape, known, strict=False)
    return len(shape) == len(known) and all(-1 in pair or len({*pair}) == 1 for pair in sizes)


def frames_above() -> list[FrameType]:
    """The frames above, the nearest first."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to them
    found: list[FrameType] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        found.append(frame)
        frame = frame.f_back
    return found


class _Call:
    """What Python frames tell of the call in which a graph is to run."""

    def __init__(self, frames: Sequence[FrameType], graph_def: GraphDef) -> None:
        self._arguments = _arguments(frames, graph_def)
        self._fed = _fed(frames)
        self._batch_size = find_batch_size(frames)

    def shapes(self, node_def: NodeDef) -> tuple[Shape, ...]:
        """What a node gives in this call; nothing where that is not known."""
        if node_def.op == ARGUMENT:
            return _shape_of(self._arguments.get(node_def.attr["index"].i))
        if node_def.op == "Placeholder":
            return _shape_of(self._fed.get(node_def.name))
        declared = declared_shapes(node_def)
        if self._batch_size is None or not declared:
            return ()
        return tuple(with_batch(shape, self._batch_size) for shape in declared)


def with_batch(shape: Shape, size: int) -> Shape:
    """A shape with a size for the first dimension, if that is open."""
    return (size, *shape[1:]) if shape and shape[0] == -1 else shape


def _arguments(frames: Sequence[FrameType], graph_def: GraphDef) -> dict[int, Any]:
    """What the function is called with, by position, if the graph is that of the call."""
    for frame in frames:
        if frame.f_code.co_name == "call_function" and "tensor_inputs" in frame.f_locals:
            given = dict(enumerate(frame.f_locals["tensor_inputs"]))
            types = {
                n.attr["index"].i: n.attr["T"].type for n in graph_def.node if n.op == ARGUMENT
            }
            is_its_own = all(
                position in given and given[position].dtype.as_datatype_enum == dtype
                for position, dtype in types.items()
            )
            return given if is_its_own else {}
    return {}


def _fed(frames: Sequence[FrameType]) -> dict[str, Any]:
    """What a session is fed, by the name of the node."""
    for frame in frames:
        if frame.f_code.co_name == "_run" and "feed_dict_tensor" in frame.f_locals:
            given = frame.f_locals["feed_dict_tensor"].items()
            return {reference.deref().op.name: value for reference, value in given}
    return {}


def find_batch_size(frames: Sequence[FrameType]) -> int | None:
    """How many samples an iterator gives at once that a call is given: the nearest that tells."""
    for frame in frames:
        for value in _candidates(frame):
            size = batch_size_of(value)
            if size is not None:
                return size
    return None


def _candidates(frame: FrameType) -> Iterator[Any]:
    """What may be an iterator among the locals of Keras' loops and of calls of functions."""
    # To read the locals of a frame keeps them alive as long as it runs: no others are read.
    names = frame.f_code.co_varnames
    values: list[Any] = []
    if "epoch_iterator" in names:
        values.append(frame.f_locals.get("epoch_iterator"))
    elif frame.f_code.co_name == "__call__" and {"args", "kwds"} <= {*names}:
        local = frame.f_locals
        values += [*local.get("args", ()), *dict(local.get("kwds", {})).values()]
    yield from (value for value in values if is_iterator(value) or is_epoch_iterator(value))


def _shape_of(value: Any) -> tuple[Shape, ...]:
    """The shape of what a node gives, its only output; nothing where that is not known."""
    shape = getattr(value, "shape", None)
    sizes = None if shape is None else tuple(shape)
    if sizes is None or None in sizes:
        return ()
    return (tuple(map(int, sizes)),)
