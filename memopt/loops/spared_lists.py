"""Writes a pair of loops without lists of what every turn is given: the second is given it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph.attributes import type_attribute
from memopt.graph.copy_names import free_name
from memopt.graph.functiondef import RESULT
from memopt.graph.op_types import (
    COLOCATED,
    DT_INT32,
    DT_INT64,
    DT_RESOURCE,
    require_signature,
)
from memopt.loops.bounded_loops import loop_attributes
from memopt.loops.function_body import Value
from memopt.loops.pairs import idle_readers, reads_of, source
from memopt.loops.rewritten_loop import become, functions_of, read_only, turns_of, variables_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.loops.bounded_loops import Turns
    from memopt.loops.function_body import FunctionBody
    from memopt.loops.pairs import Loop, PairedLists
    from memopt.shapes.properties import Properties

_READS = frozenset({"ReadVariableOp", "Identity", RESULT})
_TAKE_OUT = frozenset(
    "Const Identity TensorListGetItem StridedSlice Slice Gather GatherV2 Reshape ExpandDims "
    "Squeeze Pack".split()
)
"""Ops that take something out of a tensor and compute nothing, so they may do so twice."""
_COUNT = frozenset({"Add", "AddV2", "Sub", "Mul", "Minimum", "Maximum"})
"""Ops that may do so twice on integers, which they find parts by."""
_MOST_TAKEN = 32
"""Of how many operations a part of what is given may be taken out."""


class Spared(NamedTuple):
    """A list of a pair of loops that need not be there.

    Attributes:
        position: That of the list in the first loop.
        slot: And in the other one.
        element: What a turn of the first loop puts in.
        nodes: How that is taken out of what every turn is given, in an order; none if it is that.
        given: The positions in the first loop of what every turn is given for that.
        read: What other lists hold that is needed for it: by the slots of these.
    """

    position: int
    slot: int
    element: Tensor
    nodes: tuple[Node, ...]
    given: tuple[int, ...]
    read: Mapping[Tensor, int]


def find_only_read(loop: Loop) -> list[int]:
    """The positions of the variables of which a loop reads values, and nothing else."""
    inputs = [source(tensor) for tensor in loop.node.inputs]
    return [
        position
        for position, argument in enumerate(loop.body.arguments)
        if argument.attributes["T"].type == DT_RESOURCE
        and loop.body.hands_on(position)
        and inputs.count(inputs[position]) == 1
        and reads_of(loop.body, position)
        and all(user.op in _READS for user in _users_behind(argument))
        and not loop.test.arguments[position].output().uses
    ]


def read_before(
    rewriter: Rewriter, loop: Loop, positions: Collection[int], properties: Properties
) -> None:
    """Let a loop be given the values of variables that its turns read.

    Args:
        rewriter: Changes the graph; an edit is open.
        loop: The loop.
        positions: Those of the variables, by `find_only_read`.
        properties: What is known of a turn.
    """
    node = loop.node
    test, body = functions_of(loop)
    given, variables = list(node.inputs), variables_of(loop, rewriter.graph.library)
    for position in positions:
        read = reads_of(loop.body, position)[0]
        known = properties.tensor(read.output().name)
        dtype = read.attributes["dtype"].type
        variables[position] = Value("", dtype, None if known is None else known.shape)
        for function in (body, test):
            function.be_given_values(position, dtype)
        rewriter.replace_uses(node.output(position), given[position])
        given[position] = rewriter.add_node(
            free_name(f"{node.name}/{read.name}", rewriter.graph),
            read.op,
            inputs=[given[position]],
            control_inputs=node.control_inputs,
            device=node.device,
            attributes={"dtype": type_attribute(dtype)},
        ).output()
    everything = range(len(variables))
    stays = [-1 if position in positions else position for position in everything]
    turns = turns_of(loop, f"{loop.body_name}_given", everything, (test, body))
    attributes = loop_attributes(rewriter, turns, variables) | read_only(node, stays)
    become(rewriter, node, everything, attributes, given)


def find_spared(pair: PairedLists) -> list[Spared]:
    """The lists that hold what every turn is given, or what is taken out of it, as by a number.

    Where a number tells which part it is, another list has to hold that.
    """
    slots = {source(pair.pushed(position)): slot for position, slot in pair.lists}
    found = (_Recipe(pair, slots, *each).spared() for each in pair.lists)
    spared = [each for each in found if each is not None]
    # What others need has to stay.
    needed = {slot for each in spared for slot in each.read.values()}
    return [each for each in spared if each.slot not in needed]


class _Recipe:
    """How what is in a list can be had without it."""

    def __init__(
        self, pair: PairedLists, slots: Mapping[Tensor, int], position: int, slot: int
    ) -> None:
        self._loop, self._position, self._slot = pair.forward, position, slot
        self._slots = {tensor: known for tensor, known in slots.items() if known != slot}
        self._element = source(pair.pushed(position))
        arguments = pair.forward.body.arguments
        self._numbers = {argument: number for number, argument in enumerate(arguments)}

    def spared(self) -> Spared | None:
        """The list, if something is given to every turn of which its elements are parts."""
        nodes: dict[Node, None] = {}
        given: dict[int, None] = {}
        read: dict[Tensor, int] = {}
        pending = [(self._element, False)]
        while pending:
            tensor, is_ready = pending.pop()
            node, number = tensor.node, self._numbers.get(tensor.node)
            if is_ready:
                nodes[node] = None
            elif number is not None and self._loop.body.hands_on(number):
                given[number] = None
            elif tensor in self._slots:
                read[tensor] = self._slots[tensor]
            elif not _takes_out(node) or len(pending) > _MOST_TAKEN:
                return None
            elif node not in nodes:
                pending.append((tensor, True))
                pending += [(source(one), False) for one in node.inputs]
        if not given or len(nodes) > _MOST_TAKEN:
            return None
        known = (self._position, self._slot, self._element)
        return Spared(*known, tuple(nodes), tuple(given), read)


def _takes_out(node: Node) -> bool:
    dtype = node.attributes.get("T")
    is_integer = dtype is not None and dtype.type in (DT_INT32, DT_INT64)
    return node.op in _TAKE_OUT or (node.op in _COUNT and is_integer)


def spare_lists(rewriter: Rewriter, pair: PairedLists, spared: Sequence[Spared]) -> None:
    """Let the second loop be given what is in some lists, which both are written without.

    Args:
        rewriter: Changes the graph; an edit is open.
        pair: The loops.
        spared: The lists, by `find_spared`.
    """
    _spare_in_second(rewriter, pair, spared)
    first = pair.forward
    variables = variables_of(first, rewriter.graph.library)
    without = {each.position for each in spared}
    stays = [position for position in range(len(variables)) if position not in without]
    turns = turns_of(first, f"{first.body_name}_spared", stays)
    _become(rewriter, first, turns, stays, variables, [])


def _spare_in_second(rewriter: Rewriter, pair: PairedLists, spared: Sequence[Spared]) -> None:
    first, second = pair.forward, pair.backward
    test, body = functions_of(second)
    library = rewriter.graph.library
    known, variables = variables_of(first, library), variables_of(second, library)
    count = len(variables)
    spelled: dict[Tensor, str] = {}
    positions = dict.fromkeys(position for each in spared for position in each.given)
    for position in positions:
        value = known[position]
        argument = body.add_argument("given", value.dtype, value.shape)
        test.add_argument("given", value.dtype, value.shape)
        body.add_result(argument)
        spelled[first.body.arguments[position].output()] = argument.spelling
        variables.append(value)
    for each in spared:
        popped = {tensor: _popped(pair, slot) for tensor, slot in each.read.items()}
        element = _take_out(body, each, spelled | popped, rewriter)
        body.replace({_popped(pair, each.slot): element}, [pair.popped(each.slot).name])
        for reader in idle_readers(second.node.output(each.slot)):
            rewriter.remove_node(reader)
    without = {each.slot for each in spared}
    stays = [slot for slot in range(count) if slot not in without]
    left = [*stays, *range(count, len(variables))]
    turns = turns_of(second, f"{second.body_name}_spared", left, (test, body))
    given = [first.node.inputs[position] for position in positions]
    _become(rewriter, second, turns, stays, variables, given)


def _popped(pair: PairedLists, slot: int) -> str:
    """How what a turn of the second loop takes out of a list is spelled there."""
    return f"{pair.popped(slot).name}:tensor:0"


def _take_out(
    body: FunctionBody, spared: Spared, spelled: Mapping[Tensor, str], rewriter: Rewriter
) -> str:
    """Have what was in a list in a turn of the second loop; how it is spelled there."""
    known = dict(spelled)
    for node in spared.nodes:
        inputs = [known[source(tensor)] for tensor in node.inputs]
        attributes = {name: v for name, v in node.attributes.items() if name != COLOCATED}
        name = body.add(node.op, node.name, inputs, attributes)
        ((output, _),) = require_signature(node, rewriter.graph.library).output_ranges(node).items()
        known[node.output()] = f"{name}:{output}:0"
    return known[spared.element]


def _become(
    rewriter: Rewriter,
    loop: Loop,
    turns: Turns,
    stays: Sequence[int],
    variables: Sequence[Value],
    given: Sequence[Tensor],
) -> None:
    """Make a loop one with the variables that stay, and further ones that it is given."""
    node = loop.node
    left = [variables[position] for position in stays] + list(variables[len(node.inputs) :])
    attributes = loop_attributes(rewriter, turns, left) | read_only(node, stays)
    inputs = [node.inputs[position] for position in stays]
    become(rewriter, node, stays, attributes, [*inputs, *given])


def _users_behind(node: Node) -> set[Node]:
    """Who reads a tensor, also as others hand it on."""
    users: set[Node] = set()
    pending = [node]
    while pending:
        for user, _ in pending.pop().output().uses:
            if user not in users:
                users.add(user)
                pending += [user] if user.op == "Identity" else []
    return users
