"""The cost model itself: what is guessed, what is remembered, and formulas of ops long gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memopt.cluster import Device
from memopt.costs.cost_model import Cost
from memopt.costs.estimator import GrapplerCosts
from memopt.graph.attributes import parse_attribute
from memopt.graph.graph import Graph, Node
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import Shape, TensorProperties, tensor_properties

DT_FLOAT, DT_INT32, DT_STRING, DT_BFLOAT16, DT_RESOURCE = 1, 3, 7, 14, 20
DEVICE = Device("CPU:0", "CPU", frequency_mhz=1000, num_cores=10, bandwidth_kb_per_s=10_000_000)
"""Ten operations and ten bytes a nanosecond, as in TensorFlow's own tests."""

MOVED = {"strides": "<list { i: 1 i: 1 i: 1 i: 1 }>", "padding": '"SAME"'}
STUCK = {"strides": "<list { i: 1 i: 0 i: 1 i: 1 }>"}
IMPOSSIBLE = Cost(0, 0, 0, inaccurate=True)


class Case:
    """One node, and shapes around it that no inference has to agree with."""

    def __init__(
        self, op: str, inputs: list[Shape], outputs: list[Shape], **attributes: str
    ) -> None:
        self.graph = Graph()
        self.properties = Properties.unknown()
        producers = [self._add(f"input_{slot}", "Producer", [s]) for slot, s in enumerate(inputs)]
        self.node = self._add("node", op, outputs, **attributes)
        self.graph.connect(self.node, tuple(producer.output() for producer in producers))

    def _add(self, name: str, op: str, outputs: list[Shape], **attributes: str) -> Node:
        values = {key: parse_attribute(value) for key, value in attributes.items()}
        self.properties.add(name, tuple(tensor(shape) for shape in outputs))
        return self.graph.add_node(name, op, attributes=values)

    def cost(self, device: Device = DEVICE, costs: GrapplerCosts | None = None) -> Cost:
        return (costs or GrapplerCosts()).cost(self.node, device, self.properties)


def tensor(shape: Shape, dtype: int = DT_FLOAT) -> TensorProperties:
    return tensor_properties(dtype, shape)


def cost_of(op: str, inputs: list[Shape], outputs: list[Shape], **attributes: str) -> Cost:
    return Case(op, inputs, outputs, **attributes).cost()


# The numbers are those that TensorFlow's op_level_cost_estimator_test.cc expects.
@pytest.mark.parametrize(
    ("data_format", "image", "side"),
    [
        ("NHWC", (16, 19, 19, 48), (16, 19, 19, 256)),
        ("NCHW", (16, 48, 19, 19), (16, 256, 19, 19)),
        ("NCHW_VECT_C", (16, 12, 19, 19, 4), (16, 64, 19, 19, 4)),
    ],
)
@pytest.mark.parametrize(
    ("filter_format", "kernel"),
    [
        ("HWIO", (5, 5, 48, 256)),
        ("OIHW", (256, 48, 5, 5)),
        ("OIHW_VECT_I", (256, 12, 5, 5, 4)),
    ],
)
def test_the_fused_convolution_is_the_sum_of_its_parts(
    data_format: str, image: Shape, side: Shape, filter_format: str, kernel: Shape
) -> None:
    attributes = {
        "data_format": f'"{data_format}"',
        "filter_format": f'"{filter_format}"',
        **MOVED,
    }
    inputs: list[Shape] = [image, kernel, (256,), side, (), ()]
    case = Case("FusedConv2DBiasActivation", inputs, [side], **attributes)
    assert case.cost() == (357033576, 355616768, 1416808, False)
    case.properties.add("input_3", (tensor((), dtype=0),))  # No side input, not even of a type.
    assert case.cost() == (356146382, 355321037, 825345, False)


def test_ops_that_are_gone_cost_what_they_did() -> None:
    assert cost_of("QuantizedSigmoid", [(100,)], [(100,)]).compute_ns == 40 * 100 / 10
    product = cost_of("QuantizedMatMulV2", [(30, 70), (50, 70)], [(30, 50)], transpose_b="true")
    assert product.compute_ns == 2 * 30 * 50 * 70 / 10
    assert cost_of("BitCast", [(3, 5)], [(3, 5)]) == (1, 1, 0, False)


