"""Triggers that a compiler respects: what is computed again waits for data, not for control edges.

XLA drops control edges and merges equal operations. Its optimization barriers keep copies apart, as
those of `jax.checkpoint` do, but on a CPU they are taken out before equal operations are merged for
the last time. What no compiler can take out is a computation whose result it does not know.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from memopt.graph import op_types
from memopt.graph.copy_names import TRIGGER_PREFIX
from memopt.graph.functiondef import ARGUMENT
from memopt.graph.op_types import (
    DT_BFLOAT16,
    DT_BOOL,
    DT_DOUBLE,
    DT_FLOAT,
    DT_INT32,
    DT_INT64,
)
from memopt.rematerialization.rewriting.node_builder import NodeBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.context import Context
    from memopt.graph.graph import Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.shapes.properties import Properties

_BITS = {DT_FLOAT: DT_INT32, DT_DOUBLE: DT_INT64, DT_BFLOAT16: 5, 19: 5}
"""Types of floating point, and the integers of as many bits: float, double, bfloat16, half."""
KEPT_PREFIX = "Kept/"
READS = "ReadVariableOp"
_SOURCES = frozenset({"Placeholder", ARGUMENT, "VarHandleOp"})
_ONE = 0x3F800000
"""The bits of 1 as a float."""


class Triggers(Protocol):
    """A way to let tensors wait for another one."""

    def hold(self, tensors: Sequence[Tensor], trigger: Tensor) -> dict[Tensor, Tensor]:
        """The same values as other tensors, which are not there before the trigger.

        Returns:
            By tensor what takes its place; the trigger may be among them, too.
        """


def can_wait(tensor: Tensor, rewriter: Rewriter) -> bool:
    """Whether a tensor can be held back: what a compiler has to know before it compiles cannot."""
    return not tensor.node.op.endswith("Const") and dtype_of(tensor, rewriter) in _BITS


def least_bytes(tensor: Tensor, properties: Properties) -> int:
    """The bytes that a tensor has at least; 0 for one of which nothing is known."""
    known = properties.tensor(tensor.name)
    return 0 if known is None else known.least_bytes


def find_known(rewriter: Rewriter, context: Context) -> Tensor | None:
    """What is there when the step begins: a variable's value, or what it is given; not empty."""
    for node in rewriter.graph:
        is_read = node.op == READS and all(one.node.op in _SOURCES for one in node.inputs)
        if (is_read or node.op in _SOURCES) and not node.control_inputs and node.outputs:
            tensor = node.output(0)
            is_there = least_bytes(tensor, context.properties) > 0
            if is_there and dtype_of(tensor, rewriter) == DT_FLOAT:
                return tensor
    return None


def is_mask(tensor: Tensor, rewriter: Rewriter) -> bool:
    """Whether a tensor is of true and false."""
    return dtype_of(tensor, rewriter) == DT_BOOL


class DataTriggers(NodeBuilder):
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

    def unknown_one(self, of: Tensor) -> Tensor:
        """A one, float, that nobody can know before a tensor is there."""
        if of not in self._zeros:
            self._zeros[of] = self._zero(of)
        bits = self.add(of, "BitwiseXor", [self.constant(of, _ONE), self._zeros[of]], T=DT_INT32)
        one = self.add(of, "Bitcast", [self.note(bits, (), DT_INT32)], T=DT_INT32, type=DT_FLOAT)
        return self.note(one, (), DT_FLOAT)

    def _zero(self, of: Tensor) -> Tensor:
        """A zero, int32, that nobody can know before a tensor is there."""
        dtype = dtype_of(of, self.rewriter)
        flat = self.add(of, "Reshape", [of, self.constant(of, [-1])], T=dtype, Tshape=DT_INT32)
        bounds = [self.constant(of, [0]), self.constant(of, [1])]
        first = self.add(of, "Slice", [flat, *bounds], T=dtype, Index=DT_INT32)
        one = self.add(of, "Reshape", [first, self.constant(of, [])], T=dtype, Tshape=DT_INT32)
        if dtype != DT_FLOAT:
            one = self.note(self.add(of, "Cast", [one], SrcT=dtype, DstT=DT_FLOAT), (), DT_FLOAT)
        bits = self.add(of, "Bitcast", [one], T=DT_FLOAT, type=DT_INT32)
        number = self.constant(of, 1)
        after = self.add(of, "AddV2", [bits, number], T=DT_INT32)
        product = self.add(of, "Mul", [bits, after], T=DT_INT32)
        zero = self.add(of, "BitwiseAnd", [product, number], T=DT_INT32)
        for made in (bits, after, product, zero):
            self.note(made, (), DT_INT32)
        return zero

    def _wait(self, tensor: Tensor, zero: Tensor) -> Tensor:
        dtype = dtype_of(tensor, self.rewriter)
        integer = _BITS[dtype]
        if integer != DT_INT32:
            zero = self.note(
                self.add(tensor, "Cast", [zero], SrcT=DT_INT32, DstT=integer), (), integer
            )
        bits = self.add(tensor, "Bitcast", [tensor], T=dtype, type=integer)
        same = self.add(tensor, "BitwiseXor", [bits, zero], T=integer)
        waited = self.add(tensor, "Bitcast", [same], T=integer, type=dtype)
        for made, of_type in ((bits, integer), (same, integer), (waited, dtype)):
            self.learn(made, tensor, of_type)
        return waited


