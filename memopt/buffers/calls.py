"""Nodes that run functions: loops from turn to turn, branches, calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from memopt.buffers.loop_extrapolation import skip_turns
from memopt.buffers.nested_steps import Loop, passing_bytes, rise_bytes
from memopt.graph.op_types import turns_at_once
from memopt.shapes.function_calls import BRANCHES, CALLS, LOOPS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from memopt.buffers.nested_steps import Run, Turn
    from memopt.buffers.placed_tensors import PlacedTensors
    from memopt.buffers.pool import Pool
    from memopt.buffers.variables import Variables
    from memopt.graph.graph import Node

MOST_TURNS = 1000
"""Turns that are followed where no number of them can be told from a counter; a loop that takes
more counts as if it ended there."""

SOME_TURNS = 3
"""So many turns at the beginning of a loop are followed; those that are skipped make in one step
what they keep. The first one may have less to do than all others, as the last one of segments has,
with which their gradient begins: then it takes one more to tell how they go on."""

LAST_TURNS = 2
"""So many turns at the end are followed: the last one may have less to do than all others, as the
last one of segments has."""


class Functions(Protocol):
    """The functions that the nodes of a graph can call."""

    def names(self) -> Collection[str]:
        """Their names."""

    def callee(self, place: int, name: str) -> Run:
        """The function of that name as the node at a place calls it."""

    @property
    def threads(self) -> int:
        """How many operations may run at once."""

    def stays_a_call(self, name: str) -> bool:
        """Whether TensorFlow does not put a function's operations in the place of its calls."""


class Given(NamedTuple):
    """What a function is given, by number of the argument.

    Attributes:
        buffers: The buffers.
        handles: The variables that resources stand for; `None` for other arguments.
    """

    buffers: list[int]
    handles: list[int | None]


class _Calls(NamedTuple):
    """Where calls are followed: the buffers of the caller, and what it can call."""

    tensors: PlacedTensors
    functions: Functions


def add_loop(
    tensors: PlacedTensors, variables: Variables, library: Functions, place: int, node: Node
) -> Loop | None:
    """Follow a While from turn to turn, a branch, or a call.

    `None` for other nodes, and where the functions are not in the library.
    """
    known = library.names()
    functions = _functions(node, known)
    if not functions or any(name not in known for name in functions):
        return None
    inputs = node.inputs[1:] if node.op in BRANCHES else node.inputs
    given = Given(
        [tensors.buffer(tensor) for tensor in inputs],
        [variables.handle(tensor) for tensor in inputs],
    )
    calls, loop = _Calls(tensors, library), Loop(place)
    values = dict(tensors.pool.values)
    # What the functions do not read of what they are given goes at once.
    loop.add(read=tensors.pool.with_contents(given.buffers))
    if node.op in LOOPS:
        turns = _follow_turns(calls, loop, functions, given)
        _overlap(calls, loop, turns, turns_at_once(node))
    elif node.op in BRANCHES:
        number = tensors.number(node.inputs[0])
        if number is not None:
            functions = [_taken(node, functions, number)]
        _take_largest(calls, loop, functions, given)
    else:
        turn = library.callee(place, functions[0])(*given)
        loop.run(turn)
        loop.results = turn.results
        if library.stays_a_call(functions[0]):
            # It holds what it is given until it ends.
            loop.add(read=tensors.pool.with_contents(given.buffers))
    _keep_values(tensors, loop, given, values)
    # The node itself holds the results while its last operation ends.
    loop.add(read=tensors.pool.with_contents(loop.kept))
    return loop


def _keep_values(
    tensors: PlacedTensors, loop: Loop, given: Given, values: Mapping[int, int]
) -> None:
    """What variables have afterwards is kept; what they have before the step is read if it was.

    Args:
        tensors: The buffers of the caller.
        loop: What ran inside it.
        given: What it is given.
        values: By variable: the buffer of its value before the node.
    """
    pool = tensors.pool
    loop.values = [value for handle, value in pool.values.items() if values.get(handle) != value]
    read = {handle for handle in given.handles if handle not in values}
    tensors.hold(loop.place, (pool.first_values[h] for h in pool.first_values if h in read))


def _functions(node: Node, known: Collection[str]) -> list[str]:
    """The functions that a node runs: test and body, the branches, or the one that it calls."""
    if node.op in LOOPS:
        attributes = ["cond", "body"]
    elif node.op in BRANCHES:
        attributes = ["branches"] if "branches" in node.attributes else _SIDES
    elif node.op in CALLS:
        attributes = ["f"]
    else:
        return [node.op] if node.op in known else []
    if not node.attributes.keys() >= set(attributes):
        return [""]
    values = [node.attributes[attribute] for attribute in attributes]
    return [function.name for value in values for function in value.list.func or [value.func]]


