"""Small examples of every op in memopt's models: what a kernel is run on alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class OpCase:
    """One op with values to run it on.

    Attributes:
        op: The op.
        inputs: A value for each declared input, in that order; lists where several tensors stand
            for one input.
        attributes: The attributes that the inputs do not give.
        label: What is special about the case; "" for the plain one, "unchanged" where the output
            is just what the input is, "rows" where it is some of its rows.
    """

    op: str
    inputs: Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""


def floats(*shape: int) -> Array:
    """Numbers between 0.1 and 0.9, so that no function leaves its domain."""
    return np.linspace(0.1, 0.9, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def ints(*values: int) -> Array:
    """A vector of 32-bit numbers."""
    return np.array(values, np.int32)


def int_(value: int) -> Array:
    """A 32-bit number."""
    return np.array(value, np.int32)


def bools(*shape: int) -> Array:
    """True and False in turns."""
    values: Array = np.arange(int(np.prod(shape))) % 2 == 0
    return values.reshape(shape)


A = (64, 48)
"""The shape of plain operands."""

IMAGES = (2, 8, 8, 6)
_PERMUTED = 64

_UNARY = {
    "x": "Neg Tanh Sigmoid Square Sqrt Rsqrt Exp Log Log1p Expm1 Erf Erfc Abs Sign Reciprocal Inv "
    "Floor Ceil Round Sin Cos IsFinite Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Lgamma "
    "Digamma Erfinv Ndtri Rint",
    "features": "Relu Relu6 Elu Selu LeakyRelu Softplus Softsign",
    "logits": "Softmax LogSoftmax",
    "input": "Identity StopGradient PreventGradient ZerosLike OnesLike Snapshot Shape Size Rank",
}
_BINARY = {
    ("x", "y"): "Mul Add AddV2 Sub RealDiv Div DivNoNan MulNoNan Maximum Minimum Pow "
    "SquaredDifference FloorDiv FloorMod Xdivy Xlogy Less LessEqual Greater GreaterEqual Equal "
    "NotEqual",
    ("a", "x"): "Igamma Igammac IgammaGradA Polygamma",
    ("y", "x"): "Atan2",
    ("y", "dy"): "TanhGrad SigmoidGrad RsqrtGrad SqrtGrad ReciprocalGrad InvGrad",
    ("gradients", "features"): "ReluGrad Relu6Grad LeakyReluGrad SoftplusGrad SoftsignGrad",
    ("gradients", "outputs"): "EluGrad SeluGrad",
}
_OF_BITS = "BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift"
_RENAMED = {"ZerosLike": "x", "OnesLike": "x"}
_WINDOW = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
_CONVOLUTION = {"strides": [1, 1, 1, 1], "padding": "SAME"}
_POOLED = floats(2, 4, 4, 6)
_SEED = np.array([3], np.uint64), np.array([0, 5], np.uint64), np.array(1, np.int32)


def cases() -> list[OpCase]:
    """All of them, the plain one of each op first."""
    return [*_elementwise(), *_shaping(), *_reductions(), *_others(), *_kernels()]


def _elementwise() -> list[OpCase]:
    found: list[OpCase] = []
    for name, ops in _UNARY.items():
        found += [OpCase(op, {_RENAMED.get(op, name): floats(*A)}) for op in ops.split()]
    for names, ops in _BINARY.items():
        for op in ops.split():
            values = (floats(*A), floats(*A) + 1)
            found.append(OpCase(op, dict(zip(names, values, strict=True))))
    whole = np.arange(np.prod(A), dtype=np.int32).reshape(A)
    found += [OpCase(op, {"x": whole, "y": whole % 7}) for op in _OF_BITS.split()]
    found.append(OpCase("Invert", {"x": whole}))
    small, large = floats(48), floats(*A)
    found += [
        OpCase("Mul", {"x": small, "y": large}, label="the first is smaller"),
        OpCase("Mul", {"x": large, "y": small}, label="the second is smaller"),
        OpCase("Mul", {"x": floats(64, 48), "y": floats(1, 64, 48)}, label="other shape"),
        OpCase("LogicalAnd", {"x": bools(*A), "y": bools(*A)}),
        OpCase("LogicalOr", {"x": bools(*A), "y": bools(*A)}),
        OpCase("LogicalNot", {"x": bools(*A)}),
        OpCase("Cast", {"x": floats(*A)}, {"DstT": np.int32}),
        OpCase("Cast", {"x": floats(*A)}, {"DstT": np.float32}, "unchanged"),
        OpCase("Bitcast", {"input": floats(*A)}, {"type": np.int32}),
        OpCase("AddN", {"inputs": [floats(*A), floats(*A), floats(*A)]}),
        OpCase("AddN", {"inputs": [floats(*A)]}, label="unchanged"),
        OpCase("AddN", {"inputs": [floats(*A)] * 11}, label="eleven"),
        OpCase("SelectV2", {"condition": bools(*A), "t": floats(*A), "e": floats(*A)}),
        OpCase("Select", {"condition": bools(*A), "x": floats(*A), "y": floats(*A)}),
        OpCase(
            "SelectV2",
            {"condition": bools(64, 1), "t": floats(*A), "e": floats(1)},
            label="smaller condition",
        ),
        OpCase("IdentityN", {"input": [floats(*A), floats(64, 8)]}),
        OpCase("CheckNumerics", {"tensor": floats(*A)}, {"message": "no"}),
        OpCase(
            "ClipByValue",
            {"t": floats(*A), "clip_value_min": floats(1)[0], "clip_value_max": floats(2)[1]},
        ),
        OpCase("BiasAdd", {"value": floats(*A), "bias": small}),
        OpCase("BiasAddGrad", {"out_backprop": floats(*A)}),
        OpCase("DeepCopy", {"x": floats(*A)}),
        OpCase("L2Loss", {"t": floats(*A)}),
    ]
    return found


def _shaping() -> list[OpCase]:
    x = floats(*A)
    return [
        OpCase("Reshape", {"tensor": x, "shape": ints(48, 64)}),
        OpCase("Squeeze", {"input": floats(64, 1, 48)}, {"axis": [1]}),
        OpCase("ExpandDims", {"input": x, "axis": int_(0)}),
        OpCase("EnsureShape", {"input": x}, {"shape": A}),
        OpCase("ShapeN", {"input": [x, x]}),
        OpCase("Transpose", {"x": x, "perm": ints(1, 0)}),
        OpCase("Transpose", {"x": x, "perm": ints(0, 1)}, label="unchanged"),
        OpCase(
            "Transpose", {"x": floats(64, 1, 48), "perm": ints(1, 0, 2)}, label="only a 1 moves"
        ),
        OpCase("Tile", {"input": x, "multiples": ints(1, 3)}),
        OpCase("Tile", {"input": x, "multiples": ints(1, 1)}, label="unchanged"),
        OpCase("Pad", {"input": x, "paddings": np.ones((2, 2), np.int32)}),
        OpCase("Pad", {"input": x, "paddings": np.zeros((2, 2), np.int32)}, label="unchanged"),
        OpCase(
            "PadV2",
            {"input": x, "paddings": np.ones((2, 2), np.int32), "constant_values": floats(1)[0]},
        ),
        OpCase(
            "MirrorPad", {"input": x, "paddings": np.ones((2, 2), np.int32)}, {"mode": "REFLECT"}
        ),
        OpCase("ConcatV2", {"values": [x, x], "axis": int_(1)}),
        OpCase("ConcatV2", {"values": [x, floats(0, 48)], "axis": int_(0)}, label="one empty"),
        OpCase("ConcatOffset", {"concat_dim": int_(0), "shape": [ints(2, 3), ints(4, 3)]}),
        OpCase("Pack", {"values": [x, x]}),
        OpCase("Pack", {"values": [x]}, label="unchanged"),
        OpCase("Unpack", {"value": floats(64, 2, 48)}, {"num": 2, "axis": 1}),
        OpCase("Unpack", {"value": floats(2, 64, 48)}, {"num": 2}, "rows"),
        OpCase("Split", {"axis": int_(1), "value": x}, {"num_split": 2}),
        OpCase("Split", {"axis": int_(0), "value": x}, {"num_split": 2}, "rows"),
        OpCase("Split", {"axis": int_(0), "value": x}, {"num_split": 1}, "unchanged"),
        OpCase(
            "SplitV", {"value": x, "size_splits": ints(40, 8), "axis": int_(1)}, {"num_split": 2}
        ),
        OpCase("Slice", {"input": x, "begin": ints(0, 3), "size": ints(64, 9)}),
        OpCase("Slice", {"input": x, "begin": ints(0, 0), "size": ints(64, 48)}, label="unchanged"),
        OpCase("Slice", {"input": x, "begin": ints(16, 0), "size": ints(9, 48)}, label="rows"),
        _strided("columns", [0, 3], [64, 9]),
        _strided("unchanged", [0, 0], [64, 48]),
        _strided("rows", [16, 0], [32, 48]),
        _strided("odd rows", [1, 0], [32, 43], width=43),
        OpCase(
            "StridedSliceGrad",
            {
                "shape": ints(64, 48),
                "begin": ints(0, 3),
                "end": ints(64, 9),
                "strides": ints(1, 1),
                "dy": floats(64, 6),
            },
        ),
        OpCase("GatherV2", {"params": x, "indices": ints(3, 1, 2), "axis": int_(0)}),
        OpCase("Gather", {"params": x, "indices": ints(3, 1, 2)}),
        OpCase(
            "UnsortedSegmentSum",
            {"data": x, "segment_ids": ints(*range(64)), "num_segments": int_(64)},
        ),
        OpCase("ReverseV2", {"tensor": x, "axis": ints(0)}),
        OpCase("MatrixBandPart", {"input": x, "num_lower": int_(-1), "num_upper": int_(0)}),
        OpCase(
            "MatrixSetDiagV3",
            {"input": floats(48, 48), "diagonal": floats(48), "k": int_(0)},
            {"align": "RIGHT_LEFT"},
        ),
        OpCase(
            "MatrixDiagPartV3",
            {"input": floats(48, 48), "k": int_(0), "padding_value": np.float32(0)},
        ),
        OpCase(
            "MatrixDiagV3",
            {
                "diagonal": floats(48),
                "k": int_(0),
                "num_rows": int_(-1),
                "num_cols": int_(-1),
                "padding_value": np.float32(0),
            },
        ),
        OpCase("GatherNd", {"params": x, "indices": np.zeros((9, 1), np.int32)}),
        OpCase(
            "ScatterNd",
            {
                "indices": np.zeros((9, 1), np.int32),
                "updates": floats(9, 48),
                "shape": ints(64, 48),
            },
        ),
        *(
            OpCase(
                op,
                {"tensor": x, "indices": np.zeros((9, 1), np.int32), "updates": floats(9, 48)},
            )
            for op in ("TensorScatterAdd", "TensorScatterSub", "TensorScatterUpdate")
        ),
        OpCase(
            "MirrorPadGrad",
            {"input": x, "paddings": np.ones((2, 2), np.int32)},
            {"mode": "REFLECT"},
        ),
        OpCase("SpaceToDepth", {"input": floats(2, 8, 8, 6)}, {"block_size": 2}),
        OpCase("DepthToSpace", {"input": floats(2, 8, 8, 8)}, {"block_size": 2}),
        OpCase("Roll", {"input": x, "shift": ints(2), "axis": ints(1)}),
        OpCase("TopKV2", {"input": x, "k": int_(3)}),
        OpCase(
            "UnsortedSegmentMax",
            {"data": x, "segment_ids": ints(*range(64)), "num_segments": int_(64)},
        ),
        OpCase(
            "UnsortedSegmentMin",
            {"data": x, "segment_ids": ints(*range(64)), "num_segments": int_(64)},
        ),
        OpCase(
            "UnsortedSegmentProd",
            {"data": x, "segment_ids": ints(*range(64)), "num_segments": int_(64)},
        ),
        OpCase("BroadcastTo", {"input": x, "shape": ints(3, 64, 48)}),
        OpCase("BroadcastTo", {"input": x, "shape": ints(64, 48)}, label="unchanged"),
        OpCase("Fill", {"dims": ints(64, 48), "value": floats(1)[0]}),
        OpCase("Range", {"start": int_(0), "limit": int_(900), "delta": int_(1)}),
        OpCase("BroadcastGradientArgs", {"s0": ints(64, 48), "s1": ints(48)}),
        OpCase("InvertPermutation", {"x": ints(*range(_PERMUTED))}),
        OpCase(
            "OneHot",
            {
                "indices": ints(1, 2, 3),
                "depth": int_(48),
                "on_value": np.float32(1),
                "off_value": np.float32(0),
            },
        ),
    ]


def _strided(label: str, begin: list[int], end: list[int], width: int = 48) -> OpCase:
    inputs = {
        "input": floats(64, width),
        "begin": ints(*begin),
        "end": ints(*end),
        "strides": ints(1, 1),
    }
    return OpCase("StridedSlice", inputs, label="" if label == "columns" else label)


def _reductions() -> list[OpCase]:
    found: list[OpCase] = []
    for op in "Sum Mean Prod Max Min All Any".split():
        values = bools(*A) if op in {"All", "Any"} else floats(*A)
        found.append(OpCase(op, {"input": values, "axis": ints(0)}))
        found.append(OpCase(op, {"input": values, "axis": ints()}, label="unchanged"))
    deep = floats(4, 5, 6, 7, 3)
    return [
        *found,
        OpCase("Sum", {"input": floats(*A), "axis": ints(1)}, label="inner"),
        OpCase("Sum", {"input": floats(*A), "axis": ints(0, 1)}, label="all"),
        OpCase("Sum", {"input": floats(64, 1, 48), "axis": ints(1)}, label="a 1"),
        OpCase("Sum", {"input": floats(4, 64, 48), "axis": ints(1)}, label="middle"),
        OpCase("Sum", {"input": floats(4, 64, 48), "axis": ints(0, 2)}, label="outer, inner"),
        OpCase("Sum", {"input": deep, "axis": ints(1, 3)}, label="1 and 3 of 5"),
        OpCase("Sum", {"input": deep, "axis": ints(0, 2)}, label="0 and 2 of 5"),
        OpCase("Sum", {"input": deep, "axis": ints(0, 2, 4)}, label="0, 2 and 4 of 5"),
        OpCase("Mean", {"input": deep, "axis": ints(0, 2)}, label="0 and 2 of 5"),
        OpCase("Cumsum", {"x": floats(*A), "axis": int_(0)}),
        OpCase("Cumprod", {"x": floats(*A), "axis": int_(0)}),
        OpCase("ArgMin", {"input": floats(*A), "dimension": int_(1)}),
        OpCase("ArgMax", {"input": floats(*A), "dimension": int_(1)}),
    ]


def _others() -> list[OpCase]:
    key, counter, algorithm = _SEED
    return [
        OpCase("MatMul", {"a": floats(64, 48), "b": floats(48, 80)}),
        OpCase("MatMul", {"a": floats(64, 64), "b": floats(64, 64)}, label="square"),
        OpCase(
            "MatMul",
            {"a": floats(48, 64), "b": floats(80, 48)},
            {"transpose_a": True, "transpose_b": True},
            "transposed",
        ),
        OpCase("BatchMatMulV2", {"x": floats(4, 64, 48), "y": floats(4, 48, 64)}),
        OpCase(
            "BatchMatMulV2",
            {"x": floats(4, 64, 48), "y": floats(4, 64, 48)},
            {"adj_y": True},
            "adjoint",
        ),
        OpCase("BatchMatMulV2", {"x": floats(4, 64, 48), "y": floats(1, 48, 64)}, label="repeated"),
        OpCase(
            "SparseSoftmaxCrossEntropyWithLogits",
            {"features": floats(64, 48), "labels": ints(*[3] * 64)},
        ),
        OpCase(
            "SoftmaxCrossEntropyWithLogits", {"features": floats(64, 48), "labels": floats(64, 48)}
        ),
        OpCase(
            "StatelessRandomUniformV2",
            {"shape": ints(64, 48), "key": key, "counter": counter, "alg": algorithm},
        ),
        OpCase(
            "StatelessRandomNormalV2",
            {"shape": ints(64, 48), "key": key, "counter": counter, "alg": algorithm},
        ),
        OpCase("StatelessRandomGetKeyCounter", {"seed": ints(3, 4)}),
        OpCase("RandomUniform", {"shape": ints(64, 48)}, {"dtype": np.float32}),
        OpCase("RandomStandardNormal", {"shape": ints(64, 48)}, {"dtype": np.float32}),
    ]


def _kernels() -> list[OpCase]:
    images, pooled = floats(*IMAGES), _POOLED
    batch_norm = {"scale": floats(6), "offset": floats(6)}
    return [
        OpCase("Conv2D", {"input": images, "filter": floats(3, 3, 6, 5)}, _CONVOLUTION),
        OpCase("Conv2D", {"input": images, "filter": floats(1, 1, 6, 6)}, _CONVOLUTION, "1x1"),
        *_filter_gradients(),
        *_input_gradients(),
        *_depthwise(),
        OpCase("MaxPool", {"input": images}, _WINDOW),
        OpCase(
            "MaxPoolGrad", {"orig_input": images, "orig_output": pooled, "grad": pooled}, _WINDOW
        ),
        OpCase("AvgPool", {"value": images}, _WINDOW),
        OpCase("AvgPoolGrad", {"orig_input_shape": ints(*IMAGES), "grad": pooled}, _WINDOW),
        OpCase(
            "FusedBatchNormV3",
            {"x": images, **batch_norm, "mean": floats(0), "variance": floats(0)},
            {"is_training": True},
        ),
        OpCase(
            "FusedBatchNormV3",
            {"x": images, **batch_norm, "mean": floats(6), "variance": floats(6)},
            {"is_training": False},
            "inference",
        ),
        OpCase(
            "FusedBatchNormGradV3",
            {
                "y_backprop": images,
                "x": images,
                "scale": floats(6),
                "reserve_space_1": floats(6),
                "reserve_space_2": floats(6),
                "reserve_space_3": floats(0),
            },
            {"is_training": True},
        ),
        OpCase("ResizeBilinear", {"images": images, "size": ints(16, 16)}),
        OpCase("ResizeNearestNeighbor", {"images": images, "size": ints(16, 16)}),
    ]


CONVOLUTIONS = (
    # batch, height, channels, kernel, filters, stride
    (2, 8, 6, 3, 5, 1),
    (2, 8, 6, 1, 5, 1),
    (16, 8, 6, 3, 5, 1),
    (2, 32, 64, 3, 64, 1),
    (8, 16, 32, 3, 48, 2),
    (1, 32, 16, 3, 16, 1),
    (4, 56, 64, 1, 64, 1),
    (4, 28, 128, 3, 128, 1),
    (8, 7, 256, 1, 512, 1),
    (4, 32, 3, 3, 32, 2),
)
"""Sizes by which formulas of scratch memory are told from one another."""


def _filter_gradients() -> list[OpCase]:
    found: list[OpCase] = []
    for batch, height, channels, kernel, filters, stride in CONVOLUTIONS:
        out = -(-height // stride)
        inputs = {
            "input": floats(batch, height, height, channels),
            "filter_sizes": ints(kernel, kernel, channels, filters),
            "out_backprop": floats(batch, out, out, filters),
        }
        attributes = {"strides": [1, stride, stride, 1], "padding": "SAME"}
        label = f"{batch} {height} {channels} {kernel} {filters} {stride}" if found else ""
        found.append(OpCase("Conv2DBackpropFilter", inputs, attributes, label))
    return found


def _input_gradients() -> list[OpCase]:
    found: list[OpCase] = []
    for batch, height, channels, kernel, filters, stride in CONVOLUTIONS:
        out = -(-height // stride)
        inputs = {
            "input_sizes": ints(batch, height, height, channels),
            "filter": floats(kernel, kernel, channels, filters),
            "out_backprop": floats(batch, out, out, filters),
        }
        attributes = {"strides": [1, stride, stride, 1], "padding": "SAME"}
        label = f"{batch} {height} {channels} {kernel} {filters} {stride}" if found else ""
        found.append(OpCase("Conv2DBackpropInput", inputs, attributes, label))
    return found


def _depthwise() -> list[OpCase]:
    found: list[OpCase] = []
    for batch, height, channels, stride in (
        (2, 8, 6, 1),
        (2, 16, 32, 1),
        (4, 16, 36, 2),
        (1, 16, 30, 1),
    ):
        out = -(-height // stride)
        images, gradient = (
            floats(batch, height, height, channels),
            floats(batch, out, out, channels),
        )
        weights, sizes = floats(3, 3, channels, 1), ints(3, 3, channels, 1)
        attributes = {"strides": [1, stride, stride, 1], "padding": "SAME"}
        label = f"{batch} {height} {channels} {stride}" if found else ""
        found += [
            OpCase(
                "DepthwiseConv2dNative", {"input": images, "filter": weights}, attributes, label
            ),
            OpCase(
                "DepthwiseConv2dNativeBackpropFilter",
                {"input": images, "filter_sizes": sizes, "out_backprop": gradient},
                attributes,
                label,
            ),
            OpCase(
                "DepthwiseConv2dNativeBackpropInput",
                {"input_sizes": ints(*images.shape), "filter": weights, "out_backprop": gradient},
                attributes,
                label,
            ),
        ]
    return found
