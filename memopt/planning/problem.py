"""What the search works on: a cost graph as flat arrays, closed by an end that reads what is kept.

Everything here is indexed by integers: operations, values (outputs), and slots. An operation may
be computed several times; its computations have the slots from `op * COPIES` to below
`(op + 1) * COPIES`, and what is known of a value's computations stands at `value * COPIES + copy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from memopt.planning.arrays import IntArray
    from memopt.planning.cost_graph import CostGraph

COPIES = 8
"""How often an operation may be computed, swaps in included."""


class Problem(NamedTuple):
    """A cost graph for compiled loops. All arrays hold 64-bit integers.

    The last operation is the end of the step: it comes last, and reads what is kept.

    Attributes:
        cost: Of each operation, in the cost graph's unit.
        swap_cost: Of taking an operation's values to the host and back; 0 if they cannot be.
        scratch: Bytes in use only while the operation runs.
        single: 1 if an operation may be computed only once.
        value_start: Where each operation's values start; they are contiguous.
        size: Bytes of each value.
        value_op: The operation that computes it.
        input_start: Where each operation's inputs start.
        input_value: The value that each input reads.
        input_op: The operation that computes it.
        reader_start: Where each value's readers start.
        reader_op: The operations that read it.
        reader_takes: 1 if that operation may write its result over the value.
        before_start: Where the operations start that come before each one.
        before: Operations that were computed before any computation of this one.
        after_start: The same, the other way round.
        after: Operations that need this one to have been computed.
        until_start: Where the operations start that end each one's computations.
        until: Operations after which this one may not be computed any more.
        ends_start: The same, the other way round.
        ends: Operations that must have had all their computations when this one runs.
    """

    cost: IntArray
    swap_cost: IntArray
    scratch: IntArray
    single: IntArray
    value_start: IntArray
    size: IntArray
    value_op: IntArray
    input_start: IntArray
    input_value: IntArray
    input_op: IntArray
    reader_start: IntArray
    reader_op: IntArray
    reader_takes: IntArray
    before_start: IntArray
    before: IntArray
    after_start: IntArray
    after: IntArray
    until_start: IntArray
    until: IntArray
    ends_start: IntArray
    ends: IntArray


def problem_of(graph: CostGraph) -> Problem:
    """The arrays of a cost graph, with the end of the step added."""
    end = graph.operation_count
    inputs: list[dict[int, int]] = [{} for _ in range(end + 1)]
    for op, value, takes in zip(graph.read_ops, graph.read_values, graph.read_takes, strict=True):
        # Who reads a value twice cannot write over it.
        inputs[op][int(value)] = 0 if int(value) in inputs[op] else int(takes)
    inputs[end] = {int(value): 0 for value in np.flatnonzero(graph.kept)}
    producer = graph.producers
    readers: list[dict[int, int]] = [{} for _ in producer]
    before: list[set[int]] = [set() for _ in range(end + 1)]
    for op, found in enumerate(inputs):
        for value, takes in found.items():
            readers[value][op] = takes
            before[op].add(int(producer[value]))
    for first, then in graph.after:
        before[then].add(int(first))
    before[end] = set(range(end))
    until: list[list[int]] = [[] for _ in range(end + 1)]
    for first, then in graph.until:
        until[first].append(int(then))
    ordered = [sorted(found) for found in before]
    return Problem(
        cost=_with_end(graph.costs),
        swap_cost=_with_end(graph.swap_costs),
        scratch=_with_end(graph.scratch_bytes),
        single=np.append(1 - graph.recomputable.astype(np.int64), 1),
        value_start=np.append(graph.output_start, graph.output_start[-1]),
        size=graph.output_bytes,
        value_op=producer,
        input_start=_starts(inputs),
        input_value=_flat(inputs),
        input_op=producer[_flat(inputs)],
        reader_start=_starts(readers),
        reader_op=_flat(readers),
        reader_takes=_flat([found.values() for found in readers]),
        before_start=_starts(before),
        before=_flat(ordered),
        after_start=_starts(_inverted(ordered)),
        after=_flat(_inverted(ordered)),
        until_start=_starts(until),
        until=_flat(until),
        ends_start=_starts(_inverted(until)),
        ends=_flat(_inverted(until)),
    )


def output_bytes(problem: Problem) -> IntArray:
    """Bytes of each operation's values together."""
    total = np.add.reduceat(np.append(problem.size, 0), problem.value_start[:-1])
    total[np.diff(problem.value_start) == 0] = 0
    return total


def _with_end(values: IntArray) -> IntArray:
    return np.append(values, 0)


def _starts(groups: Sequence[Collection[int]]) -> IntArray:
    starts = np.zeros(len(groups) + 1, np.int64)
    np.cumsum([len(group) for group in groups], out=starts[1:])
    return starts


def _flat(groups: Sequence[Iterable[int]]) -> IntArray:
    return np.array([member for group in groups for member in group], np.int64)


def _inverted(groups: Sequence[Iterable[int]]) -> list[list[int]]:
    inverted: list[list[int]] = [[] for _ in groups]
    for index, group in enumerate(groups):
        for member in group:
            inverted[member].append(index)
    return inverted
