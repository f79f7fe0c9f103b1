"""How TensorFlow's kernels on a processor differ from what Grappler's model takes them to be.

Grappler knows nothing of the ops that its own remapper makes (`_FusedConv2D`, `_FusedMatMul`), so
that they cost no arithmetic, and takes all arithmetic for equally fast, so that a product of
matrices costs ten times what it does. Of a step as TensorFlow runs it, that makes the dearest
operations the cheapest. `benchmarks/kernel_times.py` compares both with what is measured.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from memopt.costs.cost_model import Cost
from memopt.costs.estimator.convolution import OPERATIONS_PER_MAC
from memopt.costs.estimator.elementwise import EXPONENTIAL, SIGMOID, elementwise
from memopt.costs.estimator.matmul import BATCH_PRODUCT, MATRIX_PRODUCT
from memopt.costs.estimator.normalization import BATCH_NORMALIZATION, BATCH_NORMALIZATION_GRADIENT
from memopt.costs.estimator.op_info import Formula
from memopt.costs.estimator.registry import FORMULAS
from memopt.costs.estimator.unknown_op import COPY
from memopt.costs.short_rows import (
    Rows,
    broadcast_rows,
    copied_rows,
    last_rows,
    on_rows,
    repeated_rows,
    summed_rows,
)

if TYPE_CHECKING:
    from memopt.costs.estimator.device_rates import DeviceRates
    from memopt.costs.estimator.op_info import OpInfo, Work
    from memopt.shapes.tensor_properties import TensorProperties

_OUTPUT = -1

LAUNCH_NS = 500
"""What an operation takes that has nothing to do, scheduling included."""

RANDOM = 180
"""Operations for each random number, by counters."""
CROSS_ENTROPY = 200
"""Operations for each logit and its gradient, of which few run side by side."""


def _convolution(filter_slot: int, image_slot: int) -> Formula:
    """A convolution of any rank or its gradient, groups included.

    Args:
        filter_slot: Which input has the filter's shape; -1 for the output.
        image_slot: Which has that of the convolution's result.
    """

    def work(info: OpInfo) -> Work:
        kernel, image = (_tensor(info, slot) for slot in (filter_slot, image_slot))
        *_, filters = 1, *info.sizes(kernel.shape, len(kernel.shape or ()))
        macs = info.elements(image) * info.elements(kernel) // max(1, filters)
        return info.work_on_all(macs * OPERATIONS_PER_MAC)

    return Formula(work)


def _depthwise(filter_slot: int, image_slot: int) -> Formula:
    """A convolution in which every channel has filters of its own, or its gradient."""

    def work(info: OpInfo) -> Work:
        kernel, image = (_tensor(info, slot) for slot in (filter_slot, image_slot))
        height, width, *_ = info.sizes(kernel.shape, 4)
        return info.work_on_all(info.elements(image) * height * width * OPERATIONS_PER_MAC)

    return Formula(work)


def _cross_entropy(info: OpInfo) -> Work:
    """Of the logits; the labels of the sparse one are of fewer dimensions, and not broadcast."""
    return info.work_on_all(info.elements(info.input(0)) * CROSS_ENTROPY)


def _tensor(info: OpInfo, slot: int) -> TensorProperties:
    return info.output() if slot == _OUTPUT else info.input(slot)


_FORWARD = "Conv2D _FusedConv2D Conv3D _FusedConv3D".split()
_OF_INPUT = "Conv2DBackpropInput Conv3DBackpropInput Conv3DBackpropInputV2".split()
_OF_FILTER = "Conv2DBackpropFilter Conv3DBackpropFilter Conv3DBackpropFilterV2".split()
_DEPTHWISE = "DepthwiseConv2dNative _FusedDepthwiseConv2dNative".split()
_DEPTHWISE_OF_INPUT = "DepthwiseConv2dNativeBackpropInput"
_DEPTHWISE_OF_FILTER = "DepthwiseConv2dNativeBackpropFilter"
_PRODUCTS = "MatMul _FusedMatMul".split()
_BATCHES = "BatchMatMul BatchMatMulV2 BatchMatMulV3 _FusedBatchMatMulV2".split()

_FORMULAS: dict[str, Formula] = {
    **FORMULAS,
    **dict.fromkeys(_FORWARD, _convolution(1, _OUTPUT)),
    **dict.fromkeys(_OF_INPUT, _convolution(1, 2)),
    **dict.fromkeys(_OF_FILTER, _convolution(_OUTPUT, 2)),
    **dict.fromkeys(_DEPTHWISE, _depthwise(1, _OUTPUT)),
    _DEPTHWISE_OF_INPUT: _depthwise(1, 2),
    _DEPTHWISE_OF_FILTER: _depthwise(_OUTPUT, 2),
    **dict.fromkeys(_PRODUCTS, MATRIX_PRODUCT),
    **dict.fromkeys(_BATCHES, BATCH_PRODUCT),
    **dict.fromkeys(
        "FusedBatchNormV2 FusedBatchNormV3 _FusedBatchNormEx".split(), BATCH_NORMALIZATION
    ),
    **dict.fromkeys(
        "FusedBatchNormGradV2 FusedBatchNormGradV3 _FusedBatchNormGradEx".split(),
        BATCH_NORMALIZATION_GRADIENT,
    ),
    **dict.fromkeys(
        "Elu Erf Erfc Expm1 Pow Selu SigmoidGrad Softplus TanhGrad _UnaryOpsComposition".split(),
        elementwise(EXPONENTIAL),
    ),
    "_MklSwish": elementwise(SIGMOID + 1),
    **dict.fromkeys(
        "RandomStandardNormal RandomUniform StatelessRandomNormal StatelessRandomNormalV2 "
        "StatelessRandomUniform StatelessRandomUniformV2 TruncatedNormal".split(),
        elementwise(RANDOM),
    ),
    **dict.fromkeys(
        "SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits".split(),
        Formula(_cross_entropy),
    ),
}
"""Grappler's formulas, and those of ops of which it knows nothing."""

