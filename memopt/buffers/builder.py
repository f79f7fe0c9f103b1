"""BufferBuilder: places the tensors of a graph, node after node, in buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from memopt.buffers.calls import add_loop
from memopt.buffers.frame_lists import FrameLists
from memopt.buffers.kernel_call import KernelCall
from memopt.buffers.kernel_rules import is_known, memory_by_rule
from memopt.buffers.kernel_signature import is_compiled
from memopt.buffers.nested_steps import Loop, Turn
from memopt.buffers.placed_tensors import PlacedTensors, allocated_bytes
from memopt.buffers.temporary_variables import TEMPORARY, begin_sum
from memopt.buffers.tensor_lists import add_list_op
from memopt.buffers.variables import Variables
from memopt.graph.functiondef import ARGUMENT, RESULT
from memopt.graph.op_types import REF_VARIABLES, SWITCHES, called_functions, joins_branches
from memopt.graph.running import roots_of
from memopt.graph.traversal import Numbering
from memopt.shapes.constant_folding import Folding
from memopt.shapes.constants import constant_numbers
from memopt.shapes.known_integers import KnownIntegers
from memopt.shapes.loop_counters import known_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.buffers.kernel_call import KernelMemory, Placement, Runtime
    from memopt.buffers.nested_steps import Run
    from memopt.buffers.pool import Pool
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.shapes.properties import Properties
    from memopt.shapes.tensor_properties import TensorProperties

_GIVEN = frozenset(
    {"Const", "Placeholder", ARGUMENT, "VarHandleOp", *(REF_VARIABLES - {TEMPORARY})}
)
"""Ops whose outputs are there before the step: a constant lives as long as its kernel."""

_REFERENCE_UPDATES = ("Assign", "Apply", "RefIdentity")
"""What ops begin with whose output is the reference that they are given first."""


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
        in_call: Whether it runs in a call that TensorFlow does not inline: it inlines none inside
            of that either.
        told: By place: what is known of the outputs of nodes.
        memories: By place: what kernels do with memory.
    """

    graph: Graph
    properties: Properties
    folding: Folding
    runtime: Runtime
    given: frozenset[str] = frozenset()
    constants: dict[tuple[int, int], int] = field(default_factory=dict)
    called: dict[tuple[int, str], Callee] = field(default_factory=dict)
    in_call: bool = False
    told: dict[int, Sequence[TensorProperties]] = field(default_factory=dict)
    memories: dict[int, KernelMemory] = field(default_factory=dict)

    @cached_property
    def functions(self) -> frozenset[str]:
        """The functions that its nodes can call."""
        library = self.graph.library
        return frozenset() if library is None else frozenset(library.names())


