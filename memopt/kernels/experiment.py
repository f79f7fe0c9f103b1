"""Experiment: a graph in which one kernel runs between marks, some of its tensors read later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from memopt.graph.op_types import DT_BOOL, DT_FLOAT, DT_INT32, DT_RESOURCE

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
_OPERAND = "operand_"
_VARIABLE = "variable_"
_GIVEN = "given_"
_LATE = "late_"
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


class Experiment(NamedTuple):
    """A graph in which a kernel runs.

    Attributes:
        graph_def: Operands, the kernel, a mark, and late readers: one after the other.
        given: The placeholders to be fed, with a number for each: no operand is a constant, which
            TensorFlow would fold.
        variables: The placeholders of variables' handles, with types and shapes.
        targets: The operations to be asked for.
    """

    graph_def: GraphDef
    given: Mapping[str, tuple[int, float]]
    variables: Mapping[str, Operand]
    targets: Sequence[str]

    @classmethod
    def of(cls, case: KernelCase, readers: Readers) -> Experiment:
        """The experiment in which these tensors are read after the kernel."""
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
        builder.add(MARK, "DeepCopy", (builder.given_number(DT_FLOAT), f"^{TESTED}"), T=DT_FLOAT)
        for slot in sorted(readers.slots):
            builder.late(f"slot_{slot}", f"{_OPERAND}{slot}:0", case.operands[slot].dtype)
        types = _result_types(case)
        for port in sorted(readers.ports):
            builder.late(f"port_{port}", f"{TESTED}:{port}", types[port])
        return cls(graph_def, builder.given, builder.variables, builder.targets)


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
        self.given: dict[str, tuple[int, float]] = {}
        self.variables: dict[str, Operand] = {}
        self.targets = [MARK]
        self._graph_def = graph_def

    def add(self, name: str, op: str, inputs: Sequence[str] = (), **types: int) -> NodeDef:
        node = self._graph_def.node.add(name=name, op=op, device=self.device)
        node.input.extend(inputs)
        for attribute, dtype in types.items():
            node.attr[attribute].type = dtype
        return node

    def operand(self, slot: int, operand: Operand) -> str:
        """An input of the kernel; what it is called."""
        name = f"{_OPERAND}{slot}"
        if operand.numbers is not None:
            return self._constant(name, operand.dtype, operand.shape, operand.numbers)
        if operand.is_variable:
            handle = self._placeholder(f"{_VARIABLE}{slot}", DT_RESOURCE)
            self.variables[handle] = operand
            return handle
        # In memory of its own.
        dims = self._constant(f"{name}_dims", DT_INT32, (len(operand.shape),), operand.shape)
        controls = [f"^{self.last}"] if self.last else []
        inputs = (dims, self.given_number(operand.dtype), *controls)
        self.add(name, "Fill", inputs, T=operand.dtype, index_type=DT_INT32)
        self.last = name
        return name

    def given_number(self, dtype: int) -> str:
        """A number of a type, for all that need one: a half, zero, or true."""
        name = f"{_GIVEN}{dtype}"
        if name not in self.given:
            number = 0.5 if dtype in _FLOATING else int(dtype == DT_BOOL)
            self.given[self._placeholder(name, dtype)] = (dtype, number)
        return name

    def late(self, name: str, tensor: str, dtype: int) -> None:
        """Something that reads a tensor after the mark, and only its shape."""
        late = f"{_LATE}{name}"
        self.add(late, "Shape", (tensor, f"^{MARK}"), T=dtype, out_type=DT_INT32)
        self.targets.append(late)

    def _placeholder(self, name: str, dtype: int) -> str:
        node = self.add(name, "Placeholder", dtype=dtype)
        node.attr["shape"].shape.SetInParent()
        return name

    def _constant(self, name: str, dtype: int, shape: Sequence[int], numbers: Sequence[int]) -> str:
        import numpy as np
        import tensorflow as tf

        values = np.array(numbers, tf.dtypes.as_dtype(dtype).as_numpy_dtype).reshape(shape)
        node = self.add(name, "Const", dtype=dtype)
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values))
        return name


def _result_types(case: KernelCase) -> tuple[int, ...]:
    from memopt.graph.graph import Graph
    from memopt.graph.op_types import port_types

    attributes: Mapping[str, Any] = dict(case.node.attr)
    node = Graph().add_node(TESTED, case.node.op, attributes=attributes)
    return port_types(node).outputs