_ROWS: dict[str, Rows] = {
    **dict.fromkeys(
        "Add AddV2 BiasAdd Div Equal FloorDiv FloorMod Greater GreaterEqual Less LessEqual "
        "LogicalAnd LogicalOr Maximum Minimum Mul NotEqual Pow RealDiv SelectV2 SquaredDifference "
        "Sub".split(),
        Rows(broadcast_rows, 160, 6),
    ),
    **dict.fromkeys("All Any ArgMax ArgMin Max Mean Min Prod Sum".split(), Rows(summed_rows, 200)),
    **dict.fromkeys(
        "ConcatV2 Slice Split SplitV StridedSlice StridedSliceGrad".split(), Rows(copied_rows, 160)
    ),
    **dict.fromkeys("BroadcastTo Tile".split(), Rows(repeated_rows, 160)),
    **dict.fromkeys("MirrorPad Pad PadV2".split(), Rows(copied_rows, 400)),
    **dict.fromkeys("LogSoftmax Softmax".split(), Rows(last_rows, 1000)),
}
"""What work along short rows takes besides, as measured on rows of four to 256 numbers."""

KERNEL_FORMULAS: dict[str, Formula] = {
    **_FORMULAS,
    **{op: on_rows(_FORMULAS.get(op, COPY), rows) for op, rows in _ROWS.items()},
}
"""How the work of an op's kernels is counted; of others what they read and write counts."""

SPEED_UP = 8.0
"""So many times as fast as Grappler takes arithmetic to be: a vector at a time."""

SPEED_UPS: dict[str, float] = {
    **dict.fromkeys(_PRODUCTS, 12.0),
    **dict.fromkeys(_BATCHES, 6.0),
    "Einsum": 3.0,
    **dict.fromkeys(_FORWARD, 10.0),
    **dict.fromkeys((*_OF_INPUT, *_OF_FILTER), 7.0),
    **dict.fromkeys((*_DEPTHWISE, _DEPTHWISE_OF_INPUT, _DEPTHWISE_OF_FILTER), 2.0),
}
"""The same of kernels that are faster or slower."""

TRAFFIC: dict[str, float] = {
    "BiasAddGrad": 2.0,
    "Einsum": 2.0,
    "MaxPool": 2.0,
    "MaxPoolGrad": 8.0,
    "Mean": 1.8,
    "SelectV2": 3.0,
    "SquaredDifference": 2.0,
    "Sum": 1.4,
    "Tile": 1.8,
    "Transpose": 6.0,
}
"""How many times what kernels read and write passes through memory, where it is more than once."""


def kernel_price(op: str, work: Work, rates: DeviceRates) -> Cost:
    """The time of some work of an op: arithmetic, memory, and what any operation takes."""
    compute_ns = ceil(work.operations / (rates.gigaops * SPEED_UPS.get(op, SPEED_UP)))
    moved_bytes = TRAFFIC.get(op, 1.0) * (work.read_bytes + work.written_bytes)
    memory_ns = ceil(moved_bytes / rates.gb_per_s)
    execution_ns = compute_ns + memory_ns + LAUNCH_NS
    return Cost(execution_ns, compute_ns, memory_ns, work.inaccurate)
