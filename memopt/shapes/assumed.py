"""Shapes that a graph leaves open, as one call gives them: for sizes, not for what is rewritten."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memopt.graph import op_types
from memopt.graph.copy_names import take_name
from memopt.graph.functiondef import ARGUMENT
from memopt.shapes.tensor_properties import set_shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto

    from memopt.item import GrapplerItem
    from memopt.shapes.tensor_properties import Shape

    Shapes = Mapping[str, Sequence[Shape]]
    """By node: the shapes of its outputs."""

_OPEN = -1
_GATHERS = "GatherV2"
_AXIS = 2
"""Its input that is one."""
_TYPES = ("dtype", "T", "shape_type", "element_dtype")
"""The attributes by which operations say of what type their output is."""
_DECLARED = {ARGUMENT: "_output_shapes"}
_OUTPUT_SHAPES = "output_shapes"
"""The attribute by which the shape function of what takes elements out of data sets goes."""
_UNFUSED = {
    "_FusedBatchNormEx": "FusedBatchNormV3",
    "_FusedConv2D": "Conv2D",
    "_FusedConv3D": "Conv3D",
    "_FusedDepthwiseConv2dNative": "DepthwiseConv2dNative",
    "_FusedMatMul": "MatMul",
}
"""What gives tensors of the same shapes as an op that Grappler fuses, and is registered for all
types: TensorFlow runs a fused convolution of bfloat16, and does not import one."""
_ELEMENT_SHAPES = {
    "EmptyTensorList": 0,
    "TensorListReserve": 0,
    "TensorListFromTensor": 1,
    "TensorListStack": 1,
    "TensorListGetItem": 2,
    "TensorListPopBack": 1,
}
"""Which input of operations on lists is the shape of an element."""


def with_sizes_of(item: GrapplerItem, inputs: Mapping[str, npt.NDArray[Any]]) -> GrapplerItem:
    """An item, of which is assumed what inputs tell that its graph leaves open.

    Args:
        item: The item.
        inputs: Values of what it is fed, by tensor name.
    """
    nodes = {node_def.name: node_def for node_def in item.graph_def.node}
    shapes: dict[str, tuple[Shape, ...]] = {}
    for name, value in inputs.items():
        node = _node_of(name)
        declared = declared_shapes(nodes[node])
        if declared and (declared[0] is None or _OPEN in declared[0]):
            shapes[node] = (value.shape,)
    return replace(item, assumed_shapes={**item.assumed_shapes, **shapes})


def open_axes(graph_def: GraphDef) -> dict[str, tuple[Shape, ...]]:
    """The arguments that say along which dimension something is gathered, and their shapes.

    Functions capture the axis of a permutation that was made outside of them. No call's shapes tell
    its value, and behind it no size is known.
    """
    axes = {_axis_of(node_def) for node_def in graph_def.node}
    return {n.name: ((),) for n in graph_def.node if n.op == ARGUMENT and n.name in axes}


def _axis_of(node_def: NodeDef) -> str:
    """What says along which dimension it gathers; "" for what does not gather."""
    gathers = node_def.op == _GATHERS and len(node_def.input) > _AXIS
    return _node_of(node_def.input[_AXIS]) if gathers else ""


def assuming(graph_def: GraphDef, shapes: Shapes) -> GraphDef:
    """A graph in which nodes have shapes: a new message, for inference alone.

    Lists whose elements have one dimension open have the batch there, if that is what is assumed,
    as if the graph had been made for batches of that size. Where there may be no data, there are.
    What is gathered along an open axis is gathered along the last one, where features are.

    Args:
        graph_def: The graph; it is not changed.
        shapes: What is assumed; what declares no shapes itself is replaced, if it has one output.
    """
    assumed = type(graph_def)()
    assumed.CopyFrom(graph_def)
    batch = _batch(graph_def, shapes)
    for node_def in assumed.node:
        # What Grappler has taken out may still be named as what something lies beside.
        node_def.attr.pop(op_types.COLOCATED, None)
        _unfuse(node_def)
        if node_def.name in shapes:
            _declare(node_def, shapes[node_def.name])
        elif node_def.op in op_types.MERGES:
            given = next((name for name in node_def.input if _node_of(name) in shapes), None)
            if given is not None:
                node_def.input[:] = [given] * len(node_def.input)
    _give_axes(assumed.node, shapes)
    if batch is not None:
        _fill_elements(assumed.node, batch)
        for function in assumed.library.function:
            _fill_elements(function.node_def, batch)
    return assumed


def declared_shapes(node_def: NodeDef) -> list[Shape]:
    """The shapes that a node itself declares for its outputs; none for other operations."""
    if node_def.op == "Placeholder":
        return [_plain(node_def.attr["shape"].shape)] if "shape" in node_def.attr else []
    attribute = _DECLARED.get(node_def.op, _OUTPUT_SHAPES)
    if attribute not in node_def.attr:
        return []
    return [_plain(shape) for shape in node_def.attr[attribute].list.shape]


def _batch(graph_def: GraphDef, shapes: Shapes) -> int | None:
    """What stands for the first dimension wherever that is open, if it is the same everywhere."""
    sizes = set()
    for node_def in graph_def.node:
        if node_def.name not in shapes:
            continue
        for open_shape, shape in zip(
            declared_shapes(node_def), shapes[node_def.name], strict=False
        ):
            if open_shape is None or shape is None:
                return None
            if open_shape[:1] == (_OPEN,):
                sizes.add(shape[0])
    return sizes.pop() if len(sizes) == 1 else None


def _give_axes(nodes: RepeatedCompositeFieldContainer[NodeDef], shapes: Shapes) -> None:
    """Let axes of which only the shape is assumed be the last ones, for their gradients too."""
    from tensorflow.python.framework import tensor_util

    scalars = {name for name, outputs in shapes.items() if tuple(outputs) == ((),)}
    axes = scalars & {_axis_of(node_def) for node_def in nodes}
    if not axes:
        return
    names = {node_def.name for node_def in nodes}
    given: dict[str, str] = {}
    for axis in [node_def for node_def in nodes if node_def.name in axes]:
        dtype = _type_of(axis)
        added = nodes.add(op="Const", name=take_name(f"{axis.name}/last", names))
        added.attr["dtype"].type = dtype
        added.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(-1, dtype))
        given[axis.name] = added.name
    for node_def in nodes:
        node_def.input[:] = [given.get(name.partition(":")[0], name) for name in node_def.input]


def _fill_elements(nodes: RepeatedCompositeFieldContainer[NodeDef], batch: int) -> None:
    """Let the elements of lists have the batch where one dimension is open.

    Args:
        nodes: Of a graph or of a function's body.
        batch: The size.
    """
    from tensorflow.python.framework import tensor_util

    constants = {node_def.name: node_def for node_def in nodes if node_def.op == "Const"}
    names = {node_def.name for node_def in nodes}
    filled: dict[str, str] = {}
    for node_def in list(nodes):
        slot = _ELEMENT_SHAPES.get(node_def.op, len(node_def.input))
        source = _node_of(node_def.input[slot]) if slot < len(node_def.input) else ""
        if source not in constants:
            continue
        if source not in filled:
            shape = tensor_util.MakeNdarray(constants[source].attr["value"].tensor)
            if shape.ndim != 1 or (shape == _OPEN).sum() != 1:
                continue
            added = nodes.add()
            added.CopyFrom(constants[source])
            added.name = filled[source] = take_name(f"{source}/filled", names)
            shape = shape.copy()
            shape[shape == _OPEN] = batch
            added.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(shape))
        # In a body tensors are spelled with the name of the output.
        node_def.input[slot] = node_def.input[slot].replace(source, filled[source], 1)


def _unfuse(node_def: NodeDef) -> None:
    """Let a node that Grappler has fused be what it was fused of first."""
    from tensorflow.python.framework import op_def_registry

    plain = _UNFUSED.get(node_def.op)
    if plain is None:
        return
    op_def = op_def_registry.get(plain)
    known = {attr.name for attr in op_def.attr}
    node_def.op = plain
    for name in [name for name in node_def.attr if name not in known and name[0] != "_"]:
        del node_def.attr[name]
    data = [name for name in node_def.input if not name.startswith("^")]
    controls = node_def.input[len(data) :]
    node_def.input[:] = [*data[: len(op_def.input_arg)], *controls]


def _declare(node_def: NodeDef, shapes: Sequence[Shape]) -> None:
    from tensorflow.core.framework import tensor_shape_pb2

    protos = [tensor_shape_pb2.TensorShapeProto() for _ in shapes]
    for proto, shape in zip(protos, shapes, strict=True):
        set_shape(proto, shape)
    if node_def.op == ARGUMENT or _OUTPUT_SHAPES in node_def.attr:
        value = node_def.attr[_DECLARED.get(node_def.op, _OUTPUT_SHAPES)]
        value.Clear()
        value.list.shape.extend(protos)
    else:
        _stand_in(node_def, protos[0])


def _stand_in(node_def: NodeDef, shape: TensorShapeProto) -> None:
    """Let a node be something of a shape, whatever it is made of."""
    dtype = _type_of(node_def)
    node_def.op = "Placeholder"
    node_def.input[:] = [name for name in node_def.input if name.startswith("^")]
    node_def.attr.clear()
    node_def.attr["dtype"].type = dtype
    node_def.attr["shape"].shape.CopyFrom(shape)


def _type_of(node_def: NodeDef) -> int:
    attribute = next(name for name in _TYPES if name in node_def.attr)
    dtype: int = node_def.attr[attribute].type
    return dtype


def _node_of(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]


def _plain(proto: TensorShapeProto) -> Shape:
    return None if proto.unknown_rank else tuple(dim.size for dim in proto.dim)
