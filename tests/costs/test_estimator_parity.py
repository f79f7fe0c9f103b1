"""Every formula against TensorFlow's own simulation: one node per case, each operation counted.

The device does so little in a nanosecond that a single operation or byte more or less shows.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from support.native_simulation import cpu, gpu, simulate_native
from tensorflow.python.framework import op_def_library

from memopt.costs.estimator import GrapplerCosts
from memopt.costs.estimator.registry import FORMULAS, FREE_OPS, MINIMUM_COST_OPS
from memopt.graph.graphdef import from_graph_def
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.native_simulation import NativeSimulation
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.cluster import Device

SLOW_GPU = replace(gpu(), num_cores=1, frequency_mhz=1, bandwidth_kb_per_s=1000)
"""0.128 operations and 0.001 bytes a nanosecond."""

NOT_HERE = {
    # TensorFlow 2.21 has no such op.
    *"AutoReloadVariable BitCast FusedConv2DBiasActivation QuantizedMatMulV2 "
    "QuantizedSigmoid".split(),
    # They are parts of something larger.
    *"Enter Exit Merge NextIteration RefIdentity Switch Variable _ReadVariablesOp _Recv _Send "
    "_VarHandlesOp".split(),
}
"""Ops of which Grappler knows the cost, but that no case has."""


def floats(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.float32)


def halves(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.float16)


def integers(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.int32)


def flags(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.bool)


def quantized(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.quint8)


@dataclass
class Case:
    """One node: a spec becomes a placeholder, anything else is given to the op as it is."""

    op: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    """Attributes that the NodeDef does not spell out."""


def case(op: str, *inputs: Any, without: tuple[str, ...] = (), **attributes: Any) -> Case:
    return Case(op, inputs, attributes, without)


SCALAR = floats()
UNARY = (
    "Acos Asin Atan Ceil Cos Erf Erfc Exp Expm1 Floor Inv Lgamma Log Log1p Neg Reciprocal Relu "
    "Relu6 Rint Round Rsqrt Sigmoid Sign Sin Sqrt Square Tan Tanh Where".split()
)
BINARY = (
    "Add AddV2 ApproximateEqual Atan2 Div Equal FloorDiv FloorMod Greater GreaterEqual InvGrad "
    "Less LessEqual Maximum Minimum Mod Mul NotEqual RealDiv ReluGrad SquaredDifference Sub "
    "TruncateDiv TruncateMod".split()
)
SAME_SHAPE_ONLY = {"ApproximateEqual", "InvGrad", "ReluGrad"}
INTEGERS_ONLY = {"TruncateMod"}
REDUCTIONS = "Max Min Prod Sum".split()
UNFORMULATED = (
    case("Bitcast", floats(3, 5), type=tf.int32),
    case("Elu", floats(3, 5)),
    case("LeakyRelu", floats(3, 5)),
    case("LogSoftmax", floats(3, 5)),
    case("Mean", floats(3, 5, 7), [1]),
    case("Pad", floats(3, 5), [[1, 1], [0, 2]]),
    case("BatchMatMulV3", floats(2, 3, 4), floats(2, 4, 5), Tout=tf.float32),
    case("FusedBatchNormV3", floats(2, 3, 3, 4), *[floats(4)] * 4),
    case("Conv3D", floats(1, 4, 5, 6, 2), floats(2, 2, 2, 2, 3), strides=[1] * 5, padding="SAME"),
    case("ResizeNearestNeighbor", floats(2, 4, 4, 3), [8, 9]),
)
ELEMENTWISE = (
    *(case(op, floats(3, 5)) for op in UNARY),
    *(
        case(op, *(integers(3, 5), integers(3, 5)))
        if op in INTEGERS_ONLY
        else case(op, floats(3, 5), floats(3, 5))
        for op in BINARY
    ),
    *(
        case(op, floats(3, 1, 7), floats(5, 1))
        for op in BINARY
        if op not in SAME_SHAPE_ONLY | INTEGERS_ONLY
    ),
    *(case(op, floats(3, 5, 7), [1]) for op in REDUCTIONS),
    case("All", flags(3, 5, 7), [0, 2]),
    case("ArgMax", floats(3, 5), 1),
    case("LogicalAnd", flags(3, 5), flags(3, 5)),
    case("LogicalOr", flags(3, 5), flags(5)),
    case("LogicalNot", flags(3, 5)),
    case("BiasAdd", floats(3, 5), floats(5)),
    case("Cast", floats(3, 5), DstT=tf.int64),
    case("Select", flags(3, 5), floats(3, 5), floats(3, 5)),
    case("SelectV2", flags(3, 1), floats(1, 5), SCALAR),
    case("TopKV2", floats(3, 9), 2),
    case("AddN", [floats(3, 5)] * 4),
    case("AddN", [floats(3, 5)]),
    case("Dequantize", quantized(3, 5), SCALAR, SCALAR),
    case("QuantizeV2", floats(3, 5), SCALAR, SCALAR, T=tf.quint8),
    case("QuantizeAndDequantizeV2", floats(3, 5), SCALAR, SCALAR),
    case("QuantizeAndDequantizeV4", floats(3, 5), SCALAR, SCALAR),
    *(
        case(op, quantized(3, 5), quantized(3, 5), *[SCALAR] * 4)
        for op in ("QuantizedAdd", "QuantizedMul")
    ),
    case("QuantizedBiasAdd", quantized(3, 5), quantized(5), *[SCALAR] * 4, out_type=tf.qint32),
)
IMAGE, KERNEL, RESULT = floats(2, 11, 13, 6), floats(3, 5, 6, 7), floats(2, 6, 7, 7)
DEPTHWISE_KERNEL, DEPTHWISE_RESULT = floats(3, 5, 6, 2), floats(2, 6, 7, 12)
NCHW_IMAGE = floats(2, 6, 11, 13)
EXPLICIT = {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 3, 4, 0, 0]}


def moved(y: int, x: int, padding: str = "SAME") -> dict[str, Any]:
    return {"strides": [1, y, x, 1], "padding": padding}


def windows(height: int, width: int, y: int, x: int, padding: str = "SAME") -> dict[str, Any]:
    return {"ksize": [1, height, width, 1], **moved(y, x, padding)}


def channels_first(attributes: dict[str, Any]) -> dict[str, Any]:
    def by_axis(value: Any) -> Any:
        return [*value[:1], *value[3:], *value[1:3]] if isinstance(value, list) else value

    moved_axes = {name: by_axis(value) for name, value in attributes.items()}
    return {**moved_axes, "data_format": "NCHW"}


CONVOLUTIONS = (
    case("Conv2D", IMAGE, KERNEL, **moved(2, 3)),
    case("Conv2D", IMAGE, KERNEL, **moved(2, 3, "VALID")),
    case("Conv2D", IMAGE, KERNEL, **moved(1, 1) | EXPLICIT),
    case("Conv2D", NCHW_IMAGE, KERNEL, **channels_first(moved(2, 3, "VALID"))),
    case("Conv2D", IMAGE, floats(3, 5, 3, 8), **moved(1, 1)),  # Two groups.
    case("Conv2D", IMAGE, floats(3, 5, 1, 12), **moved(1, 1)),  # As many as there are channels.
    case("DepthwiseConv2dNative", floats(2, 11, 13, None), DEPTHWISE_KERNEL, **moved(2, 2)),
    case("Conv2D", floats(0, 11, 13, 6), KERNEL, **moved(1, 1)),
    case("Conv2D", floats(None, 11, None, 6), KERNEL, **moved(2, 2)),
    case("Conv2D", floats(2, 11, 13, None), KERNEL, **moved(2, 2)),
    case("Conv2D", halves(2, 11, 13, 6), halves(3, 5, 6, 7), **moved(1, 1)),
    case("DepthwiseConv2dNative", IMAGE, DEPTHWISE_KERNEL, **moved(2, 2)),
    case("Conv2DBackpropInput", [2, 11, 13, 6], KERNEL, RESULT, **moved(2, 2)),
    case("Conv2DBackpropInput", [2, 11, 13, 6], KERNEL, floats(2, 5, 3, 7), **moved(2, 4, "VALID")),
    case("Conv2DBackpropInput", [11, 13], KERNEL, RESULT, **moved(2, 2)),  # Height and width alone.
    case("Conv2DBackpropInput", integers(4), KERNEL, RESULT, **moved(2, 2)),  # Sizes not known.
    case("Conv2DBackpropFilter", IMAGE, [3, 5, 6, 7], floats(2, 6, 5, 7), **moved(2, 3)),
    case(
        "DepthwiseConv2dNativeBackpropInput",
        *([2, 11, 13, 6], DEPTHWISE_KERNEL, DEPTHWISE_RESULT),
        **moved(2, 2),
    ),
    case(
        "DepthwiseConv2dNativeBackpropFilter",
        *(IMAGE, [3, 5, 6, 2], DEPTHWISE_RESULT),
        **moved(2, 2),
    ),
)
POOLED = floats(2, 6, 7, 6)
APART, OVERLAPPING = windows(2, 3, 2, 3), windows(3, 3, 2, 2, "VALID")
WINDOWS = (APART, OVERLAPPING, windows(1, 1, 2, 2), windows(2, 4, 3, 2, "VALID"))
POOLING = (
    *(case(op, IMAGE, **window) for op in ("MaxPool", "AvgPool") for window in WINDOWS),
    *(case(op, NCHW_IMAGE, **channels_first(APART)) for op in ("MaxPool", "AvgPool")),
    *(case("MaxPoolGrad", IMAGE, POOLED, POOLED, **window) for window in WINDOWS),
    *(case("AvgPoolGrad", [2, 11, 13, 6], POOLED, **window) for window in WINDOWS),
    case("MaxPool", floats(None, 11, 13, None), **OVERLAPPING),
    case("AvgPoolGrad", integers(4), POOLED, **OVERLAPPING),
)
PER_CHANNEL = [floats(6)] * 4
NORMALIZATION = (
    case("FusedBatchNorm", IMAGE, *PER_CHANNEL, is_training=True),
    case("FusedBatchNorm", IMAGE, *PER_CHANNEL, is_training=False),
    case("FusedBatchNorm", IMAGE, *PER_CHANNEL, without=("is_training", "data_format")),
    case("FusedBatchNorm", NCHW_IMAGE, *PER_CHANNEL, data_format="NCHW"),
    case("FusedBatchNormGrad", IMAGE, IMAGE, *PER_CHANNEL[:3]),
    case("FusedBatchNormGrad", *[NCHW_IMAGE] * 2, *PER_CHANNEL[:3], data_format="NCHW"),
    case("Softmax", floats(3, 5)),
    case("Softmax", floats(3, 5, 7)),
)
PRODUCTS = (
    case("MatMul", floats(3, 5), floats(5, 7)),
    case("MatMul", floats(5, 3), floats(5, 7), transpose_a=True),
    case("MatMul", floats(3, 5), floats(7, 5), transpose_b=True),
    case("MatMul", floats(3, 5), floats(5, 7), without=("transpose_a", "transpose_b")),
    case("MatMul", floats(None, None), floats(5, 7)),
    case("MatMul", floats(0, 5), floats(5, 7)),
    case("SparseMatMul", floats(3, 5), floats(7, 5), transpose_b=True),
    case("QuantizedMatMul", quantized(3, 5), quantized(5, 7), *[SCALAR] * 4, Toutput=tf.qint32),
    case("BatchMatMul", floats(2, 3, 4, 5), floats(2, 3, 5, 7)),
    case("BatchMatMulV2", floats(2, 1, 4, 5), floats(3, 7, 5), adj_y=True),
    case("BatchMatMulV2", floats(5, 4), floats(3, 5, 7), adj_x=True),
    case("BatchMatMulV2", floats(None, 3, 4), floats(2, 4, 5)),
    case(
        "SparseTensorDenseMatMul",
        tf.TensorSpec((9, 2), tf.int64),
        floats(9),
        [5, 6],
        floats(6, 4),
    ),
    *(
        case("Einsum", [floats(*left), floats(*right)], equation=equation)
        for equation, left, right in (
            ("abc,cd->abd", (2, 3, 5), (5, 7)),
            ("bthd,bshd->bhts", (2, 3, 4, 5), (2, 7, 4, 5)),
            ("ab,bc->ac", (3, 5), (5, 7)),
            ("abc,abc->ab", (2, 3, 5), (2, 3, 5)),
            ("...a,ab->...b", (2, 3, 5), (5, 7)),
            ("aab,bc->ac", (3, 3, 5), (5, 7)),
            ("ab,cd->ad", (3, 5), (2, 7)),
            ("a,ab->b", (3,), (3, 5)),
            ("ab,bc->ac", (None, 5), (5, 7)),
        )
    ),
    case("Einsum", [floats(3, 5)], equation="ab->ba"),
)
MOVEMENT = (
    case("Gather", floats(100, 7), integers(5)),
    case("GatherV2", floats(100, 7), integers(2, 3), 0),
    case("GatherNd", floats(100, 7, 3), integers(5, 2)),
    case("GatherV2", floats(None, 7), integers(None), 0),
    case("Slice", floats(30, 40), [1, 2], [5, 7]),
    case("Slice", floats(30, 40), [1, 2], integers(2)),
    case("StridedSlice", floats(30, 40), [1, 2], [25, 9], [2, 1]),
    case("StridedSlice", floats(30, 40), [1, 2], [25, 9], [1, 1], shrink_axis_mask=1),
    case("ConcatV2", [floats(3, 5), floats(3, 7)], 1),
    case("DataFormatVecPermute", integers(4)),
    case("DepthToSpace", floats(2, 3, 4, 8), block_size=2),
    case("SpaceToDepth", floats(2, 4, 6, 8), block_size=2),
    case("ExpandDims", floats(3, 5), 0),
    case("Squeeze", floats(3, 1, 5)),
    case("Fill", [3, 5], SCALAR),
    case("OneHot", integers(3, 5), 7, SCALAR, SCALAR),
    case("Pack", [floats(3, 5)] * 3),
    case("Unpack", floats(3, 5), num=3),
    case("Range", 1, 12, 2),
    case("Split", 1, floats(3, 8), num_split=4),
    case("Transpose", floats(3, 5, 7), [2, 0, 1]),
    case("Tile", floats(3, 5), [2, 4]),
    case("ResizeBilinear", floats(2, 5, 6, 3), [9, 11], half_pixel_centers=False),
    case("ResizeBilinear", floats(2, 5, 6, 3), [9, 11], half_pixel_centers=True),
    case("ResizeBilinear", floats(2, 5, 6, 3), [9, 11], without=("half_pixel_centers",)),
    *(
        case("CropAndResize", IMAGE, floats(5, 4), integers(5), [7, 9], method=method)
        for method in ("bilinear", "nearest")
    ),
    case("CropAndResize", IMAGE, floats(5, 4), integers(5), [7, 9], without=("method",)),
    case("CropAndResize", IMAGE, floats(None, 4), integers(None), [7, 9]),
)
MINIMUM = (
    *(
        case(op, floats(3, 5))
        for op in "Identity PreventGradient Rank Shape Size StopGradient".split()
    ),
    case("IdentityN", [floats(3, 5), integers(2)]),
    case("ShapeN", [floats(3, 5), floats(2)]),
    case("Reshape", floats(3, 5), [5, 3]),
    case("Placeholder", dtype=tf.float32, shape=[3, 5]),
    case("Const", value=tf.make_tensor_proto([3.0]), dtype=tf.float32),
    case("GuaranteeConst", floats(3, 5)),
    case("NoOp"),
)
CASES = (
    *ELEMENTWISE,
    *CONVOLUTIONS,
    *POOLING,
    *NORMALIZATION,
    *PRODUCTS,
    *MOVEMENT,
    *MINIMUM,
    *UNFORMULATED,
)


def build() -> GraphDef:
    """All cases in one graph, each in a node `case_<number>`, and what works on variables."""
    graph = tf.Graph()
    with graph.as_default():
        for number, given in enumerate(CASES):
            add_case(f"case_{number}", given)
        add_others()
    graph_def: GraphDef = graph.as_graph_def()
    for number, given in enumerate(CASES):
        if given.without:
            node = next(node for node in graph_def.node if node.name == f"case_{number}")
            for name in given.without:
                del node.attr[name]
    return graph_def


def add_case(name: str, given: Case) -> None:
    operation = getattr(tf.raw_ops, given.op)
    names = inspect.signature(operation).parameters
    inputs = dict(zip(names, map(materialized, given.inputs), strict=False))
    operation(**inputs, **given.attributes, name=name)


def materialized(value: Any) -> Any:
    if isinstance(value, tf.TensorSpec):
        return tf.compat.v1.placeholder(value.dtype, value.shape)
    if isinstance(value, list) and any(isinstance(item, tf.TensorSpec) for item in value):
        return [materialized(item) for item in value]
    return value


def add_others() -> None:
    """Variables and what changes them; an op without a Python function."""
    reference = tf.raw_ops.VariableV2(shape=[9, 3, 5], dtype=tf.float32, name="other_reference")
    for op in "Add Div Max Min Mul Sub Update".split():
        getattr(tf.raw_ops, f"Scatter{op}")(
            ref=reference,
            indices=materialized(integers(4)),
            updates=materialized(floats(4, 3, 5)),
            name=f"other_scatter_{op}",
        )
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[3, 5], name="other_handle")
    value = materialized(floats(3, 5))
    tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="other_read")
    tf.raw_ops.AssignVariableOp(resource=handle, value=value, name="other_assign")
    tf.raw_ops.AssignAddVariableOp(resource=handle, value=value, name="other_assign_add")
    tf.raw_ops.AssignSubVariableOp(resource=handle, value=value, name="other_assign_sub")
    matrices = materialized([floats(3, 5), floats(5, 7)])
    names = dict(zip("ab", matrices, strict=True))
    op_def_library.apply_op("XlaEinsum", **names, equation="ab,bc->ac", name="other_einsum")


def native_properties(simulation: NativeSimulation) -> Properties:
    """The shapes that TensorFlow's simulation sees."""
    properties = Properties.unknown()
    for name, node in simulation.nodes.items():
        known = (
            None if shape is None else tuple(max(size, -1) for size in shape)
            for shape in node.output_shapes
        )
        outputs = zip(node.output_dtypes, known, strict=True)
        properties.add(name, tuple(tensor_properties(dtype, shape) for dtype, shape in outputs))
    return properties