class BufferBuilder:
    """Places the outputs of the nodes of one run of a graph, producers first.

    Args:
        callee: What runs.
        pool: Where all buffers are.
        arguments: The buffers that a function is given, by number of the argument.
        handles: Likewise the variables that its resources stand for; `None` for other arguments.

    Attributes:
        tensors: The buffers that the nodes allocate and read.
        results: The buffers of a function's results.
        loops: By place: what runs inside of nodes that run functions.
        frames: What lists in loops of Switch and Merge hold.
    """

    def __init__(
        self,
        callee: Callee,
        pool: Pool,
        arguments: Sequence[int] = (),
        handles: Sequence[int | None] = (),
    ) -> None:
        self.tensors = PlacedTensors(callee.graph, callee.properties, pool, callee.told)
        self.results: dict[int, int] = {}
        self.loops: dict[int, Loop] = {}
        self.frames = FrameLists(self.tensors)
        self._callee = callee
        self._arguments = arguments
        self._variables = Variables(self.tensors, handles)
        self._given_to_branches: set[int] = set()
        self._notes: dict[int, int] = {}

    @cached_property
    def _integers(self) -> KnownIntegers:
        """What follows from shapes; made when it is asked for, since it takes numpy."""
        return KnownIntegers(self.tensors.known)

    def run(self) -> None:
        """Place all outputs."""
        for place in self.frames.order:
            self._add(place)
        self.frames.end()

    def turn(self) -> Turn:
        """What a function did, operation by operation, as part of its caller."""
        turn, tensors = Loop(-1), self.tensors
        for place in self.frames.order:
            if place in self.loops:
                turn.run(self.loops[place])
            else:
                turn.add(tensors.made[place], tensors.read[place], tensors.scratch_bytes[place])
        results = [self.results[number] for number in sorted(self.results)]
        return Turn(turn.made, turn.read, turn.scratch_bytes, results)

    def _add(self, place: int) -> None:
        """Place the outputs of a node whose producers have been added."""
        node = self.tensors.numbering.nodes[place]
        outputs = self.tensors.start(place)
        self._variables.follow(place, node)
        if node.op == ARGUMENT and self._arguments:
            self.tensors.give(place, self._arguments[node.attributes["index"].i])
        elif node.op in _GIVEN or node.name in self._callee.given:
            self._add_given(place)
        elif not self._callee.folding.runs[place]:
            self._replace(place, node)
        else:
            self.tensors.hold(place, (self.tensors.buffer(tensor) for tensor in node.inputs))
            self._add_running(place, node, outputs)
            if self._callee.folding.is_folded[place]:
                self._replace(place, node)

    def _add_running(self, place: int, node: Node, outputs: Sequence[TensorProperties]) -> None:
        if node.op == RESULT:
            self.results[node.attributes["index"].i] = self.tensors.buffer(node.inputs[0])
            return
        if self.frames.leaves(place):
            self.tensors.give(place, self.frames.result(place))
            return
        if add_list_op(self.tensors, place, node):
            self.frames.follow(place, node)
            return
        if self._variables.add_op(place, node) or begin_sum(self.tensors, place, node):
            return
        # What XLA compiles is one kernel.
        if not is_compiled(node) and self._add_loop(place, node):
            return
        memory = self._memory(place, node, outputs)
        if node.op.startswith(_REFERENCE_UPDATES):
            for _ in outputs:
                self.tensors.give(place, self.tensors.buffer(node.inputs[0]))
            return
        self._add_kernel(place, node, memory)

    def _memory(self, place: int, node: Node, outputs: Sequence[TensorProperties]) -> KernelMemory:
        """What a kernel does with memory, the same in all runs."""
        memory = self._callee.memories.get(place)
        if memory is None:
            call = self._call(node, outputs)
            measurements = self._callee.runtime.measurements
            memory = None if measurements is None else measurements.find(call)
            if memory is None:
                self._note_unknown(call)
                memory = memory_by_rule(call)
            self._callee.memories[place] = memory
        return memory

    def _note_unknown(self, call: KernelCall) -> None:
        """Remember a kernel that may need memory of which nobody knows."""
        node = call.node
        if is_known(call) or node.op.startswith(_REFERENCE_UPDATES):
            return
        if self._calls(node) and not is_compiled(node):
            return
        size_bytes = sum(tensor.least_bytes for tensor in (*call.inputs, *call.outputs))
        self.tensors.pool.unknown[node.op, node.name] = size_bytes

    def _calls(self, node: Node) -> tuple[str, ...]:
        library = self._callee.graph.library
        return () if library is None else called_functions(node, library)

    def _call(self, node: Node, outputs: Sequence[TensorProperties]) -> KernelCall:
        return KernelCall(
            node,
            [self.tensors.known(tensor) for tensor in node.inputs],
            outputs,
            lambda slot: self._numbers(node.inputs[slot]),
            self._callee.runtime,
        )

    def _numbers(self, tensor: Tensor) -> tuple[int, ...] | None:
        """The integers of a small constant, or of what is folded to one."""
        numbers = constant_numbers(tensor.node)
        if numbers is None:
            place = self.tensors.numbering.place(tensor.node)
            return self._callee.folding.values.get((place, tensor.port))
        return numbers

    def _add_kernel(self, place: int, node: Node, memory: KernelMemory) -> None:
        self.tensors.scratch_bytes[place] = memory.scratch_bytes
        for size_bytes, slots in memory.scratch_buffers:
            self.tensors.make(place, size_bytes, self._free_buffers(node, slots))
        for port, placement in enumerate(memory.placements):
            self.tensors.give(place, self._place_output(place, port, placement))
        if memory.noted_bytes:
            self._notes[place] = self.tensors.make(place, memory.noted_bytes)
        if memory.notes_slot >= 0:
            noting = self.tensors.numbering.place(node.inputs[memory.notes_slot].node)
            if noting in self._notes:
                self.tensors.hold(place, [self._notes[noting]])
        if len(memory.placements) == 1 and self.tensors.made[place]:
            self._keep_number(place, node)

    def _keep_number(self, place: int, node: Node) -> None:
        numbers = [self.tensors.number(tensor) for tensor in node.inputs]
        number = known_number(node, numbers)
        if number is None and self.tensors.outputs(place)[0].shape == ():
            number = self._integers.number(node.output())
        if number is not None:
            self.tensors.pool.numbers[self.tensors.buffers(place)[0]] = number

    def _add_loop(self, place: int, node: Node) -> bool:
        loop = add_loop(self.tensors, self._variables, self, place, node)
        if loop is None:
            return False
        self.loops[place] = loop
        for result in loop.results:
            self.tensors.give(place, result)
        return True

    def names(self) -> frozenset[str]:
        """The functions that can be called."""
        return self._callee.functions

    def callee(self, place: int, name: str) -> Run:
        """A function that a node calls: given buffers and variables, it runs once."""
        callee = self._callee.called.get((place, name))
        if callee is None:
            callee = self._callee.called[place, name] = self._load(name)

        def run(given: Sequence[int], handles: Sequence[int | None]) -> Turn:
            builder = BufferBuilder(callee, self.tensors.pool, given, handles)
            builder.run()
            return builder.turn()

        return run

    @property
    def threads(self) -> int:
        """How many operations may run at once."""
        return self._callee.runtime.inter_op_threads

    def stays_a_call(self, name: str) -> bool:
        """Whether a function is declared not to be inlined, or called where none is."""
        library = self._callee.graph.library
        is_declared = library is not None and library.stays_a_call(name)
        return self._callee.in_call or is_declared

    def _load(self, name: str) -> Callee:
        library, runtime = self._callee.graph.library, self._callee.runtime
        assert library is not None
        graph, properties = library.graph(name), self._callee.properties.function(name)
        results = [node.name for node in graph if node.op == RESULT]
        roots = roots_of(graph, results, library.control_outputs(name), in_function=True)
        folding = Folding.of(
            graph,
            properties if runtime.folds_constants else None,
            is_needed=Numbering.of(graph).running_for(roots),
        )
        return Callee(graph, properties, folding, runtime, in_call=self.stays_a_call(name))

    def _add_given(self, place: int) -> None:
        """The outputs of a node are there before the step and stay, if anybody needs them."""
        if not self._callee.folding.runs[place]:
            return
        for port, tensor in enumerate(self.tensors.outputs(place)):
            self.tensors.give(place, self._constant(place, port, allocated_bytes(tensor)))
        numbers = constant_numbers(self.tensors.numbering.nodes[place])
        if numbers is not None and len(numbers) == 1 and self.tensors.buffers(place):
            self.tensors.pool.numbers[self.tensors.buffers(place)[0]] = numbers[0]

    def _replace(self, place: int, node: Node) -> None:
        """What others than folded nodes read of a folded node becomes a constant."""
        for tensor in node.outputs:
            if self._callee.folding.replaces(self.tensors.numbering, tensor):
                self.tensors.buffer(tensor)
                size_bytes = self.tensors.output_bytes(place, tensor.port)
                constant = self._constant(place, tensor.port, size_bytes)
                self.tensors.buffers(place)[tensor.port] = constant
                number = known_number(node, [self._folded_number(t) for t in node.inputs])
                if number is not None:
                    self.tensors.pool.numbers[constant] = number

    def _place_output(self, place: int, port: int, placement: Placement) -> int:
        inputs = self.tensors.numbering.nodes[place].inputs
        if placement.alias >= 0:
            return self._shared(self.tensors.numbering.nodes[place], inputs[placement.alias])
        reusable = self._free_buffers(self.tensors.numbering.nodes[place], placement.reuses)
        # Inputs that it may take over are as large as the output: a larger buffer has more in it.
        return self.tensors.put(place, self.tensors.output_bytes(place, port), reusable)

    def _shared(self, node: Node, source: Tensor) -> int:
        """The buffer of an input that an output is as well.

        Of what a Merge joins it is what was made in a branch: where what was there before is handed
        on, that is in use in its place.
        """
        buffer = self.tensors.buffer(source)
        if node.op in SWITCHES:
            self._given_to_branches.add(buffer)
        if not joins_branches(node):
            return buffer
        pool = self.tensors.pool
        joined = dict.fromkeys(self.tensors.buffer(tensor) for tensor in node.inputs)
        return min(
            joined,
            key=lambda each: (
                pool.lasting[each],
                each in self._given_to_branches,
                -pool.size_bytes[each],
            ),
        )

    def _free_buffers(self, node: Node, slots: Sequence[int]) -> list[int]:
        """The buffers at input slots, without those that the node reads twice: it holds them."""
        if not slots:
            return []
        read = [self.tensors.buffer(tensor) for tensor in node.inputs]
        return [read[slot] for slot in slots if read.count(read[slot]) == 1]

    def _folded_number(self, tensor: Tensor) -> int | None:
        numbers = constant_numbers(tensor.node)
        if numbers is None:
            return self.tensors.number(tensor)
        return numbers[0] if len(numbers) == 1 else None

    def _constant(self, place: int, port: int, size_bytes: int) -> int:
        """The buffer of a constant, the same for equal ones and whenever the function runs."""
        constants = self._callee.constants
        key = self._callee.folding.same.get((place, port), (place, port))
        if key not in constants:
            constants[key] = self.tensors.pool.add(size_bytes, lasting=True)
        return constants[key]
