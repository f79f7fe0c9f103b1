"""Which input rows each output row of an operation depends on: what can run part by part.

An operation can be split along dimension 0 if its rows depend on the same rows of some inputs and
on all of the others. Nothing that sums over the rows is here, nothing random or with a state.
"""

from __future__ import annotations

from enum import Enum, auto
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memopt.graph.attributes import number_attribute

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memopt.graph.graph import Node

    Shape = tuple[int, ...]
    Numbers = Callable[[int], tuple[int, ...] | None]


class Role(Enum):
    """What a part of an operation needs of an input."""

    ROWS = auto()
    """The part's rows of it."""
    WHOLE = auto()
    """All of it."""
    SHAPE = auto()
    """It is a shape whose first number is that of the part's rows."""


class Shapes(NamedTuple):
    """What a rule goes by.

    Attributes:
        inputs: The shapes of the inputs, all known.
        outputs: Those of the outputs; each has a first dimension.
        numbers: What an input that is a small constant holds, by slot; `None` for others.
    """

    inputs: Sequence[Shape]
    outputs: Sequence[Shape]
    numbers: Numbers


Roles = tuple[Role, ...]
_ROWS, _WHOLE, _SHAPE = Role.ROWS, Role.WHOLE, Role.SHAPE


def find_roles(node: Node, shapes: Shapes) -> Roles | None:
    """What a part of an operation needs of each input; `None` if it cannot be split.

    Args:
        node: The operation.
        shapes: Of its tensors.
    """
    rule = _RULES.get(node.op)
    if rule is None or not shapes.outputs or not all(shapes.outputs):
        return None
    roles = rule(node, shapes)
    if roles is None or len(roles) != len(node.inputs) or _ROWS not in roles:
        return None
    rows = [shape for shape, role in zip(shapes.inputs, roles, strict=True) if role is _ROWS]
    return roles if all(rows) else None


def is_exact(op: str) -> bool:
    """Whether each number of an output has the same bits whatever is computed beside it.

    So it is where numbers are moved or one IEEE operation makes each. Other kernels compute what
    is at the end of their work, or between two threads, in another way.
    """
    return op in _EXACT


def _elementwise(node: Node, shapes: Shapes) -> Roles | None:
    """Inputs are broadcast to the output: those of as many rows are split."""
    del node
    output = shapes.outputs[0]
    if any(len(shape) > len(output) for shape in shapes.inputs):
        return None
    return tuple(
        _ROWS if len(shape) == len(output) and shape[0] == output[0] else _WHOLE
        for shape in shapes.inputs
    )


def _all_rows(node: Node, shapes: Shapes) -> Roles | None:
    del node
    rows = shapes.outputs[0][0]
    is_split = all(shape and shape[0] == rows for shape in shapes.inputs)
    return tuple(_ROWS for _ in shapes.inputs) if is_split else None


def _first(node: Node, shapes: Shapes) -> Roles | None:
    """The rows of the first input, and all of the others."""
    del node
    if not shapes.inputs or not shapes.inputs[0] or shapes.inputs[0][0] != shapes.outputs[0][0]:
        return None
    return (_ROWS, *(_WHOLE for _ in shapes.inputs[1:]))


def _last_axis(node: Node, shapes: Shapes) -> Roles | None:
    return _first(node, shapes) if len(shapes.inputs[0]) > 1 else None


def _select(node: Node, shapes: Shapes) -> Roles | None:
    """Select takes a condition of its operands' shape, of one number, or of one for each row."""
    output = shapes.outputs[0]
    condition = shapes.inputs[0]
    if node.op == "Select" and len(condition) == 1 < len(output):
        return (_ROWS, _ROWS, _ROWS)
    return _elementwise(node, shapes)


def _matrix_product(node: Node, shapes: Shapes) -> Roles | None:
    """Rows of the left matrix; what a fused operation adds has as many rows or one."""
    if number_attribute(node, "transpose_a"):
        return None
    rows = shapes.outputs[0][0]
    added = [
        _ROWS if len(shape) == len(shapes.outputs[0]) and shape[0] == rows else _WHOLE
        for shape in shapes.inputs[2:]
    ]
    return (_ROWS, _WHOLE, *added)


def _batch_product(node: Node, shapes: Shapes) -> Roles | None:
    """Batches of matrices; an operand of fewer dimensions is the same for all."""
    del node
    output = shapes.outputs[0]
    if len(output) <= _MATRIX_RANK:
        return None
    return tuple(
        _ROWS if len(shape) == len(output) and shape[0] == output[0] else _WHOLE
        for shape in shapes.inputs
    )


def _einsum(node: Node, shapes: Shapes) -> Roles | None:
    """The output's first label stands first in the operands that have it, and in one of them."""
    attribute = node.attributes.get("equation")
    text = "" if attribute is None else attribute.s.decode(errors="replace").replace(" ", "")
    operands, arrow, output = text.partition("->")
    labels = operands.split(",")
    if not arrow or not output or "." in text or len(labels) != len(shapes.inputs):
        return None
    row = output[0]
    if any(row in each[1:] for each in (*labels, output)):
        return None
    return tuple(_ROWS if each.startswith(row) else _WHOLE for each in labels)


