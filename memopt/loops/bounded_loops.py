"""Loops in functions that end after so many turns, if not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph.attributes import type_attribute
from memopt.graph.op_types import DT_BOOL, DT_INT32
from memopt.loops.function_body import FunctionBody, Value
from memopt.shapes.tensor_properties import set_shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    from memopt.graph.rewriter import Rewriter


_BY_POSITION = frozenset(
    "T body cond output_shapes _output_shapes _num_original_outputs "
    "_read_only_resource_inputs".split()
)
"""Attributes of a loop that are another's if it has other variables."""


class Turns(NamedTuple):
    """A loop that is to be written.

    Attributes:
        op: The op that it is: a While, or one without a state.
        attributes: What it is told beside functions, types and shapes.
        test: The function that says whether another turn follows.
        body: A turn.
        name: What the names of its functions begin with.
    """

    op: str
    attributes: Mapping[str, AttrValue]
    test: FunctionBody
    body: FunctionBody
    name: str


class Ran(NamedTuple):
    """What a loop gives.

    Attributes:
        results: Its variables after the last turn.
        turns: How many turns it took.
    """

    results: tuple[Value, ...]
    turns: Value


def add_bounded_loop(
    function: FunctionBody, rewriter: Rewriter, turns: Turns, given: Sequence[Value], most: Value
) -> Ran:
    """Add a loop to a function that ends where its test says so, or after so many turns.

    Args:
        function: Where it is added.
        rewriter: Puts its functions into the library; an edit is open.
        turns: The loop.
        given: What its first turn is given.
        most: After how many turns it ends, an int32 of one element.
    """
    variables = (*given, Value(number(function, "none", 0), DT_INT32, ()), most)
    attributes = bounded_attributes(rewriter, turns, variables)
    spelled = [value.spelling for value in variables]
    node = function.add(turns.op, "turns", spelled, attributes)
    results = [
        value._replace(spelling=f"{node}:output:{place}") for place, value in enumerate(variables)
    ]
    return Ran(tuple(results[: len(given)]), results[-2])


def bounded_attributes(
    rewriter: Rewriter, turns: Turns, variables: Sequence[Value]
) -> dict[str, Any]:
    """What a loop is told that ends where its test says so, or after so many turns.

    Args:
        rewriter: Puts its functions into the library; an edit is open.
        turns: The loop.
        variables: Its variables, and behind them how many turns there were, and how many there may
            be.
    """
    _count(turns.body)
    _stop(turns.test)
    return loop_attributes(rewriter, turns, variables)


def loop_attributes(rewriter: Rewriter, turns: Turns, variables: Sequence[Value]) -> dict[str, Any]:
    """What a loop is told, of its functions and variables as well.

    Args:
        rewriter: Puts its functions into the library; an edit is open.
        turns: The loop.
        variables: Its variables.
    """
    test = add_function(rewriter, turns.test, f"{turns.name}_cond")
    body = add_function(rewriter, turns.body, f"{turns.name}_body")
    return {**turns.attributes, **positional_attributes(test, body, variables)}


def positional_attributes(test: str, body: str, variables: Sequence[Value]) -> dict[str, Any]:
    """What a loop is told of its functions and variables."""
    from tensorflow.core.framework import attr_value_pb2

    attributes = {
        name: attr_value_pb2.AttrValue() for name in ("cond", "body", "T", "output_shapes")
    }
    attributes["cond"].func.name = test
    attributes["body"].func.name = body
    attributes["T"].list.type.extend(value.dtype for value in variables)
    shapes = attributes["output_shapes"].list.shape
    for value in variables:
        set_shape(shapes.add(), value.shape)
    return attributes


def lasting_attributes(attributes: Mapping[str, AttrValue]) -> dict[str, AttrValue]:
    """What a loop is told that is as true of one with other variables."""
    return {name: value for name, value in attributes.items() if name not in _BY_POSITION}


def integers(values: int | Sequence[int]) -> dict[str, AttrValue]:
    """The attributes of a Const that is an int32, or a list of them."""
    # Not before it is used: it needs numpy.
    from memopt.shapes.integer_evaluation import as_array, constant_attributes

    return constant_attributes(as_array(values), DT_INT32)


def number(function: FunctionBody, name: str, value: int) -> str:
    """An int32 of one element in a function; how it is spelled."""
    return f"{function.add('Const', name, (), integers(value))}:output:0"


def add_function(rewriter: Rewriter, body: FunctionBody, name: str) -> str:
    """Put a function into the library; its name, which is free."""
    library, free = rewriter.graph.library, name
    while library is not None and library.op_def(free) is not None:
        free += "_"
    rewriter.add_function(body.named(free))
    return free


def _count(body: FunctionBody) -> None:
    """Let a turn count: it is given how many there were and how many there may be, at the end."""
    turn, most = body.add_argument("turn", DT_INT32), body.add_argument("most", DT_INT32)
    one = number(body, "one", 1)
    added = body.add("AddV2", "next", [turn.spelling, one], {"T": type_attribute(DT_INT32)})
    body.add_result(Value(f"{added}:z:0", DT_INT32))
    body.add_result(most)


def _stop(test: FunctionBody) -> None:
    """Let a test say no after so many turns."""
    turn, most = test.add_argument("turn", DT_INT32), test.add_argument("most", DT_INT32)
    compared = [turn.spelling, most.spelling]
    may = test.add("Less", "may", compared, {"T": type_attribute(DT_INT32)})
    goes_on = [test.results[0].spelling, f"{may}:z:0"]
    both = test.add("LogicalAnd", "both", goes_on)
    test.set_result(0, Value(f"{both}:z:0", DT_BOOL))
