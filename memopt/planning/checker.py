"""Judges a plan on its own: does it run, what is its peak, what does it cost. Simple and slow.

It shares nothing with the search but the cost graph, so that a fault there is seen here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.errors import InvalidGraphError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.planning.cost_graph import CostGraph, Operation


class Judgement(NamedTuple):
    """What a sequence comes to.

    Attributes:
        peak_bytes: The most bytes in use while any of its steps runs.
        cost: Of all its computations and swaps.
        step_bytes: The bytes in use at each step.
    """

    peak_bytes: int
    cost: int
    step_bytes: tuple[int, ...]


def judge(graph: CostGraph, sequence: Sequence[int], swaps_in: Sequence[int] = ()) -> Judgement:
    """Go through a sequence, step by step.

    A step reads the latest earlier computation of each operation that it needs. An output is in
    use from its computation to the last step that reads that computation, both included; what is
    kept, to the end. A step whose result may be written over an input does so if it is the last
    to read it.

    Args:
        graph: What is computed.
        sequence: Operations, by index, in the order of execution; repeats are recomputations.
        swaps_in: The places in the sequence that bring outputs back from the host instead.

    Raises:
        InvalidGraphError: It does not run: something is missing, read before it is there, computed
            too late, or more often than it may be.
    """
    in_use = [graph.held_bytes + graph.operations[op].scratch_bytes for op in sequence]
    in_use.append(graph.held_bytes)
    for step, output, end in lives(graph, sequence, swaps_in):
        size = graph.operations[sequence[step]].output_bytes[output]
        for at in range(step, end):
            in_use[at] += size
    costs = [graph.operations[op].cost for op in sequence]
    for step in swaps_in:
        costs[step] = graph.operations[sequence[step]].swap_cost
    return Judgement(max(in_use), sum(costs), tuple(in_use))


class Life(NamedTuple):
    """An output of one step of a sequence, while it is in use.

    Attributes:
        step: The step that makes it.
        output: The number of the output.
        end: The first step at which it is not in use any more.
    """

    step: int
    output: int
    end: int


def lives(
    graph: CostGraph, sequence: Sequence[int], swaps_in: Sequence[int] = ()
) -> Iterator[Life]:
    """What each step of a sequence makes, and until when it is in use; arguments as for `judge`.

    Raises:
        InvalidGraphError: As for `judge`.
    """
    uses = _uses(graph, sequence, frozenset(swaps_in))
    for step, op in enumerate(sequence):
        for output in range(len(graph.operations[op].output_bytes)):
            last, is_taken = uses[step].get(output, (step, False))
            yield Life(step, output, last + (0 if is_taken else 1))


def _uses(
    graph: CostGraph, sequence: Sequence[int], swaps_in: frozenset[int]
) -> list[dict[int, tuple[int, bool]]]:
    """For each step and output, the step that reads it last, and whether it writes over it."""
    latest: dict[int, int] = {}
    computed: dict[int, int] = {}
    uses: list[dict[int, tuple[int, bool]]] = []
    for step, op in enumerate(sequence):
        uses.append({})
        if step in swaps_in:
            _check_swap(graph, step, op, latest)
        else:
            _check(graph, step, op, latest)
            computed[op] = step
            for source, output, takes in _reads(graph.operations[op]):
                uses[latest[source]][output] = (step, takes)
        latest[op] = step
    _check_end(graph, sequence, computed)
    for op, step in latest.items():
        for output in graph.operations[op].kept:
            uses[step][output] = (len(sequence), False)
    return uses


def _reads(operation: Operation) -> list[tuple[int, int, bool]]:
    """The outputs that an operation reads, and whether it may write over them."""
    return [
        (source, output, place in operation.writes_over and operation.inputs.count(read) == 1)
        for place, read in enumerate(operation.inputs)
        for source, output in [read]
    ]


def _check(graph: CostGraph, step: int, op: int, latest: dict[int, int]) -> None:
    operation = graph.operations[op]
    needed = [source for source, _ in operation.inputs] + list(operation.after)
    for source in needed:
        if source not in latest:
            raise InvalidGraphError(
                f"step {step} computes node {graph.ids[op]} before node {graph.ids[source]}"
            )
    if op in latest and not operation.is_recomputable:
        raise InvalidGraphError(f"node {graph.ids[op]} is computed twice")


def _check_swap(graph: CostGraph, step: int, op: int, latest: dict[int, int]) -> None:
    if op not in latest or not graph.operations[op].swap_cost:
        raise InvalidGraphError(f"step {step} swaps node {graph.ids[op]} in, which is not out")


def _check_end(graph: CostGraph, sequence: Sequence[int], computed: dict[int, int]) -> None:
    """Whether everything was computed, and nothing after what ends it."""
    for op, operation in enumerate(graph.operations):
        if op not in computed:
            raise InvalidGraphError(f"node {graph.ids[op]} is not computed")
        for then in operation.until:
            if then in computed and sequence.index(then) < computed[op]:
                raise InvalidGraphError(
                    f"node {graph.ids[op]} is computed after node {graph.ids[then]}"
                )
