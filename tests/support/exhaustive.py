"""The least cost of small cost graphs with everything in them, by trying everything."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.planning.cost_graph import CostGraph, Operation

    Value = tuple[int, int]
    State = tuple[frozenset[int], frozenset[Value]]


def least_cost_of(graph: CostGraph, budget_bytes: int) -> int | None:
    """The least cost of any plan, `None` if none fits.

    The shortest way through the states: what was ever computed, and what is held. Whatever is held
    may be dropped at any time, and when a step runs, it may be written over.
    """
    kept = {(op, output) for op, each in enumerate(graph.operations) for output in each.kept}
    start: State = (frozenset(), frozenset())
    distance = {start: 0}
    heap = [(0, 0, start)]
    count = 0
    while heap:
        cost, _, state = heappop(heap)
        if distance[state] < cost:
            continue
        if len(state[0]) == graph.operation_count and kept <= state[1]:
            return cost
        for extra, following in _moves(graph, budget_bytes, state):
            if cost + extra < distance.get(following, 1 << 60):
                distance[following] = cost + extra
                count += 1
                heappush(heap, (cost + extra, count, following))
    return None


def _moves(graph: CostGraph, budget_bytes: int, state: State) -> Iterator[tuple[int, State]]:
    done, held = state
    for value in held:
        yield 0, (done, held - {value})
    for op, operation in enumerate(graph.operations):
        outputs = frozenset((op, output) for output in range(len(operation.output_bytes)))
        is_out = op in done and operation.swap_cost
        if is_out and _bytes(graph, held | outputs, operation) <= budget_bytes:
            yield operation.swap_cost, (done, held | outputs)
        if not _runs(graph, op, done, held):
            continue
        for taken in _takings(operation):
            left = (held - taken) | outputs
            if _bytes(graph, left, operation) <= budget_bytes:
                yield operation.cost, (done | {op}, left)


def _runs(graph: CostGraph, op: int, done: frozenset[int], held: frozenset[Value]) -> bool:
    operation = graph.operations[op]
    if op in done and not operation.is_recomputable:
        return False
    # What nobody holds is read all the same if it holds no bytes.
    needed = {
        (source, output)
        for source, output in operation.inputs
        if graph.operations[source].output_bytes[output]
    }
    before = {*operation.after, *(source for source, _ in operation.inputs)}
    return needed <= held and before <= done and not done & {*operation.until}


def _takings(operation: Operation) -> Iterator[frozenset[Value]]:
    """What a step may write its result over, any part of it."""
    values = [operation.inputs[place] for place in set(operation.writes_over)]
    values = [value for value in values if operation.inputs.count(value) == 1]
    for count in range(len(values) + 1):
        yield from map(frozenset, combinations(values, count))


def _bytes(graph: CostGraph, held: frozenset[Value], operation: Operation) -> int:
    sizes = sum(graph.operations[op].output_bytes[output] for op, output in held)
    return graph.held_bytes + sizes + operation.scratch_bytes
