"""Values that TensorFlow keeps beside the kernels' own: those that shape inference asks for.

`ShapeRefiner` in tensorflow/core/common_runtime/shape_refiner.cc keeps every small value that a
shape function asked for as long as the graph lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.attributes import number_attribute
from memopt.graph.op_types import ENTERS, EXITS, MERGES, is_stateful, signature
from memopt.graph.traversal import Numbering

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.shapes.tensor_properties import TensorProperties

    Known = Callable[[Tensor], TensorProperties]

_LARGEST_BYTES = 2048
"""The value of what is larger is not kept (`kMaxTensorSize`)."""

_REDUCTIONS = ("All", "Any", "ArgMax", "ArgMin", "Max", "Mean", "Min", "Prod", "Sum")
_ASKED_VALUES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_REDUCTIONS, (1,)),
    "ConcatV2": (-1,),
    "ExpandDims": (1,),
    "GatherV2": (2,),
    "LinSpace": (2,),
    "MirrorPad": (1,),
    "OneHot": (1,),
    "Pad": (1,),
    "PadV2": (1,),
    "Range": (0, 1, 2),
    "ResizeBilinear": (1,),
    "ResizeNearestNeighbor": (1,),
    "Split": (0,),
    "SplitV": (1, 2),
    "StridedSlice": (1, 2, 3),
    "TopKV2": (1,),
    "Transpose": (1,),
    "UnsortedSegmentSum": (2,),
}
"""Ops by the input slots whose value their shape function asks for."""

_ASKED_SHAPES: dict[str, tuple[int, ...]] = {
    "BroadcastTo": (1,),
    "Conv2DBackpropFilter": (1,),
    "Conv2DBackpropInput": (0,),
    "Conv3DBackpropFilterV2": (1,),
    "Conv3DBackpropInputV2": (0,),
    "DepthwiseConv2dNativeBackpropFilter": (1,),
    "DepthwiseConv2dNativeBackpropInput": (0,),
    "Fill": (0,),
    "RandomStandardNormal": (0,),
    "RandomUniform": (0,),
    "Reshape": (1,),
    "Slice": (1, 2),
    "StatelessRandomNormalV2": (0,),
    "StatelessRandomUniform": (0,),
    "StatelessRandomUniformV2": (0,),
    "StatelessTruncatedNormalV2": (0,),
    "StridedSliceGrad": (0,),
    "Tile": (1,),
}
"""Ops by the input slots that their shape function asks for as shapes: also for parts of them."""

_NOT_EVALUATED = ENTERS | EXITS | MERGES | {"PlaceholderWithDefault"}


def kept_tensors(graph: Graph, known: Known, is_needed: Sequence[bool]) -> list[Tensor]:
    """The tensors whose value shape inference keeps, each once; linear in nodes and edges.

    Args:
        graph: The graph.
        known: What is known of a tensor.
        is_needed: By place of the node; those that are not are pruned before.
    """
    values = _Values(graph, known)
    for place, node in enumerate(Numbering.of(graph).nodes):
        if is_needed[place]:
            values.ask(node)
    return [tensor for tensor in values.found if 0 < known(tensor).least_bytes <= _LARGEST_BYTES]


class _Values:
    """The values that shape functions ask for and get.

    Attributes:
        found: The tensors, in the order in which they are asked for.
    """

    def __init__(self, graph: Graph, known: Known) -> None:
        self.found: dict[Tensor, None] = {}
        self._taken_apart: set[Tensor] = set()
        self._known = known
        self._numbering = Numbering.of(graph)
        self._is_evaluated = [False] * len(self._numbering.nodes)
        for place in self._numbering.order:
            node = self._numbering.nodes[place]
            if node.op == "Const":
                self._is_evaluated[place] = True
            elif all(self._has_value(tensor) for tensor in node.inputs):
                self._is_evaluated[place] = _is_supported(node, graph)

    def ask(self, node: Node) -> None:
        """What the shape function of a node asks for."""
        inputs = node.inputs
        for slot in _ASKED_VALUES.get(node.op, ()):
            if slot < len(inputs):
                self._evaluate(inputs[slot])
        for slot in _ASKED_SHAPES.get(node.op, ()):
            if slot < len(inputs):
                self._evaluate(inputs[slot])
                self._evaluate_parts(inputs[slot])

    def _evaluate(self, tensor: Tensor) -> None:
        if self._has_value(tensor):
            self.found[tensor] = None

    def _evaluate_parts(self, shape: Tensor) -> None:
        """A shape is known in part by what it is put together from (`ConstantPartialShape`)."""
        pending = [shape]
        while pending:
            tensor = pending.pop()
            node = tensor.node
            if tensor in self._taken_apart:
                continue
            self._taken_apart.add(tensor)
            if node.op == "Pack":
                for size in node.inputs:
                    self._evaluate(size)
            elif node.op == "ConcatV2":
                pending += node.inputs[-2::-1]
            elif node.op == "StridedSlice" and _is_range(node):
                # The bounds are asked for by the slice itself.
                pending.append(node.inputs[0])
            elif node.op not in ("Shape", "ShapeN", "StridedSlice", "VariableShape"):
                self._evaluate(tensor)

    def _has_value(self, tensor: Tensor) -> bool:
        """Whether a tensor depends on constants and known shapes alone."""
        return self._is_evaluated[self._numbering.place(tensor.node)] or self._is_size(tensor)

    def _is_size(self, tensor: Tensor) -> bool:
        """Whether it tells known sizes of another (`TryInferFromShapes`)."""
        node = tensor.node
        if node.op in ("Shape", "Size"):
            return self._known(node.inputs[0]).is_known
        if node.op == "Rank":
            return self._known(node.inputs[0]).shape is not None
        return False


def _is_supported(node: Node, graph: Graph) -> bool:
    """Whether a node is run to know its value (`IsSupportedForEvaluation`)."""
    if not node.inputs or node.op in _NOT_EVALUATED or is_stateful(node, graph.library):
        return False
    known = signature(node.op)
    return known is not None and not known.function_attributes


def _is_range(node: Node) -> bool:
    """Whether a slice leaves a list a list: no index, no mask but for open ends."""
    masks = ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    return not any(number_attribute(node, mask) for mask in masks)
