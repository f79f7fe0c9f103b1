"""Which kernels share or take over buffers: written by `benchmarks/kernel_memory.py`.

What an experiment with every op alone showed; not edited by hand. An op that is in no
table allocates its outputs.
"""

from __future__ import annotations

ALIASES: dict[str, dict[int, int]] = {
    "Bitcast": {0: 0},
    "CheckNumerics": {0: 0},
    "EnsureShape": {0: 0},
    "ExpandDims": {0: 0},
    "Identity": {0: 0},
    "PreventGradient": {0: 0},
    "Reshape": {0: 0},
    "Squeeze": {0: 0},
    "StopGradient": {0: 0},
}
"""Ops by output port: the input slot that it shares."""

PORT_BY_PORT: frozenset[str] = frozenset(
    {
        "IdentityN",
    }
)
"""Ops whose outputs share the input of the same number."""

REUSES: dict[str, dict[int, tuple[int, ...]]] = {
    "Abs": {0: (0,)},
    "Add": {0: (0, 1)},
    "AddV2": {0: (0, 1)},
    "BiasAdd": {0: (0,)},
    "Ceil": {0: (0,)},
    "ClipByValue": {0: (0,)},
    "Cos": {0: (0,)},
    "Div": {0: (0, 1)},
    "DivNoNan": {0: (0, 1)},
    "Elu": {0: (0,)},
    "EluGrad": {0: (0, 1)},
    "Erf": {0: (0,)},
    "Erfc": {0: (0,)},
    "Exp": {0: (0,)},
    "Expm1": {0: (0,)},
    "Floor": {0: (0,)},
    "FloorDiv": {0: (0, 1)},
    "FloorMod": {0: (0, 1)},
    "Inv": {0: (0,)},
    "InvGrad": {0: (0, 1)},
    "LeakyRelu": {0: (0,)},
    "LeakyReluGrad": {0: (0, 1)},
    "Log": {0: (0,)},
    "Log1p": {0: (0,)},
    "LogSoftmax": {0: (0,)},
    "LogicalAnd": {0: (0, 1)},
    "LogicalNot": {0: (0,)},
    "LogicalOr": {0: (0, 1)},
    "MaxPoolGrad": {0: (0,)},
    "Maximum": {0: (0, 1)},
    "Minimum": {0: (0, 1)},
    "Mul": {0: (0, 1)},
    "MulNoNan": {0: (0, 1)},
    "Neg": {0: (0,)},
    "OnesLike": {0: (0,)},
    "Pow": {0: (0, 1)},
    "RealDiv": {0: (0, 1)},
    "Reciprocal": {0: (0,)},
    "ReciprocalGrad": {0: (0, 1)},
    "Relu": {0: (0,)},
    "Relu6": {0: (0,)},
    "Relu6Grad": {0: (0, 1)},
    "ReluGrad": {0: (0, 1)},
    "Round": {0: (0,)},
    "Rsqrt": {0: (0,)},
    "RsqrtGrad": {0: (0, 1)},
    "Select": {0: (1, 2)},
    "SelectV2": {0: (1, 2)},
    "Selu": {0: (0,)},
    "SeluGrad": {0: (0, 1)},
    "Sigmoid": {0: (0,)},
    "SigmoidGrad": {0: (0, 1)},
    "Sign": {0: (0,)},
    "Sin": {0: (0,)},
    "Snapshot": {0: (0,)},
    "Softmax": {0: (0,)},
    "SoftmaxCrossEntropyWithLogits": {1: (0,)},
    "Softplus": {0: (0,)},
    "SoftplusGrad": {0: (0, 1)},
    "Softsign": {0: (0,)},
    "SoftsignGrad": {0: (0, 1)},
    "SparseSoftmaxCrossEntropyWithLogits": {1: (0,)},
    "Sqrt": {0: (0,)},
    "SqrtGrad": {0: (0, 1)},
    "Square": {0: (0,)},
    "SquaredDifference": {0: (0, 1)},
    "Sub": {0: (0, 1)},
    "Tanh": {0: (0,)},
    "TanhGrad": {0: (0, 1)},
    "Xdivy": {0: (0, 1)},
    "Xlogy": {0: (0, 1)},
    "ZerosLike": {0: (0,)},
}
"""Ops by output port: the slots whose buffer it takes over, the first choice first."""

ANY_INPUT: frozenset[str] = frozenset(
    {
        "AddN",
    }
)
"""Ops that take over the buffer of any input."""

UNCHANGED: dict[str, int] = {
    "AddN": 0,
    "All": 0,
    "Any": 0,
    "BroadcastTo": 0,
    "Cast": 0,
    "Max": 0,
    "Mean": 0,
    "Min": 0,
    "Pack": 0,
    "Pad": 0,
    "Prod": 0,
    "Slice": 0,
    "Split": 1,
    "StridedSlice": 0,
    "Sum": 0,
    "Tile": 0,
    "Transpose": 0,
}
"""Ops whose outputs share that slot where nothing changes."""

ROWS: dict[str, int] = {
    "Slice": 0,
    "Split": 1,
    "StridedSlice": 0,
    "Unpack": 0,
}
"""Ops whose outputs share that slot where they are rows of it."""

PLAIN: frozenset[str] = frozenset(
    {
        "ArgMax",
        "AvgPool",
        "AvgPoolGrad",
        "BatchMatMulV2",
        "BroadcastGradientArgs",
        "ConcatOffset",
        "ConcatV2",
        "Conv2D",
        "Cumsum",
        "DeepCopy",
        "Equal",
        "Fill",
        "Gather",
        "GatherV2",
        "Greater",
        "GreaterEqual",
        "InvertPermutation",
        "IsFinite",
        "L2Loss",
        "Less",
        "LessEqual",
        "MatMul",
        "MaxPool",
        "MirrorPad",
        "NotEqual",
        "OneHot",
        "RandomStandardNormal",
        "RandomUniform",
        "Range",
        "Rank",
        "ResizeBilinear",
        "ResizeNearestNeighbor",
        "ReverseV2",
        "Shape",
        "ShapeN",
        "Size",
        "SplitV",
        "StatelessRandomGetKeyCounter",
        "StatelessRandomNormalV2",
        "StatelessRandomUniformV2",
        "StridedSliceGrad",
        "UnsortedSegmentSum",
    }
)
"""Ops that allocate their outputs and nothing else."""
