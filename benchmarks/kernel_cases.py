"""Small examples of every op in memopt's models: what a kernel is run on alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class KernelCase:
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

_UNARY = {
    "x": "Neg Tanh Sigmoid Square Sqrt Rsqrt Exp Log Log1p Expm1 Erf Erfc Abs Sign Reciprocal Inv "
    "Floor Ceil Round Sin Cos IsFinite",
    "features": "Relu Relu6 Elu Selu LeakyRelu Softplus Softsign",
    "logits": "Softmax LogSoftmax",
    "input": "Identity StopGradient PreventGradient ZerosLike OnesLike Snapshot Shape Size Rank",
}
_BINARY = {
    ("x", "y"): "Mul Add AddV2 Sub RealDiv Div DivNoNan MulNoNan Maximum Minimum Pow "
    "SquaredDifference FloorDiv FloorMod Xdivy Xlogy Less LessEqual Greater GreaterEqual Equal "
    "NotEqual",
    ("y", "dy"): "TanhGrad SigmoidGrad RsqrtGrad SqrtGrad ReciprocalGrad InvGrad",
    ("gradients", "features"): "ReluGrad Relu6Grad LeakyReluGrad SoftplusGrad SoftsignGrad",
    ("gradients", "outputs"): "EluGrad SeluGrad",
}
_RENAMED = {"ZerosLike": "x", "OnesLike": "x"}
_WINDOW = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
_CONVOLUTION = {"strides": [1, 1, 1, 1], "padding": "SAME"}
_POOLED = floats(2, 4, 4, 6)
_SEED = np.array([3], np.uint64), np.array([0, 5], np.uint64), np.array(1, np.int32)


def cases() -> list[KernelCase]:
    """All of them, the plain one of each op first."""
    return [*_elementwise(), *_shaping(), *_reductions(), *_others(), *_kernels()]


def _elementwise() -> list[KernelCase]:
    found: list[KernelCase] = []
    for name, ops in _UNARY.items():
        found += [KernelCase(op, {_RENAMED.get(op, name): floats(*A)}) for op in ops.split()]
    for names, ops in _BINARY.items():
        for op in ops.split():
            values = (floats(*A), floats(*A) + 1)
            found.append(KernelCase(op, dict(zip(names, values, strict=True))))
    small, large = floats(48), floats(*A)
    found += [
        KernelCase("Mul", {"x": small, "y": large}, label="the first is smaller"),
        KernelCase("Mul", {"x": large, "y": small}, label="the second is smaller"),
        KernelCase("Mul", {"x": floats(64, 48), "y": floats(1, 64, 48)}, label="other shape"),
        KernelCase("LogicalAnd", {"x": bools(*A), "y": bools(*A)}),
        KernelCase("LogicalOr", {"x": bools(*A), "y": bools(*A)}),
        KernelCase("LogicalNot", {"x": bools(*A)}),
        KernelCase("Cast", {"x": floats(*A)}, {"DstT": np.int32}),
        KernelCase("Cast", {"x": floats(*A)}, {"DstT": np.float32}, "unchanged"),
        KernelCase("Bitcast", {"input": floats(*A)}, {"type": np.int32}),
        KernelCase("AddN", {"inputs": [floats(*A), floats(*A), floats(*A)]}),
        KernelCase("AddN", {"inputs": [floats(*A)]}, label="unchanged"),
        KernelCase("AddN", {"inputs": [floats(*A)] * 11}, label="eleven"),
        KernelCase("SelectV2", {"condition": bools(*A), "t": floats(*A), "e": floats(*A)}),
        KernelCase("Select", {"condition": bools(*A), "x": floats(*A), "y": floats(*A)}),
        KernelCase(
            "SelectV2",
            {"condition": bools(64, 1), "t": floats(*A), "e": floats(1)},
            label="smaller condition",
        ),
        KernelCase("IdentityN", {"input": [floats(*A), floats(64, 8)]}),
        KernelCase("CheckNumerics", {"tensor": floats(*A)}, {"message": "no"}),
        KernelCase(
            "ClipByValue",
            {"t": floats(*A), "clip_value_min": floats(1)[0], "clip_value_max": floats(2)[1]},
        ),
        KernelCase("BiasAdd", {"value": floats(*A), "bias": small}),
        KernelCase("BiasAddGrad", {"out_backprop": floats(*A)}),
        KernelCase("DeepCopy", {"x": floats(*A)}),
        KernelCase("L2Loss", {"t": floats(*A)}),
    ]
    return found


def _shaping() -> list[KernelCase]:
    x = floats(*A)
    return [
        KernelCase("Reshape", {"tensor": x, "shape": ints(48, 64)}),
        KernelCase("Squeeze", {"input": floats(64, 1, 48)}, {"axis": [1]}),
        KernelCase("ExpandDims", {"input": x, "axis": int_(0)}),
        KernelCase("EnsureShape", {"input": x}, {"shape": A}),
        KernelCase("ShapeN", {"input": [x, x]}),
        KernelCase("Transpose", {"x": x, "perm": ints(1, 0)}),
        KernelCase("Transpose", {"x": x, "perm": ints(0, 1)}, label="unchanged"),
        KernelCase(
            "Transpose", {"x": floats(64, 1, 48), "perm": ints(1, 0, 2)}, label="only a 1 moves"
        ),
        KernelCase("Tile", {"input": x, "multiples": ints(1, 3)}),
        KernelCase("Tile", {"input": x, "multiples": ints(1, 1)}, label="unchanged"),
        KernelCase("Pad", {"input": x, "paddings": np.ones((2, 2), np.int32)}),
        KernelCase("Pad", {"input": x, "paddings": np.zeros((2, 2), np.int32)}, label="unchanged"),
        KernelCase(
            "PadV2",
            {"input": x, "paddings": np.ones((2, 2), np.int32), "constant_values": floats(1)[0]},
        ),
        KernelCase(
            "MirrorPad", {"input": x, "paddings": np.ones((2, 2), np.int32)}, {"mode": "REFLECT"}
        ),
        KernelCase("ConcatV2", {"values": [x, x], "axis": int_(1)}),
        KernelCase("ConcatV2", {"values": [x, floats(0, 48)], "axis": int_(0)}, label="one empty"),
        KernelCase("ConcatOffset", {"concat_dim": int_(0), "shape": [ints(2, 3), ints(4, 3)]}),
        KernelCase("Pack", {"values": [x, x]}),
        KernelCase("Pack", {"values": [x]}, label="unchanged"),
        KernelCase("Unpack", {"value": floats(64, 2, 48)}, {"num": 2, "axis": 1}),
        KernelCase("Unpack", {"value": floats(2, 64, 48)}, {"num": 2}, "rows"),
        KernelCase("Split", {"axis": int_(1), "value": x}, {"num_split": 2}),
        KernelCase("Split", {"axis": int_(0), "value": x}, {"num_split": 2}, "rows"),
        KernelCase("Split", {"axis": int_(0), "value": x}, {"num_split": 1}, "unchanged"),
        KernelCase(
            "SplitV", {"value": x, "size_splits": ints(40, 8), "axis": int_(1)}, {"num_split": 2}
        ),
        KernelCase("Slice", {"input": x, "begin": ints(0, 3), "size": ints(64, 9)}),
        KernelCase(
            "Slice", {"input": x, "begin": ints(0, 0), "size": ints(64, 48)}, label="unchanged"
        ),
        KernelCase("Slice", {"input": x, "begin": ints(16, 0), "size": ints(9, 48)}, label="rows"),
        _strided("columns", [0, 3], [64, 9]),
        _strided("unchanged", [0, 0], [64, 48]),
        _strided("rows", [16, 0], [32, 48]),
        _strided("odd rows", [1, 0], [32, 43], width=43),
        KernelCase(
            "StridedSliceGrad",
            {
                "shape": ints(64, 48),
                "begin": ints(0, 3),
                "end": ints(64, 9),
                "strides": ints(1, 1),
                "dy": floats(64, 6),
            },
        ),
        KernelCase("GatherV2", {"params": x, "indices": ints(3, 1, 2), "axis": int_(0)}),
        KernelCase("Gather", {"params": x, "indices": ints(3, 1, 2)}),
        KernelCase(
            "UnsortedSegmentSum",
            {"data": x, "segment_ids": ints(*range(64)), "num_segments": int_(64)},
        ),
        KernelCase("ReverseV2", {"tensor": x, "axis": ints(0)}),
        KernelCase("BroadcastTo", {"input": x, "shape": ints(3, 64, 48)}),
        KernelCase("BroadcastTo", {"input": x, "shape": ints(64, 48)}, label="unchanged"),
        KernelCase("Fill", {"dims": ints(64, 48), "value": floats(1)[0]}),
        KernelCase("Range", {"start": int_(0), "limit": int_(900), "delta": int_(1)}),
        KernelCase("BroadcastGradientArgs", {"s0": ints(64, 48), "s1": ints(48)}),
        KernelCase("InvertPermutation", {"x": ints(*range(300))}),
        KernelCase(
            "OneHot",
            {
                "indices": ints(1, 2, 3),
                "depth": int_(48),
                "on_value": np.float32(1),
                "off_value": np.float32(0),
            },
        ),
    ]


def _strided(label: str, begin: list[int], end: list[int], width: int = 48) -> KernelCase:
    inputs = {
        "input": floats(64, width),
        "begin": ints(*begin),
        "end": ints(*end),
        "strides": ints(1, 1),
    }
    return KernelCase("StridedSlice", inputs, label="" if label == "columns" else label)


def _reductions() -> list[KernelCase]:
    found: list[KernelCase] = []
    for op in "Sum Mean Prod Max Min All Any".split():
        values = bools(*A) if op in {"All", "Any"} else floats(*A)
        found.append(KernelCase(op, {"input": values, "axis": ints(0)}))
        found.append(KernelCase(op, {"input": values, "axis": ints()}, label="unchanged"))
    deep = floats(4, 5, 6, 7, 3)
    return [
        *found,
        KernelCase("Sum", {"input": floats(*A), "axis": ints(1)}, label="inner"),
        KernelCase("Sum", {"input": floats(*A), "axis": ints(0, 1)}, label="all"),
        KernelCase("Sum", {"input": floats(64, 1, 48), "axis": ints(1)}, label="a 1"),
        KernelCase("Sum", {"input": floats(4, 64, 48), "axis": ints(1)}, label="middle"),
        KernelCase("Sum", {"input": floats(4, 64, 48), "axis": ints(0, 2)}, label="outer, inner"),
        KernelCase("Sum", {"input": deep, "axis": ints(1, 3)}, label="1 and 3 of 5"),
        KernelCase("Sum", {"input": deep, "axis": ints(0, 2)}, label="0 and 2 of 5"),
        KernelCase("Sum", {"input": deep, "axis": ints(0, 2, 4)}, label="0, 2 and 4 of 5"),
        KernelCase("Mean", {"input": deep, "axis": ints(0, 2)}, label="0 and 2 of 5"),
        KernelCase("Cumsum", {"x": floats(*A), "axis": int_(0)}),
        KernelCase("ArgMax", {"input": floats(*A), "dimension": int_(1)}),
    ]


def _others() -> list[KernelCase]:
    key, counter, algorithm = _SEED
    return [
        KernelCase("MatMul", {"a": floats(64, 48), "b": floats(48, 80)}),
        KernelCase("MatMul", {"a": floats(64, 64), "b": floats(64, 64)}, label="square"),
        KernelCase(
            "MatMul",
            {"a": floats(48, 64), "b": floats(80, 48)},
            {"transpose_a": True, "transpose_b": True},
            "transposed",
        ),
        KernelCase("BatchMatMulV2", {"x": floats(4, 64, 48), "y": floats(4, 48, 64)}),
        KernelCase(
            "BatchMatMulV2",
            {"x": floats(4, 64, 48), "y": floats(4, 64, 48)},
            {"adj_y": True},
            "adjoint",
        ),
        KernelCase(
            "BatchMatMulV2", {"x": floats(4, 64, 48), "y": floats(1, 48, 64)}, label="repeated"
        ),
        KernelCase(
            "SparseSoftmaxCrossEntropyWithLogits",
            {"features": floats(64, 48), "labels": ints(*[3] * 64)},
        ),
        KernelCase(
            "SoftmaxCrossEntropyWithLogits", {"features": floats(64, 48), "labels": floats(64, 48)}
        ),
        KernelCase(
            "StatelessRandomUniformV2",
            {"shape": ints(64, 48), "key": key, "counter": counter, "alg": algorithm},
        ),
        KernelCase(
            "StatelessRandomNormalV2",
            {"shape": ints(64, 48), "key": key, "counter": counter, "alg": algorithm},
        ),
        KernelCase("StatelessRandomGetKeyCounter", {"seed": ints(3, 4)}),
        KernelCase("RandomUniform", {"shape": ints(64, 48)}, {"dtype": np.float32}),
        KernelCase("RandomStandardNormal", {"shape": ints(64, 48)}, {"dtype": np.float32}),
    ]


def _kernels() -> list[KernelCase]:
    images, pooled = floats(*IMAGES), _POOLED
    batch_norm = {"scale": floats(6), "offset": floats(6)}
    return [
        KernelCase("Conv2D", {"input": images, "filter": floats(3, 3, 6, 5)}, _CONVOLUTION),
        KernelCase("Conv2D", {"input": images, "filter": floats(1, 1, 6, 6)}, _CONVOLUTION, "1x1"),
        *_filter_gradients(),
        *_input_gradients(),
        *_depthwise(),
        KernelCase("MaxPool", {"input": images}, _WINDOW),
        KernelCase(
            "MaxPoolGrad", {"orig_input": images, "orig_output": pooled, "grad": pooled}, _WINDOW
        ),
        KernelCase("AvgPool", {"value": images}, _WINDOW),
        KernelCase("AvgPoolGrad", {"orig_input_shape": ints(*IMAGES), "grad": pooled}, _WINDOW),
        KernelCase(
            "FusedBatchNormV3",
            {"x": images, **batch_norm, "mean": floats(0), "variance": floats(0)},
            {"is_training": True},
        ),
        KernelCase(
            "FusedBatchNormV3",
            {"x": images, **batch_norm, "mean": floats(6), "variance": floats(6)},
            {"is_training": False},
            "inference",
        ),
        KernelCase(
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
        KernelCase("ResizeBilinear", {"images": images, "size": ints(16, 16)}),
        KernelCase("ResizeNearestNeighbor", {"images": images, "size": ints(16, 16)}),
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


def _filter_gradients() -> list[KernelCase]:
    found: list[KernelCase] = []
    for batch, height, channels, kernel, filters, stride in CONVOLUTIONS:
        out = -(-height // stride)
        inputs = {
            "input": floats(batch, height, height, channels),
            "filter_sizes": ints(kernel, kernel, channels, filters),
            "out_backprop": floats(batch, out, out, filters),
        }
        attributes = {"strides": [1, stride, stride, 1], "padding": "SAME"}
        label = f"{batch} {height} {channels} {kernel} {filters} {stride}" if found else ""
        found.append(KernelCase("Conv2DBackpropFilter", inputs, attributes, label))
    return found


def _input_gradients() -> list[KernelCase]:
    found: list[KernelCase] = []
    for batch, height, channels, kernel, filters, stride in CONVOLUTIONS:
        out = -(-height // stride)
        inputs = {
            "input_sizes": ints(batch, height, height, channels),
            "filter": floats(kernel, kernel, channels, filters),
            "out_backprop": floats(batch, out, out, filters),
        }
        attributes = {"strides": [1, stride, stride, 1], "padding": "SAME"}
        label = f"{batch} {height} {channels} {kernel} {filters} {stride}" if found else ""
        found.append(KernelCase("Conv2DBackpropInput", inputs, attributes, label))
    return found


def _depthwise() -> list[KernelCase]:
    found: list[KernelCase] = []
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
            KernelCase(
                "DepthwiseConv2dNative", {"input": images, "filter": weights}, attributes, label
            ),
            KernelCase(
                "DepthwiseConv2dNativeBackpropFilter",
                {"input": images, "filter_sizes": sizes, "out_backprop": gradient},
                attributes,
                label,
            ),
            KernelCase(
                "DepthwiseConv2dNativeBackpropInput",
                {"input_sizes": ints(*images.shape), "filter": weights, "out_backprop": gradient},
                attributes,
                label,
            ),
        ]
    return found
