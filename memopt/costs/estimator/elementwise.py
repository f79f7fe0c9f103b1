"""Operations whose work is so much per element: arithmetic, comparisons, reductions, AddN."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memopt.costs.estimator.op_info import Formula

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.costs.estimator.op_info import OpInfo, Work
    from memopt.shapes.tensor_properties import TensorProperties

DIVISION = 14
MODULO = 8
RECIPROCAL = 4
INVERSE_SQUARE_ROOT = 5
SQUARE_ROOT = 8
TRIGONOMETRIC = 5
EXPONENTIAL = 34
LOGARITHM = 50
TANH = 36
SIGMOID = 40
SIGN = 3
QUANTIZATION = 4
"""Scale, two bounds, round."""

OPERATIONS_PER_ELEMENT = {
    **dict.fromkeys(
        "Add AddV2 All ApproximateEqual ArgMax BiasAdd Cast Ceil Dequantize Equal Erf Erfc Floor "
        "Greater GreaterEqual InvGrad Less LessEqual Lgamma LogicalAnd LogicalNot LogicalOr Max "
        "Maximum Min Minimum Mul Neg NotEqual Prod QuantizedAdd QuantizedBiasAdd QuantizedMul Relu "
        "Relu6 ReluGrad Rint Round Select SelectV2 Square Sub Sum TopKV2 Where".split(),
        1,
    ),
    **dict.fromkeys("Div FloorDiv RealDiv TruncateDiv".split(), DIVISION),
    **dict.fromkeys("FloorMod Mod TruncateMod".split(), MODULO),
    **dict.fromkeys("Inv Reciprocal".split(), RECIPROCAL),
    **dict.fromkeys("Acos Asin Atan Cos Sin Tan".split(), TRIGONOMETRIC),
    **dict.fromkeys("Exp Expm1".split(), EXPONENTIAL),
    **dict.fromkeys("Log Log1p".split(), LOGARITHM),
    **dict.fromkeys("QuantizedSigmoid Sigmoid".split(), SIGMOID),
    **dict.fromkeys("QuantizeAndDequantizeV2 QuantizeAndDequantizeV4".split(), QUANTIZATION + 1),
    "Atan2": DIVISION + TRIGONOMETRIC,
    "QuantizeV2": QUANTIZATION,
    "Rsqrt": INVERSE_SQUARE_ROOT,
    "Sign": SIGN,
    "Sqrt": SQUARE_ROOT,
    "SquaredDifference": 2,
    "Tanh": TANH,
}
"""Eigen's costs of its functors for floats, as TensorFlow 2.21 is built for processors with AVX."""


def elementwise(operations_per_element: int) -> Formula:
    """So many operations for each element of the largest tensor (`PredictCwiseOp`)."""

    def work(info: OpInfo) -> Work | None:
        elements = largest_elements(info, info.inputs, *info.outputs[:1])
        return info.work_on_all(elements * operations_per_element)

    return Formula(work)


def largest_elements(
    info: OpInfo, inputs: Sequence[TensorProperties], *outputs: TensorProperties
) -> int:
    """The elements of the largest tensor, that to which the inputs broadcast included."""
    largest = max((info.elements(tensor) for tensor in (*inputs, *outputs)), default=0)
    return largest if len(inputs) <= 1 else max(largest, _broadcast_elements(inputs))


def _broadcast_elements(inputs: Sequence[TensorProperties]) -> int:
    """The elements of what shapes broadcast to (`CwiseOutputElementCount`); 0 if not known."""
    shapes = [tensor.shape or () for tensor in inputs]
    rank = max(1, *map(len, shapes))
    sizes = [0] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            sizes[axis] = max(sizes[axis], size)
    return prod(sizes)


def _sum_of_all(info: OpInfo) -> Work | None:
    """One addition per element for each input but the first (`PredictNaryOp`)."""
    elements = largest_elements(info, info.inputs, *info.outputs[:1])
    return info.work_on_all(elements * (len(info.inputs) - 1))


SUM_OF_ALL = Formula(_sum_of_all)