class Simulated:
    """TensorFlow's simulation of the cases on some devices, and this package's costs.

    The costs are of the shapes that TensorFlow's simulation sees: here formulas are compared.
    """

    def __init__(self, graph_def: GraphDef, *devices: Device) -> None:
        self.graph = from_graph_def(graph_def)
        self.devices = {device.name: device for device in devices}
        fetch = [node.name for node in graph_def.node]
        self.native: NativeSimulation = simulate_native(graph_def, devices, fetch)
        self.properties = native_properties(self.native)
        self._costs = GrapplerCosts()

    def both(self, name: str) -> tuple[int, int]:
        """The nanoseconds of a node, ours and TensorFlow's."""
        native = self.native.nodes[name]
        ours = self._costs.cost(self.graph[name], self.devices[native.device], self.properties)
        return ours.execution_ns, native.end_ns - native.start_ns


@pytest.fixture(scope="module")
def simulate() -> Callable[..., Simulated]:
    graph_def = build()
    return lambda *devices: Simulated(graph_def, *devices)


@pytest.fixture(scope="module")
def slow(simulate: Callable[..., Simulated]) -> Simulated:
    return simulate(SLOW_GPU)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[given.op for given in CASES])
def test_each_operation_and_each_byte_counts(slow: Simulated, number: int) -> None:
    ours, native = slow.both(f"case_{number}")
    assert ours == native


