"""Loops and calls: a While's turns one after the other, as far as memory goes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from memopt.costs.buffer_graph import BufferGraph, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memopt.costs.buffer_builder import BufferBuilder
    from memopt.costs.buffer_pool import Pool
    from memopt.graph.graph import Node

LOOPS = frozenset({"While", "StatelessWhile"})
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})

MOST_TURNS = 1000
"""Turns that are followed; a loop that takes more counts as if it ended there."""


class Turn(NamedTuple):
    """A function's body, run once.

    Attributes:
        made: By node that ran: the buffers that it allocates.
        read: By node: the buffers that it reads.
        scratch_bytes: By node: its scratch memory.
        results: The buffers of its results.
    """

    made: list[list[int]]
    read: list[list[int]]
    scratch_bytes: list[int]
    results: list[int]


@dataclass
class Loop:
    """A loop that was followed to its end; a call is a loop of one turn.

    Attributes:
        place: The node.
        made: By node that ran in it, over all turns: the buffers that it allocates.
        read: By node: the buffers that it reads.
        scratch_bytes: By node: its scratch memory.
        results: What it gives.
    """

    place: int
    made: list[list[int]] = field(default_factory=list)
    read: list[list[int]] = field(default_factory=list)
    scratch_bytes: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)

    def run(self, turn: Turn) -> None:
        """Append a turn, or the test before one."""
        self.made += turn.made
        self.read += turn.read
        self.scratch_bytes += turn.scratch_bytes


def add_loop(builder: BufferBuilder, place: int, node: Node) -> Loop | None:
    """Follow a While from turn to turn, or a call.

    `None` for other nodes, and where the functions are not in the library.
    """
    names = ("cond", "body") if node.op in LOOPS else ("f",)
    known = builder.library_names()
    if node.op not in LOOPS | CALLS or any(_function(node, name) not in known for name in names):
        return None
    given = [builder.buffer(tensor) for tensor in node.inputs]
    handles = [builder.variables.handle(tensor) for tensor in node.inputs]
    loop = Loop(place)
    if node.op in CALLS:
        turn = builder.callee(_function(node, "f"))(given, handles)
        loop.run(turn)
        loop.results = turn.results
    else:
        _follow_turns(builder, node, loop, given, handles)
    # The loop itself holds the results while the last node of the last turn ends.
    loop.made.append([])
    loop.read.append(list(builder.pool.with_contents(loop.results)))
    loop.scratch_bytes.append(0)
    return loop


def _follow_turns(
    builder: BufferBuilder,
    node: Node,
    loop: Loop,
    given: Sequence[int],
    handles: Sequence[int | None],
) -> None:
    """Run test and body in turns until the test says no."""
    condition, body = _function(node, "cond"), _function(node, "body")
    state = given
    test, run = builder.callee(condition), builder.callee(body)
    for _ in range(MOST_TURNS):
        tested = test(state, handles)
        loop.run(tested)
        # A test that cannot be told ends a loop after its first turn.
        goes_on = builder.pool.numbers.get(tested.results[0], 1 if state is given else 0)
        if not goes_on:
            break
        turn = run(state, handles)
        loop.run(turn)
        state = turn.results
    loop.results = list(state)


def settle_loops(builder: BufferBuilder) -> None:
    """Loops become nodes like others."""
    if not builder.loops:
        return
    readers = Counter(buffer for buffers in builder.read for buffer in buffers)
    for loop in builder.loops:
        made, scratch_bytes = _settle(loop, builder.pool, lambda buffer: readers[buffer] > 1)
        builder.made[loop.place] = made
        builder.scratch_bytes[loop.place] = scratch_bytes


def _settle(loop: Loop, pool: Pool, read_elsewhere: Callable[[int], bool]) -> tuple[list[int], int]:
    """What the loop as one node makes, and its scratch memory in bytes.

    What it makes on the way and does not give is of no size from now on. The scratch memory is what
    brings the node to the peak of the loop; it is negative where the loop frees what it was given
    before it has made all that it gives.

    Args:
        loop: The loop.
        pool: All buffers.
        read_elsewhere: Whether other nodes than the loop read a buffer that it is given.
    """
    made = [buffer for buffers in loop.made for buffer in buffers]
    inside = set(made)
    kept = [buffer for buffer in pool.with_contents(loop.results) if buffer in inside]
    reached = {buffer for buffers in loop.read for buffer in buffers} - inside
    lasting = list(pool.lasting)
    for buffer in reached:
        lasting[buffer] = lasting[buffer] or read_elsewhere(buffer)
    for buffer in kept:
        lasting[buffer] = True
    turns = BufferGraph(
        nodes=(),
        producers=[],
        made=loop.made,
        read=loop.read,
        size_bytes=pool.size_bytes,
        scratch_bytes=loop.scratch_bytes,
        lasting=lasting,
        reusable=pool.reusable,
    )
    rise_bytes = simulate(turns, range(len(loop.made))).step_peak_bytes
    for buffer in inside.difference(kept):
        pool.size_bytes[buffer] = 0
    return kept, rise_bytes - sum(pool.size_bytes[buffer] for buffer in kept)


def _function(node: Node, attribute: str) -> str:
    value = node.attributes.get(attribute)
    return "" if value is None else str(value.func.name)


def known_number(node: Node, numbers: Sequence[int | None]) -> int | None:
    """What a node makes of known integers: counters of loops and their tests."""
    if not numbers or numbers[0] is None:
        return None
    one = numbers[0]
    if node.op in _KEEPS:
        return one
    other = numbers[1] if len(numbers) > 1 else None
    compute = _COMPUTES.get(node.op)
    return None if compute is None or other is None else compute(one, other)


_KEEPS = frozenset({"Identity", "Max", "Min", "Reshape", "Cast", "Squeeze"})

_COMPUTES: dict[str, Callable[[int, int], int]] = {
    "Add": lambda one, other: one + other,
    "AddV2": lambda one, other: one + other,
    "Sub": lambda one, other: one - other,
    "Minimum": min,
    "Maximum": max,
    "Less": lambda one, other: int(one < other),
    "LessEqual": lambda one, other: int(one <= other),
    "Greater": lambda one, other: int(one > other),
    "GreaterEqual": lambda one, other: int(one >= other),
    "LogicalAnd": lambda one, other: int(bool(one) and bool(other)),
    "LogicalOr": lambda one, other: int(bool(one) or bool(other)),
}
