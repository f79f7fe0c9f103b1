"""Experiment: a graph in which one kernel runs between marks, some of its tensors read later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from tensorflow.core.framework.function_pb2 import FunctionDefLibrary
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.buffers.kernel_signature import Operand
    from memopt.runtime.replay import AllocationEvent

TESTED = "tested"
MARK = "mark"
LATE = "late"
_OPERAND = "operand_"
_VARIABLE = "variable_"
_ASSIGNMENT = "assignment_"
_DT_BOOL = 10
_DT_INT32 = 3
_DT_FLOAT = 1
_FLOATING = frozenset({1, 2, 8, 14, 18, 19})


@dataclass(frozen=True)
class KernelCase:
    """A kernel to be run alone.

    Attributes:
        node: Its op and attributes; no inputs.
        operands: What it is given.
        result_bytes: Bytes of its outputs as they are known, by port.
        device: The type of the device that it runs on.
        library: The functions that it runs.
    """

    node: NodeDef
    operands: Sequence[Operand]
    result_bytes: Sequence[int]
    device: str
    library: FunctionDefLibrary

    @property
    def slots(self) -> frozenset[int]:
        """The inputs whose buffers it could take over: no constants, no variables."""
        return frozenset(
            slot
            for slot, operand in enumerate(self.operands)
            if operand.numbers is None and not operand.is_variable
        )

    @property
    def ports(self) -> frozenset[int]:
        """The outputs that take memory."""
        return frozenset(port for port, size in enumerate(self.result_bytes) if size)


class Readers(NamedTuple):
    """What is still read when the kernel has run.

    Attributes:
        slots: Inputs.
        ports: Outputs.
    """

    slots: frozenset[int]
    ports: frozenset[int]


def experiment(case: KernelCase, readers: Readers) -> GraphDef:
    """Operands, the kernel, a mark, and late readers: one after the other.

    The targets to run are `MARK` and what begins with `LATE`; before, once, what begins with the
    names that `assignments` tells.
    """
    from tensorflow.core.framework import graph_pb2

    graph_def: GraphDef = graph_pb2.GraphDef()
    graph_def.library.CopyFrom(case.library)
    builder = _Builder(graph_def, f"/device:{case.device}:0")
    names = [builder.operand(slot, operand) for slot, operand in enumerate(case.operands)]
    tested = graph_def.node.add()
    tested.CopyFrom(case.node)
    tested.name, tested.device = TESTED, builder.device
    del tested.input[:]
    tested.input.extend(names)
    if builder.last:
        tested.input.append(f"^{builder.last}")
    builder.constant("mark_value", _DT_FLOAT, (), 1.0)
    builder.add(MARK, "DeepCopy", ("mark_value", f"^{TESTED}"), T=_DT_FLOAT)
    for slot in sorted(readers.slots):
        builder.late(f"slot_{slot}", f"{_OPERAND}{slot}:0", case.operands[slot].dtype)
    types = _result_types(case)
    for port in sorted(readers.ports):
        builder.late(f"port_{port}", f"{TESTED}:{port}", types[port])
    return graph_def


def assignments(case: KernelCase) -> list[str]:
    """The operations that give the variables values, to be run before."""
    return [
        f"{_ASSIGNMENT}{slot}" for slot, operand in enumerate(case.operands) if operand.is_variable
    ]


def targets(readers: Readers) -> list[str]:
    """The operations to run."""
    late = [f"slot_{slot}" for slot in readers.slots] + [f"port_{port}" for port in readers.ports]
    return [MARK, *(f"{LATE}_{name}" for name in sorted(late))]


@dataclass(frozen=True)
class Allocations:
    """What happened between the last operand and the mark.

    Attributes:
        kept_bytes: Sizes of the buffers that were allocated and are there at the mark.
        kept_slots: The inputs whose buffers are there at the mark.
        scratch_bytes: The most that was in use beyond what is kept.
    """

    kept_bytes: tuple[int, ...]
    kept_slots: frozenset[int]
    scratch_bytes: int

    @classmethod
    def of(cls, events: Iterable[AllocationEvent]) -> Allocations:
        """What the allocator did during one run of an experiment."""
        operands: dict[int, int] = {}
        live: dict[int, int] = {}
        in_use_bytes = peak_bytes = 0
        for event in events:
            if event.kind == "free":
                operands.pop(event.address, None)
                in_use_bytes -= live.pop(event.address, 0)
            elif event.operation == MARK:
                break
            elif event.operation.startswith(_OPERAND):
                operands[event.address] = int(event.operation.removeprefix(_OPERAND))
            else:
                live[event.address] = event.size_bytes
                in_use_bytes += event.size_bytes
                peak_bytes = max(peak_bytes, in_use_bytes)
        kept = tuple(live.values())
        return cls(kept, frozenset(operands.values()), peak_bytes - sum(kept))


class _Builder:
    """Adds nodes to a graph, all on one device, the operands one after the other."""

    def __init__(self, graph_def: GraphDef, device: str) -> None:
        self.device = device
        self.last = ""
        self._graph_def = graph_def

    def add(self, name: str, op: str, inputs: Sequence[str] = (), **types: int) -> NodeDef:
        node = self._graph_def.node.add(name=name, op=op, device=self.device)
        node.input.extend(inputs)
        for attribute, dtype in types.items():
            node.attr[attribute].type = dtype
        return node

    def constant(self, name: str, dtype: int, shape: Sequence[int], value: Any) -> str:
        """A constant of one value, or of the given ones."""
        import numpy as np
        import tensorflow as tf

        kind = tf.dtypes.as_dtype(dtype).as_numpy_dtype
        array = np.broadcast_to(np.array(value).astype(kind), shape)
        node = self.add(name, "Const", dtype=dtype)
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array, dtype=dtype))
        return name

    def operand(self, slot: int, operand: Operand) -> str:
        """An input of the kernel; what it is called."""
        name = f"{_OPERAND}{slot}"
        if operand.numbers is not None:
            import numpy as np

            values = np.array(operand.numbers).reshape(operand.shape)
            return self.constant(f"constant_{slot}", operand.dtype, operand.shape, values)
        if operand.is_variable:
            return self._variable(slot, operand)
        self._filled(name, operand, (f"^{self.last}",) if self.last else ())
        self.last = name
        return name

    def _filled(self, name: str, operand: Operand, controls: Sequence[str] = ()) -> str:
        """A tensor in memory of its own: halves, zeros, or true."""
        value = 0.5 if operand.dtype in _FLOATING else operand.dtype == _DT_BOOL
        dims = self.constant(f"{name}_dims", _DT_INT32, (len(operand.shape),), operand.shape)
        filling = self.constant(f"{name}_value", operand.dtype, (), value)
        self.add(name, "Fill", (dims, filling, *controls), T=operand.dtype, index_type=_DT_INT32)
        return name

    def _variable(self, slot: int, operand: Operand) -> str:
        name = f"{_VARIABLE}{slot}"
        node = self.add(name, "VarHandleOp", dtype=operand.dtype)
        node.attr["shared_name"].s = name.encode()
        node.attr["shape"].shape.SetInParent()
        for size in operand.shape:
            node.attr["shape"].shape.dim.add().size = size
        value = self._filled(f"{name}_filled", operand)
        self.add(f"{_ASSIGNMENT}{slot}", "AssignVariableOp", (name, value), dtype=operand.dtype)
        return name

    def late(self, name: str, tensor: str, dtype: int) -> None:
        """Something that reads a tensor after the mark, and only its shape."""
        self.add(f"{LATE}_{name}", "Shape", (tensor, f"^{MARK}"), T=dtype, out_type=_DT_INT32)


def _result_types(case: KernelCase) -> tuple[int, ...]:
    from memopt.graph.graph import Graph
    from memopt.graph.op_types import port_types

    attributes: Mapping[str, Any] = dict(case.node.attr)
    node = Graph().add_node(TESTED, case.node.op, attributes=attributes)
    return port_types(node).outputs
