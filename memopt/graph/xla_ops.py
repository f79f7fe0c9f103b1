"""What XLA makes of TensorFlow's operations: which become parts of other kernels, which do not.

XLA's CPU compiler takes the operations that produce an operand into the kernel that reads it, if
they are elementwise or move data only (`CanBeLoopFused` in
xla/service/cpu/cpu_instruction_fusion.cc), for each reader anew if they are cheap (`IsExpensive`
there, and `ComputeGloballyUnfusible` in xla/service/instruction_fusion.cc).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memopt.graph.graph import Node


class Fusion(Enum):
    """How an operation becomes part of kernels."""

    VIEW = auto()
    """It shows its input in another form."""
    CHEAP = auto()
    """It is computed again in every kernel that reads it and can compute it."""
    COSTLY = auto()
    """It becomes part of a kernel if that is the only one that reads it."""
    REDUCTION = auto()
    """A kernel of its own, or the end of one, as a rule from a library."""
    KERNEL = auto()
    """A kernel of its own."""


_OPS = {
    Fusion.VIEW: "Reshape ExpandDims Squeeze Identity IdentityN StopGradient PreventGradient "
    "ReadVariableOp Snapshot EnsureShape",
    Fusion.CHEAP: "Abs Add AddN AddV2 BatchToSpaceND BiasAdd BiasAddV1 Bitcast BitwiseAnd "
    "BitwiseOr BitwiseXor BroadcastTo Cast Ceil ClipByValue Complex Concat ConcatV2 Conj "
    "ConjugateTranspose "
    "DepthToSpace DivNoNan Equal Fill Floor FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 "
    "FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3 Greater GreaterEqual Imag IsFinite "
    "IsInf IsNan LeakyRelu "
    "LeakyReluGrad Less LessEqual LogicalAnd LogicalNot LogicalOr MatrixBandPart Maximum Minimum "
    "MirrorPad Mul MulNoNan Neg NextAfter NotEqual OneHot OnesLike Pack Pad PadV2 Range Real Relu "
    "Relu6 Relu6Grad "
    "ReluGrad ReverseV2 Rint Round Select SelectV2 Sign Slice SpaceToBatchND SpaceToDepth Split "
    "SplitV Square SquaredDifference StridedSlice StridedSliceGrad Sub Tile Transpose Unpack "
    "ZerosLike",
    Fusion.COSTLY: "Acos Acosh Asin Asinh Atan Atan2 Atanh BesselI0e BesselI1e ComplexAbs Cos Cosh "
    "Digamma Div Elu EluGrad Erf Erfc Erfinv Exp Expm1 FloorDiv FloorMod Gelu Inv InvGrad Lgamma "
    "Log Log1p LogSoftmax Mod Ndtri Pow RealDiv Reciprocal ReciprocalGrad Rsqrt RsqrtGrad Selu "
    "SeluGrad Sigmoid SigmoidGrad Sin Sinh Softmax Softplus SoftplusGrad Softsign SoftsignGrad "
    "Sqrt SqrtGrad Tan Tanh TanhGrad TruncateDiv TruncateMod Xdivy Xlog1py Xlogy",
    Fusion.REDUCTION: "All Any BiasAddGrad L2Loss Max Mean Min Prod Sum",
}
_FUSIONS = {op: fusion for fusion, ops in _OPS.items() for op in ops.split()}

ELEMENTWISE = frozenset({Fusion.CHEAP, Fusion.COSTLY})
"""What becomes part of kernels that read it, always or if there is one only."""

NORMAL_NUMBERS = frozenset(
    "ParameterizedTruncatedNormal RandomStandardNormal StatelessParameterizedTruncatedNormal "
    "StatelessRandomNormal StatelessRandomNormalV2 StatelessTruncatedNormal "
    "StatelessTruncatedNormalV2 TruncatedNormal".split()
)
"""What draws normal numbers: logarithms, square roots and sines of random bits that are in memory,
part of the kernel that reads them if there is one only."""

COPYING = frozenset({"Conv2DBackpropFilter", "Conv2DBackpropFilterV2", "Conv3DBackpropFilterV2"})
"""Of which the compiler for CPUs copies both operands: it computes them as convolutions whose
channels are the images of the batch, and transposes what is given to those."""


def fusion_of(node: Node) -> Fusion:
    """How an operation becomes part of XLA's kernels; what is not known is one of its own."""
    return _FUSIONS.get(node.op, Fusion.KERNEL)
