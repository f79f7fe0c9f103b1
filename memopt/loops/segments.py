"""Writes a pair of loops so that each runs in segments, with checkpoints between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph import op_types
from memopt.graph.attributes import integer_attribute, type_attribute
from memopt.graph.copy_names import free_name
from memopt.graph.op_types import DT_INT32, DT_VARIANT
from memopt.loops.bounded_loops import (
    Turns,
    add_bounded_loop,
    bounded_attributes,
    integers,
    lasting_attributes,
    loop_attributes,
)
from memopt.loops.element_lists import (
    NO_LIMIT,
    empty_list,
    known_shape,
    list_attributes,
    pop,
    push,
    pushed_type,
    shape_attributes,
)
from memopt.loops.function_body import FunctionBody, Value
from memopt.loops.pairs import idle_readers
from memopt.loops.rewritten_loop import become, functions_of, read_only, turns_of, variables_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from memopt.graph.functiondef import Library
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.loops.bounded_loops import Ran
    from memopt.loops.function_body import Shape
    from memopt.loops.pairs import Loop, LoopPair
    from memopt.loops.worth import Cut

STATELESS = "StatelessWhile"
_COUNT, _MOST = Value("count", DT_INT32, ()), Value("most", DT_INT32, ())


class Variable(NamedTuple):
    """What is read from a resource."""

    dtype: int
    shape: Shape


class OpenTurns(NamedTuple):
    """A loop that turns another number of times in each call.

    Attributes:
        usual: How often in the call for which its turns are divided.
        told_by: The variable of the loop that begins as how often it turns; `None` if none does.
    """

    usual: int
    told_by: Tensor | None


class Segments(NamedTuple):
    """How a pair of loops is to run.

    Attributes:
        pair: The loops.
        cut: Which turns are segments.
        variables: By position in the first loop: what is read from the resources there.
        elements: The shapes of what turns put into the lists, list by list.
        open_turns: How many turns there are, if that is another number in each call: as large a
            part of them then runs in segments, and how many are left at the end is counted.
    """

    pair: LoopPair
    cut: Cut
    variables: Mapping[int, Variable]
    elements: Sequence[Shape]
    open_turns: OpenTurns | None = None


def write_segments(rewriter: Rewriter, library: Library, segments: Segments) -> None:
    """Let the turns of a pair of loops run in segments, all of them or all but the last.

    The first loop becomes a loop over segments, which keeps the state at the beginning of each, and
    the values of variables that turns read, and nothing of what is computed in the turns. The loop
    of the gradient becomes one over the segments, from the last to the first: it runs the turns of
    a segment again from the state that was kept, which fills lists for as many turns, and then the
    gradient of these turns. Each operation is given what it was given before, so all bits stay. No
    segment runs again before the gradient that it is for is there.

    Turns at the end that are to keep what they compute run as they did: the first loop goes on with
    them after the segments, and their gradient comes before that of the segments.

    Args:
        rewriter: Changes the graph; an edit is open.
        library: The functions, which get more.
        segments: The loops, and how they are to run.
    """
    _Writer(rewriter, library, segments).write()


class _Side(NamedTuple):
    """One of the two loops.

    Attributes:
        loop: The loop.
        stays: The positions of its variables that are no lists of the pair.
        variables: By position: how it is called in the function of a segment, type and shape.
    """

    loop: Loop
    stays: tuple[int, ...]
    variables: tuple[Value, ...]

    @classmethod
    def of(cls, loop: Loop, lists: Collection[int], library: Library) -> _Side:
        variables = variables_of(loop, library)
        stays = tuple(position for position in range(len(variables)) if position not in lists)
        return cls(loop, stays, tuple(variables))

    @property
    def staying(self) -> list[Value]:
        """The variables that are no lists of the pair."""
        return [self.variables[position] for position in self.stays]

    def handed_on(self, given: Mapping[int, Value], ran: Mapping[int, Value]) -> list[Value]:
        """What a segment hands on of what it was given and of what its turns gave, by position.

        What no turn changes does not pass through the turns: XLA has to see where a variable is
        from.
        """
        hands_on = self.loop.body.hands_on
        return [(given if hands_on(place) else ran)[place] for place in self.stays]


class _Writer:
    def __init__(self, rewriter: Rewriter, library: Library, segments: Segments) -> None:
        self._rewriter = rewriter
        self._library = library
        self._pair, self._cut, self._read, self._elements, self._open = segments
        pair = self._pair
        filled, emptied = ({each[side] for each in pair.lists} for side in (0, 1))
        self._forward = _Side.of(pair.forward, filled.union(pair.unread), library)
        self._backward = _Side.of(pair.backward, emptied, library)
        self._name = f"{pair.forward.body_name}_by_{self._cut.turns}"
        """What the names of new functions begin with; those of bodies are unique in a process."""

    def write(self) -> None:
        """Write both loops anew; what others read keeps its name."""
        rewriter, forward, backward = self._rewriter, self._forward, self._backward
        first, second = forward.loop.node, backward.loop.node
        anchors = self._anchors(first)
        turns = self._constant(first, "segment_turns", self._cut.turns, anchors)
        most = self._limit(self._cut.segments)
        lists = [self._empty_list(first, value, most, anchors) for value in self._kept]
        fixed = [first.inputs[position] for position in self._pair.fixed]
        for _, position in self._pair.lists:
            for reader in idle_readers(second.output(position)):
                rewriter.remove_node(reader)
        # From here on the loop of the gradient reads no list of the first one's.
        given = self._gradient_of_last(anchors) if self._cut.last else second.inputs
        rewriter.set_inputs(second, [given[position] for position in backward.stays])
        begun = self._begin([*(first.inputs[i] for i in forward.stays), turns, *lists], anchors)
        start = len(forward.stays) + 1
        checkpoints = [begun.output(start + place) for place in range(len(lists))]
        extra = [forward.variables[position] for position in self._pair.fixed]
        loop = self._segments(backward, self._backward_segment(), extra)
        given = [*second.inputs, turns, *checkpoints, *fixed]
        become(rewriter, second, backward.stays, loop_attributes(rewriter, *loop), given)

    def _begin(self, given: Sequence[Tensor], anchors: Sequence[Node]) -> Node:
        """The loop over the segments, from which the first one goes on if turns are left."""
        first = self._forward.loop.node
        turns, variables = self._segments(self._forward, self._forward_segment(), [])
        if not self._cut.last:
            attributes = loop_attributes(self._rewriter, turns, variables)
            become(self._rewriter, first, self._forward.stays, attributes, given)
            return first
        attributes = bounded_attributes(self._rewriter, turns, [*variables, _COUNT, _MOST])
        most = self._most_segments(first, anchors)
        begun = self._before(first, "segments", attributes, given, most, anchors)
        self._go_on(begun, anchors)
        return begun

    def _go_on(self, begun: Node, anchors: Sequence[Node]) -> None:
        """Let the first loop begin where the segments end, without lists that nobody reads."""
        side, first = self._forward, self._forward.loop.node
        positions = [i for i in range(len(side.variables)) if i not in self._pair.unread]
        turns = turns_of(side.loop, f"{self._name}_last", positions)
        attributes = loop_attributes(
            self._rewriter, turns, [side.variables[position] for position in positions]
        )
        given = list(first.inputs)
        for place, position in enumerate(side.stays):
            given[position] = begun.output(place)
        for (position, _), element in zip(self._pair.lists, self._elements, strict=True):
            if not self._open:
                # XLA makes room for as many elements as a list may have.
                dtype = pushed_type(self._pair.forward.body.results[position].node)
                value = Value(f"last_{position}", dtype, element)
                given[position] = self._empty_list(first, value, self._cut.last, anchors)
        attributes |= read_only(first, positions)
        given = [given[position] for position in positions]
        become(self._rewriter, first, positions, attributes, given)

    def _gradient_of_last(self, anchors: Sequence[Node]) -> list[Tensor]:
        """What the loop of the gradient gives after the turns that keep what they compute."""
        side, second = self._backward, self._backward.loop.node
        positions = range(len(side.variables))
        turns = turns_of(side.loop, f"{self._name}_last_gradient", positions)
        attributes = bounded_attributes(self._rewriter, turns, [*side.variables, _COUNT, _MOST])
        attributes |= read_only(second, positions)
        last = self._turns_left(second, anchors)
        node = self._before(second, "last_turns", attributes, second.inputs, last, anchors)
        return [node.output(position) for position in positions]

    def _most_segments(self, first: Node, anchors: Sequence[Node]) -> Tensor:
        """How many segments there are, if there are turns for so many."""
        if self._open is None or self._open.told_by is None:
            return self._constant(first, "segments_most", self._cut.segments, anchors)
        most, usual = self._open.told_by, self._open.usual
        # As large a part of the turns, rounded up.
        for op, number in (("Mul", self._cut.segments), ("AddV2", usual - 1), ("FloorDiv", usual)):
            other = self._constant(first, f"segments_{op}_by", number, anchors)
            most = self._integer(first, f"segments_{op}", op, [most, other])
        return most

    def _turns_left(self, second: Node, anchors: Sequence[Node]) -> Tensor:
        """How many turns are left at the end: as many as there are elements in each list then."""
        if self._open is None:
            return self._constant(second, "last_turns_most", self._cut.last, anchors)
        position, _ = self._pair.lists[0]
        filled = self._forward.loop.node.output(position)
        return self._integer(second, "last_turns_most", "TensorListLength", [filled])

    def _integer(self, like: Node, role: str, op: str, inputs: Sequence[Tensor]) -> Tensor:
        """A number in the graph that is computed of others, or of a list."""
        return self._rewriter.add_node(
            free_name(f"{like.name}/{role}", self._rewriter.graph),
            op,
            inputs=inputs,
            device=like.device,
            attributes={} if op == "TensorListLength" else _typed(DT_INT32),
        ).output()

    def _before(
        self,
        node: Node,
        role: str,
        attributes: Mapping[str, Any],
        given: Sequence[Tensor],
        most: Tensor,
        anchors: Sequence[Node],
    ) -> Node:
        """A loop of so many turns that comes before another, where that one would."""
        counted = [self._constant(node, f"{role}_none", 0, anchors), most]
        return self._rewriter.add_node(
            free_name(f"{node.name}/{role}", self._rewriter.graph),
            node.op,
            inputs=[*given, *counted],
            control_inputs=node.control_inputs,
            device=node.device,
            attributes=attributes,
        )

    def _segments(
        self, side: _Side, segment: FunctionBody, extra: Sequence[Value]
    ) -> tuple[Turns, list[Value]]:
        """A loop over segments, and its variables."""
        node = side.loop.node
        variables = [*side.staying, _MOST, *self._kept_lists, *extra]
        test, _ = functions_of(side.loop)
        test.keep(side.stays, [0], effects=True)
        for value in variables[len(side.stays) :]:
            _argument(test, value)
        role = "segments" if side is self._forward else "gradient_segments"
        attributes = {
            **lasting_attributes(node.attributes),
            # Two segments at once would keep what two need.
            op_types.TURNS_AT_ONCE: integer_attribute(1),
            **read_only(node, side.stays),
        }
        return Turns(node.op, attributes, test, segment, f"{self._name}_{role}"), variables

    @property
    def _kept(self) -> list[Value]:
        """What is kept of each segment's beginning: the state, then what variables hold."""
        state = [self._forward.variables[position] for position in self._pair.state]
        return state + [Value(f"value_{i}", *self._read[i]) for i in self._pair.variables]

    @property
    def _kept_lists(self) -> list[Value]:
        """The lists of it."""
        return [Value(f"{value.spelling}_kept", DT_VARIANT, ()) for value in self._kept]

    def _forward_segment(self) -> FunctionBody:
        """Keeps the state, and runs the turns of one segment."""
        side, segment = self._forward, FunctionBody()
        given = {i: _argument(segment, side.variables[i]) for i in side.stays}
        most = _argument(segment, _MOST)
        lists = [_argument(segment, value) for value in self._kept_lists]
        values = [given[i] for i in self._pair.state]
        for position in self._pair.variables:
            read = self._read[position]
            attributes = {"dtype": type_attribute(read.dtype)}
            name = segment.add("ReadVariableOp", "value", [given[position].spelling], attributes)
            values.append(Value(f"{name}:value:0", *read))
        pushed = [push(segment, *each) for each in zip(lists, values, strict=True)]
        turns = turns_of(side.loop, f"{self._name}_turns", side.stays)
        ran = add_bounded_loop(segment, self._rewriter, turns, list(given.values()), most)
        results = side.handed_on(given, dict(zip(side.stays, ran.results, strict=True)))
        for value in (*results, most, *pushed):
            segment.add_result(value)
        return segment

    def _backward_segment(self) -> FunctionBody:
        """Runs the turns of one segment again, and then their gradient."""
        side, segment = self._backward, FunctionBody()
        given = {i: _argument(segment, side.variables[i]) for i in side.stays}
        most = _argument(segment, _MOST)
        lists = [_argument(segment, value) for value in self._kept_lists]
        fixed = [_argument(segment, self._forward.variables[i]) for i in self._pair.fixed]
        arrived = self._arrived(segment, given)
        popped = [pop(segment, *each, arrived) for each in zip(lists, self._kept, strict=True)]
        again = self._again(segment, [value for _, value in popped], fixed, most)
        filled = again.results[-len(self._pair.lists) :]
        taken = dict(zip((position for _, position in self._pair.lists), filled, strict=True))
        positions = range(len(side.variables))
        turns = turns_of(side.loop, f"{self._name}_gradient", positions)
        values = [given[i] if i in given else taken[i] for i in positions]
        ran = add_bounded_loop(segment, self._rewriter, turns, values, again.turns)
        results = side.handed_on(given, dict(enumerate(ran.results)))
        for value in (*results, most, *(rest for rest, _ in popped), *fixed):
            segment.add_result(value)
        return segment

    def _arrived(self, segment: FunctionBody, given: Mapping[int, Value]) -> list[str]:
        """What says that the gradient for a segment is there, as control inputs."""
        side = self._backward
        changing = [
            value for position, value in given.items() if not side.loop.body.hands_on(position)
        ]
        return [
            "^" + segment.add("Identity", "arrived", [value.spelling], _typed(value.dtype))
            for value in changing
        ]

    def _again(
        self,
        segment: FunctionBody,
        values: Sequence[Value],
        fixed: Sequence[Value],
        most: Value,
    ) -> Ran:
        """The turns of a segment once more; what they fill are the last results."""
        pair, loop = self._pair, self._pair.forward
        filled = [position for position, _ in pair.lists]
        positions = [*pair.state, *pair.variables, *pair.fixed, *filled]
        turns = turns_of(
            self._forward.loop, f"{self._name}_again", range(len(self._forward.variables))
        )
        for function in (turns.body, turns.test):
            for position in pair.variables:
                function.be_given_values(position, self._read[position].dtype)
        turns.body.keep(positions, positions, effects=False)
        turns.test.keep(positions, [0], effects=False)
        empty = [
            empty_list(
                segment, loop.body.results[position].node, shape, self._limit(self._cut.turns)
            )
            for position, shape in zip(filled, self._elements, strict=True)
        ]
        given = [*values, *fixed, *empty]
        stateless = turns._replace(op=STATELESS)
        return add_bounded_loop(segment, self._rewriter, stateless, given, most)

    def _anchors(self, like: Node) -> list[Node]:
        """Whom what reads nothing waits for, so that it runs where a loop does.

        In the frame of another loop, or in a branch, made of Switch and Merge, it would belong to
        neither.
        """
        rewriter = self._rewriter
        if not any(node.op in op_types.CONTROL_FLOW for node in rewriter.graph):
            return []
        dtype = op_types.port_types(like, self._library).inputs[0]
        anchor = rewriter.add_node(
            free_name(f"{like.name}/begins", rewriter.graph),
            "Identity",
            inputs=[like.inputs[0]],
            device=like.device,
            attributes=_typed(dtype),
        )
        return [anchor]

    def _constant(self, like: Node, role: str, value: int, anchors: Sequence[Node]) -> Tensor:
        """A number in the graph."""
        return self._rewriter.add_node(
            free_name(f"{like.name}/{role}", self._rewriter.graph),
            "Const",
            control_inputs=anchors,
            device=like.device,
            attributes=integers(value),
        ).output()

    def _limit(self, elements: int) -> int:
        """How many elements a list may have that gets so many in the usual call."""
        return elements if self._open is None else NO_LIMIT

    def _empty_list(self, like: Node, value: Value, most: int, anchors: Sequence[Node]) -> Tensor:
        """A list for what is kept, in the graph, of so many elements at most."""
        rewriter, name = self._rewriter, f"{like.name}/{value.spelling}"
        numbers = [
            rewriter.add_node(
                free_name(f"{name}/{role}", rewriter.graph),
                "Const",
                control_inputs=anchors,
                device=like.device,
                attributes=attributes,
            ).output()
            for role, attributes in (
                ("element_shape", shape_attributes(known_shape(value.shape))),
                ("max_num_elements", integers(most)),
            )
        ]
        return rewriter.add_node(
            free_name(f"{name}/kept", rewriter.graph),
            "EmptyTensorList",
            inputs=numbers,
            device=like.device,
            attributes=list_attributes(value.dtype),
        ).output()


def _argument(function: FunctionBody, value: Value) -> Value:
    return function.add_argument(*value)


def _typed(dtype: int) -> dict[str, Any]:
    return {"T": type_attribute(dtype)}
