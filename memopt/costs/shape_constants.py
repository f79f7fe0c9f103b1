"""Constants that TensorFlow keeps a second time: those that shape inference asks for the value of.

`ShapeRefiner` in tensorflow/core/common_runtime/shape_refiner.cc keeps the value of every small
constant that a shape function asked for as long as the graph lives, beside the kernel's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.graph.graph import Graph, Node

_CONSTANT = "Const"
_LARGEST_BYTES = 2048
"""The value of what is larger is not kept (`kMaxTensorSize`)."""

_AXES = ("All", "Any", "ArgMax", "ArgMin", "Max", "Mean", "Min", "Prod", "Sum")
_ASKED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_AXES, (1,)),
    "BroadcastTo": (1,),
    "ConcatV2": (-1,),
    "Conv2DBackpropFilter": (1,),
    "Conv2DBackpropInput": (0,),
    "Conv3DBackpropFilterV2": (1,),
    "Conv3DBackpropInputV2": (0,),
    "DepthwiseConv2dNativeBackpropFilter": (1,),
    "DepthwiseConv2dNativeBackpropInput": (0,),
    "ExpandDims": (1,),
    "Fill": (0,),
    "GatherV2": (2,),
    "LinSpace": (2,),
    "MirrorPad": (1,),
    "OneHot": (1,),
    "Pad": (1,),
    "PadV2": (1,),
    "RandomStandardNormal": (0,),
    "RandomUniform": (0,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "ResizeBilinear": (1,),
    "ResizeNearestNeighbor": (1,),
    "Slice": (1, 2),
    "Split": (0,),
    "SplitV": (1, 2),
    "StatelessRandomNormalV2": (0,),
    "StatelessRandomUniform": (0,),
    "StatelessRandomUniformV2": (0,),
    "StatelessTruncatedNormalV2": (0,),
    "StridedSlice": (1, 2, 3),
    "StridedSliceGrad": (0,),
    "Tile": (1,),
    "TopKV2": (1,),
    "Transpose": (1,),
    "UnsortedSegmentSum": (2,),
}
"""Ops by the input slots whose value their shape function asks for."""


def asked_constants(graph: Graph) -> list[Node]:
    """The constants of a graph that the shape functions of their readers ask for, each once."""
    found: dict[Node, None] = {}
    for node in graph:
        for constant in _asked_by(node):
            found[constant] = None
    return list(found)


def is_kept(size_bytes: int) -> bool:
    """Whether a value of this size that was asked for is kept."""
    return 0 < size_bytes <= _LARGEST_BYTES


def _asked_by(node: Node) -> Iterator[Node]:
    inputs = node.inputs
    for slot in _ASKED.get(node.op, ()):
        if slot < len(inputs) and inputs[slot].node.op == _CONSTANT:
            yield inputs[slot].node