def test_work_on_variables_and_by_xla(slow: Simulated) -> None:
    names = [node.name for node in slow.graph if node.name.startswith("other_")]
    assert len(names) == 14
    for name in names:
        ours, native = slow.both(name)
        assert ours == native, name


def test_every_formula_has_a_case() -> None:
    tested = {given.op for given in CASES} | {node.op for node in build().node}
    known = FORMULAS.keys() | MINIMUM_COST_OPS | FREE_OPS
    assert known - tested == NOT_HERE


@pytest.mark.parametrize(
    "devices",
    [
        *((replace(SLOW_GPU, architecture=a),) for a in ("2", "3", "3.7", "4", "5", "6", "7.5")),
        (replace(SLOW_GPU, architecture="10.0"),),
        (replace(SLOW_GPU, architecture=""),),
        (replace(SLOW_GPU, bandwidth_kb_per_s=0),),
        (gpu(),),
        (cpu(),),
        (replace(cpu(), num_cores=3, frequency_mhz=1, bandwidth_kb_per_s=7),),
        pytest.param(
            (replace(cpu(), num_cores=0, bandwidth_kb_per_s=0),),
            marks=pytest.mark.not_on_tensorflow("2.18", "times of a CPU without cores overflow"),
        ),
        (replace(cpu(), name="/job:localhost/replica:0/task:0/device:TPU:0", type="TPU"),),
    ],
    ids=lambda devices: f"{devices[0].type}-{devices[0].architecture}",
)
def test_rates_of_devices(simulate: Callable[..., Simulated], devices: tuple[Device, ...]) -> None:
    simulated = simulate(*devices)
    for number, given in enumerate(CASES):
        ours, native = simulated.both(f"case_{number}")
        assert ours == native, given