def _convolution(node: Node, shapes: Shapes) -> Roles | None:
    """Images and a filter; what a fused operation adds is a bias or as many images."""
    output = shapes.outputs[0]
    added = [
        _ROWS if len(shape) == len(output) and shape[0] == output[0] else _WHOLE
        for shape in shapes.inputs[2:]
    ]
    del node
    return (_ROWS, _WHOLE, *added)


def _input_gradient(node: Node, shapes: Shapes) -> Roles | None:
    """Sizes of the images, a filter, and the gradients of as many images."""
    del node
    sizes = shapes.numbers(0)
    if sizes is None or len(sizes) != len(shapes.outputs[0]):
        return None
    return (_SHAPE, _WHOLE, _ROWS)


def _average_gradient(node: Node, shapes: Shapes) -> Roles | None:
    del node
    sizes = shapes.numbers(0)
    return (_SHAPE, _ROWS) if sizes is not None and len(sizes) > 1 else None


def _reduction(node: Node, shapes: Shapes) -> Roles | None:
    """Over other axes than the first one."""
    del node
    axes, source = shapes.numbers(1), shapes.inputs[0]
    if not axes or any(not axis % len(source) > 0 for axis in axes):
        return None
    return (_ROWS, _WHOLE)


def _transpose(node: Node, shapes: Shapes) -> Roles | None:
    del node
    order = shapes.numbers(1)
    return (_ROWS, _WHOLE) if order and order[0] == 0 else None


def _reshape(node: Node, shapes: Shapes) -> Roles | None:
    """A part of the numbers, in their order, is the same part of the rows of either shape."""
    del node
    target = shapes.numbers(1)
    if target is None or not shapes.inputs[0]:
        return None
    return (_ROWS, _SHAPE)


def _expand_dims(node: Node, shapes: Shapes) -> Roles | None:
    del node
    axis = shapes.numbers(1)
    is_behind = axis is not None and len(axis) == 1 and axis[0] % len(shapes.outputs[0]) > 0
    return (_ROWS, _WHOLE) if is_behind else None


def _squeeze(node: Node, shapes: Shapes) -> Roles | None:
    del node
    return (_ROWS,) if shapes.inputs[0][0] == shapes.outputs[0][0] > 1 else None


def _pad(node: Node, shapes: Shapes) -> Roles | None:
    del node
    paddings = shapes.numbers(1)
    if not paddings or paddings[0] or paddings[1]:
        return None
    return (_ROWS, *(_WHOLE for _ in shapes.inputs[1:]))


def _concatenation(node: Node, shapes: Shapes) -> Roles | None:
    axis = shapes.numbers(len(node.inputs) - 1)
    if not axis or axis[0] % len(shapes.outputs[0]) == 0:
        return None
    return (*(_ROWS for _ in shapes.inputs[:-1]), _WHOLE)


def _splitting(node: Node, shapes: Shapes) -> Roles | None:
    """Split along another axis than the first one."""
    del node
    axis = shapes.numbers(0)
    is_other = axis is not None and axis[0] % len(shapes.inputs[1]) > 0
    return (_WHOLE, _ROWS) if is_other else None


def _broadcast(node: Node, shapes: Shapes) -> Roles | None:
    del node
    source, output = shapes.inputs[0], shapes.outputs[0]
    if shapes.numbers(1) is None or len(source) != len(output) or source[0] != output[0]:
        return None
    return (_ROWS, _SHAPE)


def _tile(node: Node, shapes: Shapes) -> Roles | None:
    del node
    multiples = shapes.numbers(1)
    return (_ROWS, _WHOLE) if multiples and multiples[0] == 1 else None


def _gather(node: Node, shapes: Shapes) -> Roles | None:
    """Rows of a table, by indices."""
    axis, batch = shapes.numbers(2), node.attributes.get("batch_dims")
    if axis != (0,) or (batch is not None and batch.i):
        return None
    return (_WHOLE, _ROWS, _WHOLE)


def _slice(node: Node, shapes: Shapes) -> Roles | None:
    """All rows, of which columns are taken."""
    del node
    begin, size = shapes.numbers(1), shapes.numbers(2)
    if not begin or not size or begin[0] or size[0] not in (-1, shapes.inputs[0][0]):
        return None
    return (_ROWS, _WHOLE, _SHAPE)


def _strided_slice(node: Node, shapes: Shapes) -> Roles | None:
    end = _end_of_all_rows(node, shapes, shapes.inputs[0])
    return None if end is None else (_ROWS, _WHOLE, end, _WHOLE)


def _strided_slice_gradient(node: Node, shapes: Shapes) -> Roles | None:
    """The shape of what was taken from, from where to where, and the gradient of what was taken."""
    end = _end_of_all_rows(node, shapes, shapes.outputs[0])
    if end is None or shapes.numbers(0) is None:
        return None
    return (_SHAPE, _WHOLE, end, _WHOLE, _ROWS)


