"""Triggers that a compiler respects: what is computed again waits for data, not for control edges.

XLA drops control edges and merges equal operations. Its optimization barriers keep copies apart, as
those of `jax.checkpoint` do, but on a CPU they are taken out before equal operations are merged for
the last time. What no compiler can take out is a computation whose result it does not know.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from memopt.graph import op_types
from memopt.graph.attributes import type_attribute
from memopt.graph.copy_names import TRIGGER_PREFIX, free_name
from memopt.shapes.tensor_properties import ELEMENT_BYTES, TensorProperties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.context import Context
    from memopt.graph.graph import Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.shapes.properties import Properties

_FLOAT, _INT32, _BOOL, _BFLOAT16 = 1, 3, 10, 14
_BITS = {_FLOAT: _INT32, 2: 9, 14: 5, 19: 5}
"""Types of floating point, and the integers of as many bits: float, double, bfloat16, half."""
KEPT_PREFIX = "Kept/"


class Triggers(Protocol):
    """A way to let tensors wait for another one."""

    def hold(self, tensors: Sequence[Tensor], trigger: Tensor) -> dict[Tensor, Tensor]:
        """The same values as other tensors, which are not there before the trigger.

        Returns:
            By tensor what takes its place; the trigger may be among them, too.
        """


def can_wait(tensor: Tensor, rewriter: Rewriter) -> bool:
    """Whether a tensor can be held back: what a compiler has to know before it compiles cannot."""
    return not tensor.node.op.endswith("Const") and _dtype(tensor, rewriter) in _BITS


def least_bytes(tensor: Tensor, properties: Properties) -> int:
    """The bytes that a tensor has at least; 0 for one of which nothing is known."""
    outputs = properties.outputs(tensor.node.name)
    return outputs[tensor.port].least_bytes if tensor.port < len(outputs) else 0


def is_mask(tensor: Tensor, rewriter: Rewriter) -> bool:
    """Whether a tensor is of true and false."""
    return _dtype(tensor, rewriter) == _BOOL


class _Builder:
    """Adds nodes under names of their own; the properties learn what they make."""

    def __init__(self, rewriter: Rewriter, context: Context, prefix: str) -> None:
        self._rewriter = rewriter
        self._properties = context.properties
        self._prefix = prefix
        self._constants: dict[tuple[str, int, str], Tensor] = {}

    def _add(self, of: Tensor, op: str, inputs: Sequence[Tensor], **attributes: int) -> Tensor:
        """A node of one output beside another one, which has the shape of the first input."""
        typed = {name: type_attribute(dtype) for name, dtype in attributes.items()}
        name = self._free_name(f"{of.node.name}/{op}")
        node = self._rewriter.add_node(
            name, op, inputs=inputs, device=of.node.device, attributes=typed
        )
        return node.output(0)

    def _learn(self, made: Tensor, like: Tensor, dtype: int) -> Tensor:
        """Note that a tensor has the shape of another, in elements of a type."""
        outputs = self._properties.outputs(like.node.name)
        if like.port < len(outputs):
            shape = outputs[like.port].shape
            self._note(made, shape, dtype)
        return made

    def _note(self, made: Tensor, shape: Any, dtype: int) -> Tensor:
        size_bytes = None
        if shape is not None and -1 not in shape:
            size_bytes = ELEMENT_BYTES.get(dtype, 0)
            for size in shape:
                size_bytes *= size
        self._properties.add(made.node.name, (TensorProperties(dtype, shape, size_bytes),))
        return made

    def _constant(self, of: Tensor, numbers: Any) -> Tensor:
        from tensorflow.core.framework import attr_value_pb2
        from tensorflow.python.framework import tensor_util

        key = (str(numbers), _INT32, of.node.device)
        if key not in self._constants:
            value = attr_value_pb2.AttrValue()
            value.tensor.CopyFrom(tensor_util.make_tensor_proto(numbers, _INT32))
            node = self._rewriter.add_node(
                self._free_name("Const"),
                "Const",
                device=of.node.device,
                attributes={"dtype": type_attribute(_INT32), "value": value},
            )
            shape = (len(numbers),) if isinstance(numbers, list) else ()
            self._constants[key] = self._note(node.output(0), shape, _INT32)
        return self._constants[key]

    def _free_name(self, name: str) -> str:
        return free_name(self._prefix + name, self._rewriter.graph)


class DataTriggers(_Builder):
    """Lets tensors wait by computing with a zero that is made of the trigger.

    The first bits i of the trigger give i (i + 1) & 1, which is 0 whatever they are; only, no
    compiler knows. It is added to the bits of what has to wait, exclusively or, which changes none.
    """

    def __init__(self, rewriter: Rewriter, context: Context) -> None:
        super().__init__(rewriter, context, TRIGGER_PREFIX)
        self._zeros: dict[Tensor, Tensor] = {}

    def hold(self, tensors: Sequence[Tensor], trigger: Tensor) -> dict[Tensor, Tensor]:
        """The same values as other tensors, which are not there before the trigger."""
        if trigger not in self._zeros:
            self._zeros[trigger] = self._zero(trigger)
        return {tensor: self._wait(tensor, self._zeros[trigger]) for tensor in tensors}

    def _zero(self, of: Tensor) -> Tensor:
        """A zero, int32, that nobody can know before a tensor is there."""
        dtype = _dtype(of, self._rewriter)
        flat = self._add(of, "Reshape", [of, self._constant(of, [-1])], T=dtype, Tshape=_INT32)
        bounds = [self._constant(of, [0]), self._constant(of, [1])]
        first = self._add(of, "Slice", [flat, *bounds], T=dtype, Index=_INT32)
        one = self._add(of, "Reshape", [first, self._constant(of, [])], T=dtype, Tshape=_INT32)
        if dtype != _FLOAT:
            one = self._note(self._add(of, "Cast", [one], SrcT=dtype, DstT=_FLOAT), (), _FLOAT)
        bits = self._add(of, "Bitcast", [one], T=_FLOAT, type=_INT32)
        number = self._constant(of, 1)
        after = self._add(of, "AddV2", [bits, number], T=_INT32)
        product = self._add(of, "Mul", [bits, after], T=_INT32)
        zero = self._add(of, "BitwiseAnd", [product, number], T=_INT32)
        for made in (bits, after, product, zero):
            self._note(made, (), _INT32)
        return zero

    def _wait(self, tensor: Tensor, zero: Tensor) -> Tensor:
        dtype = _dtype(tensor, self._rewriter)
        integer = _BITS[dtype]
        if integer != _INT32:
            zero = self._note(
                self._add(tensor, "Cast", [zero], SrcT=_INT32, DstT=integer), (), integer
            )
        bits = self._add(tensor, "Bitcast", [tensor], T=dtype, type=integer)
        same = self._add(tensor, "BitwiseXor", [bits, zero], T=integer)
        waited = self._add(tensor, "Bitcast", [same], T=integer, type=dtype)
        for made, of_type in ((bits, integer), (same, integer), (waited, dtype)):
            self._learn(made, tensor, of_type)
        return waited


class BarrierTriggers(_Builder):
    """Lets tensors wait by an optimization barrier over them and the trigger, as JAX does.

    For compilers that keep it until they have an order (XLA for GPUs and TPUs).
    """

    def __init__(self, rewriter: Rewriter, context: Context) -> None:
        super().__init__(rewriter, context, TRIGGER_PREFIX)

    def hold(self, tensors: Sequence[Tensor], trigger: Tensor) -> dict[Tensor, Tensor]:
        """The same values as other tensors and the trigger, none of which is there before it."""
        from tensorflow.core.framework import attr_value_pb2

        held = list(dict.fromkeys((*tensors, trigger)))
        types = attr_value_pb2.AttrValue()
        dtypes = [_dtype(tensor, self._rewriter) for tensor in held]
        types.list.type.extend(dtypes)
        node = self._rewriter.add_node(
            self._free_name(tensors[0].node.name),
            "XlaOptimizationBarrier",
            inputs=held,
            device=tensors[0].node.device,
            attributes={"T": types},
        )
        known = [self._properties.outputs(tensor.node.name) for tensor in held]
        if all(tensor.port < len(outputs) for tensor, outputs in zip(held, known, strict=True)):
            outputs = tuple(k[tensor.port] for tensor, k in zip(held, known, strict=True))
            self._properties.add(node.name, outputs)
        return {tensor: node.output(port) for port, tensor in enumerate(held)}


class Keeper(_Builder):
    """Makes results stay in memory that XLA would rather compute again from what is larger.

    What has several large operands, and a reader that is a kernel of its own, is computed once
    (`ComputeGloballyUnfusible`). So x becomes: where x equals itself, x, and else, for what is no
    number, x + x, which is x. That is computed where x is, in the same kernel.

    What is true or false becomes 1 or 0 in bfloat16, and true or false again. XLA takes the first
    conversion for costly, and does that once, too (`CpuInstructionFusion::IsExpensive`).
    """

    def __init__(self, rewriter: Rewriter, context: Context) -> None:
        super().__init__(rewriter, context, KEPT_PREFIX)

    def keep(self, tensor: Tensor) -> Tensor:
        """The same values, in memory."""
        dtype = _dtype(tensor, self._rewriter)
        if dtype == _BOOL:
            return self._keep_mask(tensor)
        is_number = self._add(tensor, "Equal", [tensor, tensor], T=dtype)
        double = self._add(tensor, "AddV2", [tensor, tensor], T=dtype)
        kept = self._add(tensor, "SelectV2", [is_number, tensor, double], T=dtype)
        self._learn(is_number, tensor, _BOOL)
        self._learn(double, tensor, dtype)
        return self._learn(kept, tensor, dtype)

    def _keep_mask(self, mask: Tensor) -> Tensor:
        made = mask
        for source, target in pairwise((_BOOL, _FLOAT, _BFLOAT16, _BOOL)):
            made = self._add(mask, "Cast", [made], SrcT=source, DstT=target)
            self._learn(made, mask, target)
        return made


def _dtype(tensor: Tensor, rewriter: Rewriter) -> int:
    return op_types.port_types(tensor.node, rewriter.graph.library).outputs[tensor.port]