class BarrierTriggers(NodeBuilder):
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
        dtypes = [dtype_of(tensor, self.rewriter) for tensor in held]
        types.list.type.extend(dtypes)
        node = self.rewriter.add_node(
            self.free_name(tensors[0].node.name),
            "XlaOptimizationBarrier",
            inputs=held,
            device=tensors[0].node.device,
            attributes={"T": types},
        )
        known = [self.properties.outputs(tensor.node.name) for tensor in held]
        if all(tensor.port < len(outputs) for tensor, outputs in zip(held, known, strict=True)):
            outputs = tuple(k[tensor.port] for tensor, k in zip(held, known, strict=True))
            self.properties.add(node.name, outputs)
        return {tensor: node.output(port) for port, tensor in enumerate(held)}


class Keeper(NodeBuilder):
    """Makes results stay in memory that XLA would rather compute again from what is larger.

    What has several large operands, and a reader that is a kernel of its own, is computed once
    (`ComputeGloballyUnfusible`). So x becomes: where x equals itself, x, and else, for what is no
    number, x + x, which is x. That is computed where x is, in the same kernel.

    A kernel that reads it in another shape does not help: XLA reads what it has made of x for that,
    and computes x again for others. Divided by a one that no compiler knows it is what it was, and
    costly, so that it is computed once, whoever reads it (`InstructionFusion::IsExpensive`).

    What is true or false becomes 1 or 0 in bfloat16, and true or false again. XLA takes the first
    conversion for costly as well (`CpuInstructionFusion::IsExpensive`).
    """

    def __init__(self, rewriter: Rewriter, context: Context) -> None:
        super().__init__(rewriter, context, KEPT_PREFIX)
        self._triggers = DataTriggers(rewriter, context)
        self._known = find_known(rewriter, context)

    def keep(self, tensor: Tensor, *, is_reshaped: bool = False) -> Tensor:
        """The same values, in memory.

        Args:
            tensor: What is kept.
            is_reshaped: Whether all kernels that read it do so in another shape.
        """
        dtype = dtype_of(tensor, self.rewriter)
        if dtype == DT_BOOL:
            return self._keep_mask(tensor)
        if is_reshaped and dtype == DT_FLOAT and self._known is not None:
            return divide(self, tensor, self._triggers.unknown_one(self._known))
        is_number = self.add(tensor, "Equal", [tensor, tensor], T=dtype)
        double = self.add(tensor, "AddV2", [tensor, tensor], T=dtype)
        kept = self.add(tensor, "SelectV2", [is_number, tensor, double], T=dtype)
        self.learn(is_number, tensor, DT_BOOL)
        self.learn(double, tensor, dtype)
        return self.learn(kept, tensor, dtype)

    def _keep_mask(self, mask: Tensor) -> Tensor:
        made = mask
        for source, target in pairwise((DT_BOOL, DT_FLOAT, DT_BFLOAT16, DT_BOOL)):
            made = self.add(mask, "Cast", [made], SrcT=source, DstT=target)
            self.learn(made, mask, target)
        return made


def divide(builder: NodeBuilder, tensor: Tensor, one: Tensor) -> Tensor:
    """The same values, of floats, in memory: divided by a one that no compiler knows."""
    divided = builder.add(tensor, "RealDiv", [tensor, one], T=DT_FLOAT)
    return builder.learn(divided, tensor, DT_FLOAT)


def dtype_of(tensor: Tensor, rewriter: Rewriter) -> int:
    """The type of a tensor, by TensorFlow's number."""
    return op_types.port_types(tensor.node, rewriter.graph.library).outputs[tensor.port]