_SIDES = ["then_branch", "else_branch"]


def _taken(node: Node, functions: Sequence[str], number: int) -> str:
    """The branch that is taken for a number: of a Case the last one where there is no such."""
    if "branches" not in node.attributes:
        return functions[0] if number else functions[1]
    return functions[number] if 0 <= number < len(functions) else functions[-1]


def _follow_turns(calls: _Calls, loop: Loop, functions: Sequence[str], given: Given) -> list[Turn]:
    """Run test and body in turns until the test says no; returns the turns that are followed."""
    pool = calls.tensors.pool
    test, run = (calls.functions.callee(loop.place, name) for name in functions)
    states: list[Sequence[int]] = [given.buffers]
    turns: list[Turn] = []
    is_skipped = False
    for count in range(MOST_TURNS):
        tested = test(states[-1], given.handles)
        loop.run(tested)
        # A test that cannot be told ends a loop after its first turn.
        if not pool.numbers.get(tested.results[0], 0 if count else 1):
            break
        turn = run(states[-1], given.handles)
        loop.turns.append(len(loop.made))
        loop.run(turn)
        turns.append(turn)
        states = [*states[-2:], turn.results]
        if SOME_TURNS <= count + 1 <= SOME_TURNS + 1 and not is_skipped:
            is_skipped = skip_turns(
                calls.tensors.pool,
                loop,
                states,
                lambda state: test(state, given.handles),
                LAST_TURNS,
            )
    loop.results = list(states[-1])
    return turns


def _overlap(calls: _Calls, loop: Loop, turns: Sequence[Turn], at_once: int) -> None:
    """Count what further turns have in use that run at once with one, as threads allow it.

    All turns have the same in use; the second one is looked at, since the first one may have been
    given what others hold.
    """
    further = min(at_once, calls.functions.threads) - 1
    if further > 0 and len(turns) > 1:
        loop.overlap(further * passing_bytes(turns[1], calls.tensors.pool))


class _Branch(NamedTuple):
    """A branch that may be taken.

    Attributes:
        turn: What it does.
        values: By variable: the buffer of its value afterwards.
        size: What is compared: the bytes that its results hold, those of them that it made, and the
            most that it has in use.
    """

    turn: Turn
    values: dict[int, int]
    size: tuple[int, int, int]


def _take_largest(calls: _Calls, loop: Loop, functions: Sequence[str], given: Given) -> None:
    """Run the branch whose results hold most and, among equals, the one with the highest peak.

    What another one has in use at most is in use before the branch begins, beside what it reads: so
    neither the peak nor what is held afterwards is ever more than what is told.
    """
    pool = calls.tensors.pool
    values = dict(pool.values)
    held = pool.handed_out.union(pool.with_contents(given.buffers))
    branches = []
    for name in functions:
        # What a variable has before the step is the same in each branch.
        pool.values = {**pool.first_values, **values}
        turn = calls.functions.callee(loop.place, name)(*given)
        replaced = {*pool.first_values.values(), *values.values()} - held
        branches.append(_Branch(turn, pool.values, _size(pool, turn, replaced)))
    largest = max(branches, key=lambda branch: branch.size)
    pool.values = {**pool.first_values, **largest.values}
    others = [branch for branch in branches if branch is not largest]
    known = pool.with_contents(given.buffers)
    for branch in others:
        # It holds what it reads, and the largest may read less.
        read = dict.fromkeys(buffer for buffers in branch.turn.read for buffer in buffers)
        loop.add(read=[b for b in read if b in known], scratch_bytes=max(branch.size[-1], 0))
        for buffers in branch.turn.made:
            for buffer in buffers:
                pool.size_bytes[buffer] = 0
    loop.run(largest.turn)
    loop.results = largest.turn.results


def _size(pool: Pool, turn: Turn, replaced: Collection[int]) -> tuple[int, int, int]:
    """What is compared of a branch.

    Args:
        pool: All buffers.
        turn: What the branch does.
        replaced: Values of variables that nobody else reads, so that they go when they are updated.
    """
    made = {buffer for buffers in turn.made for buffer in buffers}
    held = pool.with_contents(turn.results)
    return (
        sum(pool.size_bytes[buffer] for buffer in held),
        sum(pool.size_bytes[buffer] for buffer in held if buffer in made),
        rise_bytes(turn, pool, lambda buffer: buffer not in replaced),
    )
