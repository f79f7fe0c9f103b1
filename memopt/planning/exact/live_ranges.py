"""How long what a sequence computes is in use: the same rules as the checker's, on flat arrays."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.planning.arrays import IntArray
    from memopt.planning.problem import Problem

    Reads = list[list[tuple[int, int, int]]]


class Lives(NamedTuple):
    """A sequence and the lives of the values in it.

    Attributes:
        operations: By index, in the order of execution.
        swapped: For each of them, 1 if it is a swap in.
        steps: For each operation, its steps, in order.
        ends: For each step, its values' first steps in which they are not in use any more.
        read_until: For each step, the last step that reads each of its values; -1 if none does.
        step_bytes: Bytes in use at each step.
    """

    operations: list[int]
    swapped: list[int]
    steps: list[list[int]]
    ends: list[dict[int, int]]
    read_until: list[dict[int, int]]
    step_bytes: IntArray


def lives_of(
    problem: Problem, reads: Reads, operations: Sequence[int], swapped: Sequence[int]
) -> Lives:
    """The lives of a sequence; the end of the step, as an operation, is its last one.

    A beginning of a sequence may be given as well: as if nothing followed.
    """
    steps: list[list[int]] = [[] for _ in problem.cost]
    ends: list[dict[int, int]] = []
    read_until: list[dict[int, int]] = []
    starts = problem.value_start.tolist()
    for step, op in enumerate(operations):
        values = range(starts[op], starts[op + 1])
        ends.append(dict.fromkeys(values, step + 1))
        read_until.append(dict.fromkeys(values, -1))
        for value, source, takes in () if swapped[step] else reads[op]:
            read_from = steps[source][-1]
            ends[read_from][value] = step + 1 - takes
            read_until[read_from][value] = step
        steps[op].append(step)
    return Lives(
        list(operations), list(swapped), steps, ends, read_until, _bytes(problem, operations, ends)
    )


def reads_of(problem: Problem) -> Reads:
    """What each operation reads: value, its operation, 1 if it may write its result over it."""
    takes = {
        (op, value): takes
        for value, (first, last) in enumerate(pairwise(problem.reader_start.tolist()))
        for op, takes in zip(
            problem.reader_op[first:last].tolist(),
            problem.reader_takes[first:last].tolist(),
            strict=True,
        )
    }
    values = problem.input_value.tolist()
    sources = problem.input_op.tolist()
    return [
        [(values[at], sources[at], takes[op, values[at]]) for at in range(first, last)]
        for op, (first, last) in enumerate(pairwise(problem.input_start.tolist()))
    ]


def _bytes(problem: Problem, sequence: Sequence[int], ends: list[dict[int, int]]) -> IntArray:
    change = np.zeros(len(sequence) + 2, np.int64)
    for step, op in enumerate(sequence):
        change[step] += problem.scratch[op]
        change[step + 1] -= problem.scratch[op]
        for value, until in ends[step].items():
            change[step] += problem.size[value]
            change[until] -= problem.size[value]
    return np.cumsum(change)[: len(sequence)]