@pytest.mark.parametrize(
    "op",
    "AutoReloadVariable Const Enter Exit Identity Merge NextIteration Placeholder ReadVariableOp "
    "RefIdentity Reshape Shape Switch VarHandleOp Variable _ReadVariablesOp _Recv _Send "
    "_VarHandlesOp".split(),
)
def test_what_copies_nothing_takes_a_nanosecond_anywhere(op: str) -> None:
    channel = Device("Channel: from GPU to CPU", "Channel")
    for device in (DEVICE, channel):
        assert Case(op, [(3, 5)], [(3, 5)]).cost(device) == (1, 1, 0, False)
        assert Case(op, [(3, 5)], [(3, -1)]).cost(device) == (1, 1, 0, True)
        assert Case(op, [(3, 5)], [None]).cost(device) == (1, 1, 0, True)


def test_what_does_nothing_takes_no_time() -> None:
    assert cost_of("NoOp", [], []) == (0, 0, 0, False)
    assert cost_of("GuaranteeConst", [None], [None]) == (0, 0, 0, False)


def test_arithmetic_and_memory_are_rounded_up_one_by_one() -> None:
    assert cost_of("Sqrt", [(3, 5)], [(3, 5)]) == (24, 12, 12, False)
    assert cost_of("Sqrt", [(3,)], [(3,)]) == (6, 3, 3, False)


def test_an_unknown_op_is_a_guess_from_its_bytes() -> None:
    assert cost_of("Mystery", [(1000,), (10,)], [(500,), ()]) == (605, 0, 605, True)
    # A batch matrix product and an Einstein summation that grew beyond what Grappler knows.
    assert cost_of("BatchMatMulV3", [(2, 30, 5), (2, 5, 7)], [(2, 30, 7)]).compute_ns == 0
    summed = cost_of("Einsum", [(30, 50), (20, 70)], [(30, 70)], equation='"ab,cd->ad"')
    assert summed == (2000, 0, 2000, True)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attributes"),
    [
        ("Relu", [(-1, 5)], [(1, 5)], {}),
        ("Relu", [(1, 5)], [(-1, 5)], {}),
        ("Relu", [None], [None], {}),
        ("MatMul", [(-1, 5), (5, 7)], [(1, 7)], {}),
        ("MatMul", [(1, 3, 5), (5, 7)], [(3, 7)], {}),
        ("BatchMatMul", [(5,), (1, 5, 7)], [(1, 7)], {}),
        ("Conv2D", [(2, -1, 9, 3), (3, 3, 3, 8)], [(2, 1, 9, 8)], MOVED),
        ("Conv2D", [(2, 9, 9, 5), (3, 3, 3, 8)], [(2, 9, 9, 8)], MOVED),
        ("MaxPool", [(2, 9, 9)], [(2, 9, 9)], MOVED),
        ("FusedBatchNorm", [(2, 9, 9, -1), (3,)], [(2, 9, 9, 3)], {}),
        ("GatherV2", [(9, 9), (-1,), ()], [(3, 9)], {}),
        ("ScatterAdd", [(9, -1), (3,), (3, 1)], [(9, 1)], {}),
        ("AssignVariableOp", [(), (3, -1)], [], {}),
        ("ResizeBilinear", [(2, 3, 3, 1), (2,)], [(2, -1, 5, 1)], {}),
    ],
)
def test_what_is_not_known_counts_as_one_and_is_told(
    op: str, inputs: list[Shape], outputs: list[Shape], attributes: dict[str, str]
) -> None:
    cost = cost_of(op, inputs, outputs, **attributes)
    assert cost.inaccurate
    ones: list[Shape] = [s and tuple(1 if n < 0 else n for n in s) for s in inputs]
    results: list[Shape] = [s and tuple(1 if n < 0 else n for n in s) for s in outputs]
    assert cost == cost_of(op, ones, results, **attributes)._replace(inaccurate=True)


