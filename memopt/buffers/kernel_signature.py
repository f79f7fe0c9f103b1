"""What a kernel's memory and time depend on, in a form that is equal in every process."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.device_types import device_type_of
from memopt.graph import op_types
from memopt.graph.attributes import format_attribute
from memopt.graph.functiondef import ARGUMENT
from memopt.graph.op_types import DT_RESOURCE, DT_STRING, DT_VARIANT
from memopt.item import COMPILED
from memopt.shapes.function_calls import CALLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.buffers.kernel_call import KernelCall
    from memopt.graph.functiondef import Bodies
    from memopt.graph.graph import Node, Tensor
    from memopt.item import VariableSpec
    from memopt.shapes.tensor_properties import TensorProperties

_READ_ONLY = "_read_only_resource_inputs"
_IRRELEVANT = frozenset({"config_proto", "config", "executor_type", "container", "shared_name"})
_IRRELEVANT_SEEDS = frozenset({"seed", "seed2"})
_RANDOM = ("Random", "StatelessRandom", "TruncatedNormal", "ParameterizedTruncatedNormal")
"""What ops begin with that draw numbers: the only ops with a state that may run at will."""

_RANDOM_KEYS = "StatelessRandomGet"
_SHAPES_OF_OUTPUTS = {
    **dict.fromkeys(("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"), 1),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), 0),
    **dict.fromkeys(
        ("DepthwiseConv2dNativeBackpropInput", "AvgPoolGrad", "AvgPool3DGrad", "Fill"), 0
    ),
    "DepthwiseConv2dNativeBackpropFilter": 1,
    **dict.fromkeys(("Reshape", "BroadcastTo"), 1),
    "StridedSliceGrad": 0,
}
"""The inputs that say what shape the output has, even where they are no constants."""

_ONLY_READ = frozenset({"ResourceGather", "ResourceGatherNd"})
"""And those whose state is a variable that they read."""

_DEEPEST_CALLS = 64
_DIGEST_DIGITS = 16


class Operand(NamedTuple):
    """An input of a kernel.

    Attributes:
        dtype: TensorFlow's enumeration value of the element type.
        shape: All dimensions.
        numbers: What a small constant of integers holds; `None` for others.
        is_variable: Whether it is a handle of a variable of that type and shape, only read.
    """

    dtype: int
    shape: tuple[int, ...]
    numbers: tuple[int, ...] | None = None
    is_variable: bool = False


class KernelSignature(NamedTuple):
    """What a kernel's memory and time depend on, besides the machine and its settings.

    Attributes:
        op: The op.
        attributes: By name, as text; functions by what they compute, not by their names.
        operands: The inputs.
        results: Types and shapes of the outputs.
        device: The type of the device, such as "CPU".
    """

    op: str
    attributes: tuple[tuple[str, str], ...]
    operands: tuple[Operand, ...]
    results: tuple[tuple[int, tuple[int, ...]], ...]
    device: str = "CPU"

    @property
    def key(self) -> str:
        """A digest, the same in every process."""
        return hashlib.sha256(json.dumps(self).encode()).hexdigest()[:32]

    def __str__(self) -> str:
        operands = ", ".join(_operand_text(operand) for operand in self.operands)
        named = ", ".join(f"{name}={value}" for name, value in self.attributes)
        return f"{self.op}({operands}) {named} on {self.device}"


class Signatures:
    """Tells the signatures of calls of one graph.

    Args:
        bodies: The functions that the graph's nodes call, by name; `None` where there is none.
        variables: The variables that placeholders of the main graph stand for, by node name.
    """

    def __init__(self, bodies: Bodies, variables: Mapping[str, VariableSpec]) -> None:
        self._bodies = bodies
        self._variables = variables
        self._digests: dict[str, str] = {}

    def why_not(self, call: KernelCall) -> str:
        """Why a kernel cannot be run alone; "" if it can."""
        node = call.node
        if not all(tensor.is_known for tensor in call.outputs):
            return "the shape of an output is not known"
        for slot, tensor in enumerate(call.inputs):
            why_not = self._why_not_input(node.inputs[slot], tensor)
            if why_not:
                return why_not
        if not is_compiled(node):
            return _why_not_alone(node)
        writes = _resources(call) - set(node.attributes[_READ_ONLY].list.i)
        return "it updates variables" if writes else ""

    def of(self, call: KernelCall) -> KernelSignature | None:
        """The signature of a call; `None` if its kernel cannot be run alone."""
        if self.why_not(call):
            return None
        node = call.node
        return KernelSignature(
            node.op,
            tuple((name, self._text(value)) for name, value in relevant_attributes(node)),
            tuple(self._operand(call, slot) for slot in range(len(call.inputs))),
            tuple((tensor.dtype, tensor.shape or ()) for tensor in call.outputs),
            device_type_of(node),
        )

    def _why_not_input(self, tensor: Tensor, known: TensorProperties) -> str:
        if known.dtype == DT_RESOURCE:
            return "" if self._variable(tensor) else "it is given what is no known variable"
        if known.dtype in (DT_STRING, DT_VARIANT):
            return "it is given texts or lists"
        return "" if known.is_known else "the shape of an input is not known"

    def _operand(self, call: KernelCall, slot: int) -> Operand:
        known = call.inputs[slot]
        if known.dtype == DT_RESOURCE:
            dtype, shape = self._variable(call.node.inputs[slot]) or (0, ())
            return Operand(dtype, shape, is_variable=True)
        return Operand(known.dtype, known.shape or (), _numbers(call, slot))

    def _variable(self, tensor: Tensor) -> tuple[int, tuple[int, ...]] | None:
        """Type and shape of the variable that a resource stands for."""
        node = tensor.node
        if node.name in self._variables:
            spec = self._variables[node.name]
            return None if -1 in spec.shape else (spec.dtype, tuple(spec.shape))
        if node.op == "VarHandleOp":
            dtype, shape = node.attributes["dtype"].type, node.attributes["shape"].shape
        elif node.op == ARGUMENT and "_handle_shapes" in node.attributes:
            dtypes = node.attributes["_handle_dtypes"].list.type
            shapes = node.attributes["_handle_shapes"].list.shape
            if len(dtypes) != 1 or len(shapes) != 1:
                return None
            dtype, shape = dtypes[0], shapes[0]
        else:
            return None
        sizes = tuple(dimension.size for dimension in shape.dim)
        return None if shape.unknown_rank or -1 in sizes else (dtype, sizes)

    def _text(self, value: AttrValue, depth: int = 0) -> str:
        kind = value.WhichOneof("value")
        if kind == "func":
            return self._digest(value.func.name, depth)
        if kind == "list" and value.list.func:
            return ",".join(self._digest(function.name, depth) for function in value.list.func)
        if kind == "tensor":
            return hashlib.sha256(value.SerializeToString(deterministic=True)).hexdigest()
        return format_attribute(value)

    def _digest(self, name: str, depth: int) -> str:
        """What a function computes, whatever it, its nodes and its arguments are called."""
        if name not in self._digests:
            body = self._bodies(name) if depth < _DEEPEST_CALLS else None
            if body is None or not body.node_def:
                return f"function {name}"
            described = json.dumps(list(self._described(body, depth + 1)))
            digest = hashlib.sha256(described.encode()).hexdigest()[:_DIGEST_DIGITS]
            self._digests[name] = f"function {digest}"
        return self._digests[name]

    def _described(self, body: FunctionDef, depth: int) -> list[object]:
        places = {arg.name: f"a{place}" for place, arg in enumerate(body.signature.input_arg)}
        places |= {node.name: f"n{place}" for place, node in enumerate(body.node_def)}

        def renamed(tensor: str) -> str:
            control = "^" if tensor.startswith("^") else ""
            name, colon, rest = tensor.removeprefix("^").partition(":")
            return f"{control}{places.get(name, name)}{colon}{rest}"

        nodes = [
            (
                node.op,
                [renamed(name) for name in node.input],
                [(name, self._text(value, depth)) for name, value in relevant_attributes(node)],
            )
            for node in body.node_def
        ]
        results = [renamed(body.ret[result.name]) for result in body.signature.output_arg]
        types = [arg.type for arg in body.signature.input_arg]
        return [types, nodes, results, sorted(map(renamed, body.control_ret.values()))]


def _numbers(call: KernelCall, slot: int) -> tuple[int, ...] | None:
    """What an input of integers holds: a small constant, or the shape of the output."""
    numbers = call.constants(slot)
    shape = call.outputs[0].shape if call.outputs else None
    if numbers is None and shape is not None and call.inputs[slot].shape == (len(shape),):
        return shape if _is_shape_of_output(call.node.op, slot) else None
    return numbers


def _is_shape_of_output(op: str, slot: int) -> bool:
    is_random = op.startswith(_RANDOM) and not op.startswith(_RANDOM_KEYS)
    return _SHAPES_OF_OUTPUTS.get(op) == slot or (is_random and slot == 0)


def is_compiled(node: Node) -> bool:
    """Whether XLA compiles what a call runs."""
    compiled = node.attributes.get(COMPILED) if node.op in CALLS else None
    return compiled is not None and compiled.b and _READ_ONLY in node.attributes


def relevant_attributes(node: Node | NodeDef) -> list[tuple[str, AttrValue]]:
    """The attributes that a kernel's memory or time may depend on, by name."""
    attributes = node.attr if hasattr(node, "attr") else node.attributes
    left_out = _IRRELEVANT
    if node.op.startswith(_RANDOM):
        left_out |= _IRRELEVANT_SEEDS
    return [
        (name, attributes[name])
        for name in sorted(attributes)
        if name == COMPILED or not (name.startswith("_") or name in left_out)
    ]


def _why_not_alone(node: Node) -> str:
    """Why an op must not run at will; "" for one without an effect."""
    known = op_types.signature(node.op)
    if known is None:
        return "it is a function, whose operations run as kernels of their own"
    if known.function_attributes:
        return "it runs functions, whose operations are kernels of their own"
    if known.is_stateful and not (node.op.startswith(_RANDOM) or node.op in _ONLY_READ):
        return "it has an effect or a state"
    if any(argument.is_ref for argument in (*known.inputs, *known.outputs)):
        return "it works on references"
    return ""


def _resources(call: KernelCall) -> set[int]:
    return {slot for slot, tensor in enumerate(call.inputs) if tensor.dtype == DT_RESOURCE}


def _operand_text(operand: Operand) -> str:
    from tensorflow.core.framework import types_pb2

    name = types_pb2.DataType.Name(operand.dtype).removeprefix("DT_").lower()
    text = f"{name}[{','.join(map(str, operand.shape))}]"
    if operand.is_variable:
        return f"variable {text}"
    return text if operand.numbers is None else f"{text}={list(operand.numbers)}"
