"""BufferBuilder: places the tensors of a graph, node after node, in buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from memopt.buffers.calls import add_loop
from memopt.buffers.kernel_rules import (
    KernelCall,
    Placement,
    Runtime,
    placements,
    scratch_buffers,
    scratch_bytes,
)
from memopt.buffers.nested_steps import Loop, Turn
from memopt.buffers.tensor_lists import LIST_BYTES, add_list_op
from memopt.buffers.variables import Variables
from memopt.graph import op_types
from memopt.graph.functiondef import ARGUMENT, RESULT
from memopt.graph.op_types import DT_RESOURCE, DT_STRING, DT_VARIANT, REF_VARIABLES
from memopt.graph.traversal import Numbering
from memopt.shapes.constant_folding import Folding
from memopt.shapes.constants import constant_numbers
from memopt.shapes.loop_counters import known_number
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memopt.buffers.nested_steps import Run
    from memopt.buffers.pool import Pool
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.shapes.properties import Properties
    from memopt.shapes.tensor_properties import TensorProperties

_GIVEN = frozenset({"Const", "Placeholder", ARGUMENT, "VarHandleOp", *REF_VARIABLES})
"""Ops whose outputs are there before the step: a constant lives as long as its kernel."""

_REFERENCE_UPDATES = ("Assign", "Apply", "RefIdentity")
"""What ops begin with whose output is the reference that they are given first."""

_HANDLE_BYTES = 200
"""The size of a scalar that refers to a resource."""

_TEXT_BYTES = 24
"""What refers to a text; long ones lie in memory that is not TensorFlow's allocator's."""

_NOTHING_KNOWN = tensor_properties(0, None)


@dataclass(frozen=True)
class Callee:
    """A graph or function body, with what is the same whenever it runs.

    Attributes:
        graph: The nodes.
        properties: The sizes of its tensors.
        folding: Which of them are constants.
        runtime: What the kernels run on.
        given: Names of nodes that the caller gives.
        constants: By place and port of the first of equal ones: the buffers of constants, which
            all runs share.
        called: By place and name: the functions that nodes call, of which the same holds.
    """

    graph: Graph
    properties: Properties
    folding: Folding
    runtime: Runtime
    given: frozenset[str] = frozenset()
    constants: dict[tuple[int, int], int] = field(default_factory=dict)
    called: dict[tuple[int, str], Callee] = field(default_factory=dict)


class BufferBuilder:
    """Places the outputs of the nodes of one run of a graph, producers first.

    Args:
        callee: What runs.
        pool: Where all buffers are.
        arguments: The buffers that a function is given, by number of the argument.
        handles: Likewise the variables that its resources stand for; `None` for other arguments.

    Attributes:
        pool: Where all buffers are.
        numbering: The nodes.
        made: By place: the buffers that a node allocates.
        read: By place: the buffers that it reads.
        scratch_bytes: By place: the memory that its kernel has only while it runs.
        results: The buffers of a function's results.
        loops: By place: what runs inside of nodes that run functions.
        variables: The variables behind its resources.
    """

    def __init__(
        self,
        callee: Callee,
        pool: Pool,
        arguments: Sequence[int] = (),
        handles: Sequence[int | None] = (),
    ) -> None:
        self.pool = pool
        self.numbering = Numbering.of(callee.graph)
        count = len(self.numbering.nodes)
        self.made: list[list[int]] = [[] for _ in range(count)]
        self.read: list[list[int]] = [[] for _ in range(count)]
        self.scratch_bytes = [0] * count
        self.results: dict[int, int] = {}
        self.loops: dict[int, Loop] = {}
        self._callee = callee
        self._arguments = arguments
        self._outputs: list[Sequence[TensorProperties]] = [()] * count
        self._buffers: list[list[int]] = [[] for _ in range(count)]
        """By node: for each output port its buffer."""
        self.variables = Variables(self, handles)

    def run(self) -> None:
        """Place all outputs."""
        for place in self.numbering.order:
            self._add(place)

    def turn(self) -> Turn:
        """What a function did, operation by operation, as part of its caller."""
        turn = Loop(-1)
        for place in self.numbering.order:
            if place in self.loops:
                turn.run(self.loops[place])
            else:
                turn.add(self.made[place], self.read[place], self.scratch_bytes[place])
        results = [self.results[number] for number in sorted(self.results)]
        return Turn(turn.made, turn.read, turn.scratch_bytes, results)

    def _add(self, place: int) -> None:
        """Place the outputs of a node whose producers have been added."""
        node = self.numbering.nodes[place]
        outputs = self._outputs[place] = self._known(node)
        self._buffers[place] = []
        self.variables.follow(place, node)
        if node.op == ARGUMENT and self._arguments:
            self._buffers[place] = [self._arguments[node.attributes["index"].i]]
        elif node.op in _GIVEN or node.name in self._callee.given:
            self._add_given(place)
        elif not self._callee.folding.runs[place]:
            self._replace(place, node)
        else:
            self.hold(place, (self.buffer(tensor) for tensor in node.inputs))
            self._add_running(place, node, outputs)
            if self._callee.folding.is_folded[place]:
                self._replace(place, node)

    def _add_running(self, place: int, node: Node, outputs: Sequence[TensorProperties]) -> None:
        if node.op == RESULT:
            self.results[node.attributes["index"].i] = self.buffer(node.inputs[0])
            return
        if add_list_op(self, place, node) or self.variables.add_op(place, node):
            return
        if self._add_loop(place, node):
            return
        if node.op.startswith(_REFERENCE_UPDATES):
            self._buffers[place] = [self.buffer(node.inputs[0]) for _ in outputs]
            return
        self._add_kernel(place, node, outputs)

    def _add_kernel(self, place: int, node: Node, outputs: Sequence[TensorProperties]) -> None:
        call = KernelCall(
            node,
            [self.known(tensor) for tensor in node.inputs],
            outputs,
            lambda slot: constant_numbers(node.inputs[slot].node),
            self._callee.runtime,
        )
        self.scratch_bytes[place] = scratch_bytes(call)
        for size_bytes, slots in scratch_buffers(call):
            self.make(place, size_bytes, self._free_buffers(node, slots))
        for port, placement in enumerate(placements(call)):
            self._buffers[place].append(self._place_output(place, port, placement))
        if len(outputs) == 1 and self.made[place]:
            self._keep_number(place, node)

    def _keep_number(self, place: int, node: Node) -> None:
        numbers = [self.number(tensor) for tensor in node.inputs]
        number = known_number(node, numbers)
        if number is not None:
            self.pool.numbers[self._buffers[place][0]] = number

    def _add_loop(self, place: int, node: Node) -> bool:
        loop = add_loop(self, place, node)
        if loop is None:
            return False
        self.loops[place] = loop
        self._buffers[place] = loop.results
        return True

    def library_names(self) -> frozenset[str]:
        """The functions that can be called."""
        library = self._callee.graph.library
        return frozenset() if library is None else frozenset(library.names())

    def callee(self, place: int, name: str) -> Run:
        """A function that a node calls: given buffers and variables, it runs once."""
        callee = self._callee.called.get((place, name))
        if callee is None:
            callee = self._callee.called[place, name] = self._load(name)

        def run(given: Sequence[int], handles: Sequence[int | None]) -> Turn:
            builder = BufferBuilder(callee, self.pool, given, handles)
            builder.run()
            return builder.turn()

        return run

    def _load(self, name: str) -> Callee:
        library, runtime = self._callee.graph.library, self._callee.runtime
        assert library is not None
        graph, properties = library.graph(name), self._callee.properties.function(name)
        folding = Folding.of(graph, properties if runtime.folds_constants else None)
        return Callee(graph, properties, folding, runtime)

    def buffer(self, tensor: Tensor) -> int:
        """The buffer in which a tensor lies."""
        place, port = self._key(tensor)
        buffers = self._buffers[place]
        while len(buffers) <= port:
            # Nothing is known of the tensor, or it comes from the end of a loop.
            buffers.append(self.pool.add(0, lasting=True))
        return buffers[port]

    def elements(self, tensor: Tensor) -> tuple[int, ...]:
        """The buffers of a list's elements, -1 for one not set."""
        return self.pool.contents.get(self.buffer(tensor), ())

    def number(self, tensor: Tensor) -> int | None:
        """The integer that a tensor of one element holds, if it is known."""
        return self.pool.numbers.get(self.buffer(tensor))

    def known(self, tensor: Tensor) -> TensorProperties:
        """What is known of a tensor."""
        place, port = self._key(tensor)
        outputs = self._outputs[place]
        return outputs[port] if port < len(outputs) else _NOTHING_KNOWN

    def outputs(self, place: int) -> Sequence[TensorProperties]:
        """What is known of a node's outputs."""
        return self._outputs[place]

    def _known(self, node: Node) -> Sequence[TensorProperties]:
        """What is known of a node's outputs, with an entry for each even if it is nothing."""
        known = self._callee.properties.outputs(node.name)
        signature = None if known else op_types.signature(node.op, self._callee.graph.library)
        if signature is None or not signature.outputs:
            return known
        types = op_types.port_types(node, self._callee.graph.library).outputs
        return [tensor_properties(dtype, None) for dtype in types]

    def output_bytes(self, place: int, port: int) -> int:
        """The bytes of an output."""
        outputs = self._outputs[place]
        return _bytes_of(outputs[port]) if port < len(outputs) else 0

    def make(self, place: int, size_bytes: int, reusable: Sequence[int] = ()) -> int:
        """A buffer that a node allocates; it may be put into others only of its own size."""
        sizes = self.pool.size_bytes
        buffer = self.pool.add(size_bytes, [b for b in reusable if sizes[b] == size_bytes])
        self.made[place].append(buffer)
        return buffer

    def give(self, place: int, buffer: int) -> None:
        """The next output of a node lies in this buffer."""
        self._buffers[place].append(buffer)

    def give_list(
        self, place: int, elements: tuple[int, ...], reusable: Sequence[int] = ()
    ) -> None:
        """The next output of a node is a list of these elements."""
        buffer = self.make(place, LIST_BYTES, reusable)
        self.pool.contents[buffer] = elements
        self.give(place, buffer)

    def _add_given(self, place: int) -> None:
        """The outputs of a node are there before the step and stay, if anybody needs them."""
        if not self._callee.folding.runs[place]:
            return
        for port, tensor in enumerate(self._outputs[place]):
            self.give(place, self._constant(place, port, _bytes_of(tensor)))
        numbers = constant_numbers(self.numbering.nodes[place])
        if numbers is not None and len(numbers) == 1 and self._buffers[place]:
            self.pool.numbers[self._buffers[place][0]] = numbers[0]

    def _replace(self, place: int, node: Node) -> None:
        """What others than folded nodes read of a folded node becomes a constant."""
        for tensor in node.outputs:
            if self._callee.folding.replaces(self.numbering, tensor):
                self.buffer(tensor)
                size_bytes = self.output_bytes(place, tensor.port)
                constant = self._constant(place, tensor.port, size_bytes)
                self._buffers[place][tensor.port] = constant
                number = known_number(node, [self._folded_number(t) for t in node.inputs])
                if number is not None:
                    self.pool.numbers[constant] = number

    def _place_output(self, place: int, port: int, placement: Placement) -> int:
        inputs = self.numbering.nodes[place].inputs
        if placement.alias >= 0:
            return self.buffer(inputs[placement.alias])
        reusable = self._free_buffers(self.numbering.nodes[place], placement.reuses)
        return self.make(place, self.output_bytes(place, port), reusable)

    def _free_buffers(self, node: Node, slots: Sequence[int]) -> list[int]:
        """The buffers at input slots, without those that the node reads twice: it holds them."""
        if not slots:
            return []
        read = [self.buffer(tensor) for tensor in node.inputs]
        return [read[slot] for slot in slots if read.count(read[slot]) == 1]

    def _folded_number(self, tensor: Tensor) -> int | None:
        numbers = constant_numbers(tensor.node)
        if numbers is None:
            return self.number(tensor)
        return numbers[0] if len(numbers) == 1 else None

    def _constant(self, place: int, port: int, size_bytes: int) -> int:
        """The buffer of a constant, the same for equal ones and whenever the function runs."""
        constants = self._callee.constants
        key = self._callee.folding.same.get((place, port), (place, port))
        if key not in constants:
            constants[key] = self.pool.add(size_bytes, lasting=True)
        return constants[key]

    def hold(self, place: int, buffers: Iterable[int]) -> None:
        """A node reads these buffers, and the elements of those that are lists."""
        found = self.pool.with_contents(buffers)
        self.read[place] = list(dict.fromkeys((*self.read[place], *found)))

    def _key(self, tensor: Tensor) -> tuple[int, int]:
        return self.numbering.place(tensor.node), tensor.port


def _bytes_of(tensor: TensorProperties) -> int:
    """What a tensor takes: handles, lists and texts have a size of their own."""
    if tensor.dtype == DT_RESOURCE:
        return _HANDLE_BYTES
    if tensor.dtype == DT_STRING:
        return _TEXT_BYTES * (prod(tensor.shape or ()) if tensor.is_known else 1)
    return LIST_BYTES if tensor.dtype == DT_VARIANT else tensor.least_bytes