@pytest.mark.parametrize("op", ["Conv2D", "DepthwiseConv2dNative"])
def test_a_depth_is_that_of_the_image_or_of_the_filter(op: str) -> None:
    known = cost_of(op, [(2, 9, 9, 3), (3, 3, 3, 8)], [(2, 9, 9, 8)], **MOVED)
    of_filter = cost_of(op, [(2, 9, 9, -1), (3, 3, 3, 8)], [(2, 9, 9, 8)], **MOVED)
    of_image = cost_of(op, [(2, 9, 9, 3), (3, 3, -1, 8)], [(2, 9, 9, 8)], **MOVED)
    assert known.compute_ns == of_filter.compute_ns == of_image.compute_ns


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attributes"),
    [
        ("Conv2D", [(2, 9, 0, 3), (3, 3, 3, 8)], [(2, 9, 0, 8)], MOVED),
        ("Conv2DBackpropInput", [(4,), (3, 3, 0, 8), (2, 9, 9, 8)], [(2, 9, 9, 0)], MOVED),
        ("Conv2D", [(2, 9, 9, 3), (3, 3, 3, 8)], [(2, 9, 9, 8)], STUCK),
        ("MaxPool", [(2, 9, 9, 3)], [(2, 9, 9, 3)], STUCK),
        ("Softmax", [()], [()], {}),
        ("Softmax", [None], [None], {}),
        ("CropAndResize", [(2, 9, 9, 3), (-1, 4), (-1,), (2,)], [(-1, 5, 5, 3)], {}),
        ("GatherV2", [(9, 9), (3,), ()], [], {}),
    ],
)
def test_what_cannot_be_costs_nothing(
    op: str, inputs: list[Shape], outputs: list[Shape], attributes: dict[str, str]
) -> None:
    assert cost_of(op, inputs, outputs, **attributes) == IMPOSSIBLE


def test_a_node_of_which_nothing_was_inferred_is_a_guess() -> None:
    case = Case("MatMul", [(3, 5), (5, 7)], [(3, 7)])
    for properties in (Properties.unknown(), case.properties):
        cost = GrapplerCosts().cost(case.node, DEVICE, properties)
        assert cost.inaccurate == (properties is not case.properties)
    lonely = Case("MatMul", [], [])
    assert lonely.cost().inaccurate


def test_types_have_their_sizes() -> None:
    case = Case("Mystery", [], [(1000,)])
    bytes_of = {DT_BFLOAT16: 2000, DT_STRING: 0, DT_RESOURCE: 0, DT_INT32: 4000, 29: 1000}
    for dtype, size_bytes in bytes_of.items():
        case.properties.add("node", (tensor((1000,), dtype),))
        assert case.cost().memory_ns == size_bytes / 10


def test_equal_nodes_share_a_cost_and_others_do_not() -> None:
    costs = GrapplerCosts()
    shapes: list[Shape] = [(30, 30), (30, 30)]
    first = Case("MatMul", shapes, [(30, 30)], transpose_a="false")
    again = Case("MatMul", shapes, [(30, 30)], transpose_a="false", grad_a="true")
    assert first.cost(costs=costs) is again.cost(costs=costs)
    assert first.cost(replace(DEVICE), costs) is first.cost(costs=costs)
    faster = first.cost(replace(DEVICE, num_cores=20), costs)
    assert faster.compute_ns * 2 == first.cost(costs=costs).compute_ns
    assert Case("MatMul", shapes, [(30, 31)]).cost(costs=costs) != first.cost(costs=costs)
    uneven: list[Shape] = [(30, 20), (30, 20)]
    plain = Case("MatMul", uneven, [(20, 20)], transpose_a="false")
    transposed = Case("MatMul", uneven, [(20, 20)], transpose_a="true")
    assert plain.cost(costs=costs).compute_ns != transposed.cost(costs=costs).compute_ns


def test_a_gpu_that_tells_no_rate_still_takes_time() -> None:
    gpu = Device("GPU:0", "GPU", architecture="7")
    assert Case("Relu", [(1000,)], [(1000,)]).cost(gpu) == (1080, 1000, 80, False)
