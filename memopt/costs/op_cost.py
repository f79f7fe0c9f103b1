"""How much arithmetic an operation does for each byte that it produces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types

if TYPE_CHECKING:
    from memopt.graph.graph import FunctionLibrary, Node
    from memopt.shapes.properties import Properties

_ONE = 1
_DIVISION = 4
_TRANSCENDENTAL = 16

OPERATIONS_PER_ELEMENT = {
    **dict.fromkeys(
        "Abs Add AddV2 BiasAdd BiasAddV1 Cast Ceil Equal Fill Floor Greater GreaterEqual "
        "Less LessEqual LogicalAnd LogicalNot LogicalOr Maximum Minimum Mul Neg NotEqual "
        "OnesLike Relu Relu6 Round Select SelectV2 Sign Square SquaredDifference Sub "
        "Tile Transpose ZerosLike Reshape Squeeze ExpandDims BroadcastTo LeakyRelu "
        "StridedSlice Slice Pad PadV2 ConcatV2 Pack Unpack Split SplitV GatherV2 "
        "MulNoNan".split(),
        _ONE,
    ),
    **dict.fromkeys(
        "Div DivNoNan FloorDiv FloorMod Inv RealDiv Reciprocal Rsqrt Sqrt Xdivy "
        "TruncateDiv TruncateMod FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3".split(),
        _DIVISION,
    ),
    **dict.fromkeys(
        "Elu Erf Erfc Exp Expm1 Log Log1p Pow Selu Sigmoid Sin Cos Softmax LogSoftmax "
        "Softplus Softsign Tanh".split(),
        _TRANSCENDENTAL,
    ),
}
"""Arithmetic operations per element of the largest output, for ops whose work is linear in it."""

CHEAP_OPERATIONS_PER_BYTE = 8
"""An operation is cheap when the memory that it writes, not its arithmetic, sets its time.

A transcendental function of 32-bit elements does 4 operations per byte; a processor core does about
this many in the time in which one byte moves to memory and back.
"""


def operations(node: Node, properties: Properties) -> int | None:
    """Arithmetic operations of one execution; `None` for an op or a size that is not known."""
    per_element = OPERATIONS_PER_ELEMENT.get(node.op)
    if per_element is None:
        return None
    shapes = [tensor.shape for tensor in properties.outputs(node.name)]
    if not shapes or any(shape is None or -1 in shape for shape in shapes):
        return None
    largest = 0
    for shape in shapes:
        elements = 1
        for size in shape or ():
            elements *= size
        largest = max(largest, elements)
    return per_element * largest


def is_cheap(node: Node, properties: Properties, library: FunctionLibrary | None) -> bool:
    """Whether computing a node again costs little beside keeping what it produces.

    False for operations with state, for those without arithmetic of a known kind, and where a size
    is not known.
    """
    if node.op not in OPERATIONS_PER_ELEMENT or op_types.is_stateful(node, library):
        return False
    work = operations(node, properties)
    produced = sum(tensor.size_bytes or 0 for tensor in properties.outputs(node.name))
    return work is not None and 0 < work <= CHEAP_OPERATIONS_PER_BYTE * produced
