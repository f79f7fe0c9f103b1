"""Which formula counts the work of which op (the constructor of `OpLevelCostEstimator`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.costs.estimator.convolution import (
    FUSED_BIAS_ACTIVATION,
    depthwise_operations,
    filter_gradient,
    forward,
    full_operations,
    input_gradient,
)
from memopt.costs.estimator.data_movement import (
    ASSIGNMENT,
    GATHER,
    SCATTER,
    SLICE,
    STRIDED_SLICE,
    UPDATE,
)
from memopt.costs.estimator.elementwise import OPERATIONS_PER_ELEMENT, SUM_OF_ALL, elementwise
from memopt.costs.estimator.images import CROP_AND_RESIZE, RESIZE
from memopt.costs.estimator.matmul import BATCH_PRODUCT, EINSUM, MATRIX_PRODUCT, SPARSE_PRODUCT
from memopt.costs.estimator.normalization import (
    BATCH_NORMALIZATION,
    BATCH_NORMALIZATION_GRADIENT,
    SOFTMAX,
)
from memopt.costs.estimator.pooling import (
    AVERAGE_GRADIENT,
    AVERAGE_POOLING,
    MAX_GRADIENT,
    MAX_POOLING,
)
from memopt.costs.estimator.unknown_op import COPY

if TYPE_CHECKING:
    from memopt.costs.estimator.op_info import Formula

FREE_OPS = frozenset({"GuaranteeConst", "NoOp"})
"""They take no time (`PredictNoOp`)."""

MINIMUM_COST_OPS = frozenset(
    # Nothing is copied (`PredictIdentity`).
    "BitCast Enter Exit Identity IdentityN Merge NextIteration Placeholder PreventGradient "
    "RefIdentity Reshape StopGradient Switch _Recv _Send "
    # Only the shape is read (`PredictMetadata`).
    "Rank Shape ShapeN Size "
    # It was there before the step (`PredictVariable`).
    "AutoReloadVariable Const ReadVariableOp VarHandleOp Variable VariableV2 _ReadVariablesOp "
    "_VarHandlesOp".split()
)
"""They take a nanosecond, whatever the device.

"BitCast" is Grappler's spelling: of Bitcast, as TensorFlow calls it, it knows nothing.
"""

FORMULAS: dict[str, Formula] = {
    **{op: elementwise(cost) for op, cost in OPERATIONS_PER_ELEMENT.items()},
    "AddN": SUM_OF_ALL,
    "Conv2D": forward(full_operations),
    "Conv2DBackpropFilter": filter_gradient(full_operations),
    "Conv2DBackpropInput": input_gradient(full_operations),
    "DepthwiseConv2dNative": forward(depthwise_operations),
    "DepthwiseConv2dNativeBackpropFilter": filter_gradient(depthwise_operations),
    "DepthwiseConv2dNativeBackpropInput": input_gradient(depthwise_operations),
    "FusedConv2DBiasActivation": FUSED_BIAS_ACTIVATION,
    **dict.fromkeys(
        "MatMul QuantizedMatMul QuantizedMatMulV2 SparseMatMul".split(), MATRIX_PRODUCT
    ),
    **dict.fromkeys("BatchMatMul BatchMatMulV2".split(), BATCH_PRODUCT),
    **dict.fromkeys("Einsum XlaEinsum".split(), EINSUM),
    "SparseTensorDenseMatMul": SPARSE_PRODUCT,
    "MaxPool": MAX_POOLING,
    "MaxPoolGrad": MAX_GRADIENT,
    "AvgPool": AVERAGE_POOLING,
    "AvgPoolGrad": AVERAGE_GRADIENT,
    "FusedBatchNorm": BATCH_NORMALIZATION,
    "FusedBatchNormGrad": BATCH_NORMALIZATION_GRADIENT,
    "Softmax": SOFTMAX,
    "ResizeBilinear": RESIZE,
    "CropAndResize": CROP_AND_RESIZE,
    **dict.fromkeys("Gather GatherNd GatherV2".split(), GATHER),
    "Slice": SLICE,
    "StridedSlice": STRIDED_SLICE,
    **dict.fromkeys(
        "ScatterAdd ScatterDiv ScatterMax ScatterMin ScatterMul ScatterSub ScatterUpdate".split(),
        SCATTER,
    ),
    "AssignVariableOp": ASSIGNMENT,
    **dict.fromkeys("AssignAddVariableOp AssignSubVariableOp".split(), UPDATE),
    **dict.fromkeys(
        "ConcatV2 DataFormatVecPermute DepthToSpace ExpandDims Fill OneHot Pack Range SpaceToDepth "
        "Split Squeeze Tile Transpose Unpack".split(),
        COPY,
    ),
}
"""All ops with a formula of their own; of others Grappler only knows what they read and write."""