def _end_of_all_rows(node: Node, shapes: Shapes, source: Shape) -> Role | None:
    """What a part needs of where a strided slice ends, if that takes all rows; `None` if not."""
    begin, end, strides = (shapes.numbers(slot) for slot in (1, 2, 3))
    if not begin or not end or not strides or not source:
        return None
    if _has_first(node, "ellipsis_mask"):
        # It stands for what the others leave, which has to be the rows at the least.
        is_whole = len(begin) <= len(source) and not number_attribute(node, "new_axis_mask")
        return _WHOLE if is_whole else None
    if _has_first(node, "new_axis_mask") or _has_first(node, "shrink_axis_mask"):
        return None
    if strides[0] != 1 or (begin[0] and not _has_first(node, "begin_mask")):
        return None
    if _has_first(node, "end_mask") or end[0] > source[0]:
        return _WHOLE
    return _SHAPE if end[0] == source[0] else None


def _has_first(node: Node, mask: str) -> bool:
    """Whether a mask of dimensions has the first one."""
    return bool(number_attribute(node, mask) & 1)


def least_rows(node: Node) -> int:
    """How many rows a part needs at least: of one row a product is another kernel's."""
    return _LEAST_ROWS.get(node.op, 1)


def scaled(numbers: Sequence[int], whole: int, part: int) -> tuple[int, ...]:
    """The numbers of a shape with as many rows as a part has; a first -1 stays what it is.

    Args:
        numbers: Those of the whole.
        whole: The rows of the whole.
        part: The rows of the part.
    """
    first = part if numbers[0] == whole else numbers[0]
    return (first, *numbers[1:])


def size_of(shape: Sequence[int]) -> int:
    """How many numbers a tensor of a shape has."""
    return prod(shape)


_MATRIX_RANK = 2
_LEAST_ROWS = {"MatMul": 2, "_FusedMatMul": 2, "Squeeze": 2}

_EXACT_ELEMENTWISE = (
    *("Abs", "Add", "AddV2", "BiasAdd", "Cast", "Equal", "Greater", "GreaterEqual", "Identity"),
    *("IsFinite", "Less", "LessEqual", "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum"),
    *("Minimum", "Mul", "Neg", "NotEqual", "OnesLike", "Relu", "Relu6", "Relu6Grad", "ReluGrad"),
    *("Sign", "Snapshot", "Square", "SquaredDifference", "StopGradient", "PreventGradient"),
    *("Sub", "ZerosLike"),
)
_ELEMENTWISE = (
    *("Ceil", "Cos", "Div", "DivNoNan", "Elu", "EluGrad", "Erf", "Erfc", "Exp"),
    *("Expm1", "Floor", "Inv", "InvGrad", "LeakyRelu", "LeakyReluGrad", "Log", "Log1p"),
    *("MulNoNan", "Pow", "RealDiv", "Reciprocal", "ReciprocalGrad", "Round", "Rsqrt"),
    *("RsqrtGrad", "Selu", "SeluGrad", "Sigmoid", "SigmoidGrad", "Sin", "Softplus"),
    *("SoftplusGrad", "Softsign", "SoftsignGrad", "Sqrt", "SqrtGrad", "Tanh", "TanhGrad"),
    *("Xdivy", "Xlogy"),
)

_RULES: Mapping[str, Callable[[Node, Shapes], Roles | None]] = {
    **dict.fromkeys((*_EXACT_ELEMENTWISE, *_ELEMENTWISE), _elementwise),
    **dict.fromkeys(("Select", "SelectV2"), _select),
    "BiasAdd": _first,
    **dict.fromkeys(("MatMul", "_FusedMatMul"), _matrix_product),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _batch_product),
    "Einsum": _einsum,
    **dict.fromkeys(("Conv2D", "DepthwiseConv2dNative", "_FusedConv2D"), _convolution),
    **dict.fromkeys(("Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput"), _input_gradient),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _last_axis),
    **dict.fromkeys(("AvgPool", "MaxPool"), _first),
    "MaxPoolGrad": _all_rows,
    "AvgPoolGrad": _average_gradient,
    **dict.fromkeys(
        ("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"), _all_rows
    ),
    **dict.fromkeys(("All", "Any", "Max", "Mean", "Min", "Prod", "Sum"), _reduction),
    "Transpose": _transpose,
    "Reshape": _reshape,
    "ExpandDims": _expand_dims,
    "Squeeze": _squeeze,
    **dict.fromkeys(("MirrorPad", "Pad", "PadV2"), _pad),
    "ConcatV2": _concatenation,
    "Slice": _slice,
    "Split": _splitting,
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_gradient,
    "BroadcastTo": _broadcast,
    "Tile": _tile,
    "GatherV2": _gather,
}

SPLITTABLE = frozenset(_RULES)
"""The ops that can be split in some cases."""

_EXACT = frozenset(
    {
        *_EXACT_ELEMENTWISE,
        *("BroadcastTo", "ConcatV2", "ExpandDims", "GatherV2", "MaxPool", "MaxPoolGrad", "Pad"),
        *("PadV2", "MirrorPad", "Reshape", "Select", "SelectV2", "Split", "Squeeze", "Tile"),
        *("Slice", "StridedSlice", "StridedSliceGrad", "Transpose", "All", "Any", "Max", "Min"),
    }
)
