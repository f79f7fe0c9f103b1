"""Small random cost graphs with everything in them, and the least cost of small ones."""

from __future__ import annotations

import random
from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from memopt.planning.cost_graph import CostGraph, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator


def random_graph(seed: int, most_operations: int = 25) -> CostGraph:
    """Several outputs, scratch memory, writes over inputs, state, swaps, values that are kept."""
    draw = random.Random(seed)
    operations: list[Operation] = []
    for op in range(draw.randint(3, most_operations)):
        nearby = range(max(0, op - 12), op)
        earlier = [source for source in nearby if operations[source].output_bytes]
        inputs = tuple(
            (source, draw.randrange(len(operations[source].output_bytes)))
            for source in draw.choices(earlier, k=draw.randint(0, 3) if earlier else 0)
        )
        sizes = tuple(draw.choice([0, 3, 8, 20]) for _ in range(draw.choice([1, 1, 1, 2, 0])))
        operations.append(
            Operation(
                cost=draw.randint(0, 10),
                output_bytes=sizes,
                inputs=inputs,
                writes_over=(0,) if inputs and draw.random() < 0.3 else (),
                scratch_bytes=draw.choice([0, 0, 5]),
                is_recomputable=draw.random() < 0.8,
                kept=(0,) if sizes and draw.random() < 0.1 else (),
                after=(draw.randrange(op),) if op and draw.random() < 0.2 else (),
                swap_cost=draw.choice([0, 4]),
            )
        )
    for op, operation in enumerate(operations):
        writes = [w for w in range(op + 1, len(operations)) if not operations[w].is_recomputable]
        if writes and draw.random() < 0.2:
            operations[op] = replace(operation, until=(draw.choice(writes[:5]),))
    return CostGraph.build(operations)


def plain_graph(seed: int, most_operations: int = 7) -> CostGraph:
    """One output each, everything may be recomputed."""
    draw = random.Random(seed)
    operations = [
        Operation(
            cost=draw.randint(1, 9),
            output_bytes=(draw.randint(1, 9),),
            inputs=tuple(
                (source, 0)
                for source in sorted(draw.sample(range(op), min(op, draw.choice([1, 2]))))
            ),
        )
        for op in range(draw.randint(3, most_operations))
    ]
    return CostGraph.build(operations)


def as_plain(graph: CostGraph) -> dict[str, Any]:
    """A plain graph as its file has it."""
    return {
        "nodes": [
            {"id": op, "cost": each.cost, "size": each.output_bytes[0]}
            for op, each in enumerate(graph.operations)
        ],
        "edges": [[s, op] for op, each in enumerate(graph.operations) for s, _ in each.inputs],
        "order": graph.order.tolist(),
    }


def least_cost(graph: CostGraph, budget_bytes: int) -> int | None:
    """The least cost of any plan for a `plain_graph`, by trying everything; `None` if none fits.

    The shortest way through the states (what was ever computed, what is in use); whatever is in use
    may be dropped at any time.
    """
    everything = (1 << graph.operation_count) - 1
    distance = {(0, 0): 0}
    heap = [(0, 0, 0)]
    while heap:
        cost, done, held = heappop(heap)
        if done == everything:
            return cost
        if distance[done, held] < cost:
            continue
        for op_cost, next_done, next_held in _steps(graph, budget_bytes, done, held):
            state = (next_done, next_held)
            if cost + op_cost < distance.get(state, 1 << 60):
                distance[state] = cost + op_cost
                heappush(heap, (cost + op_cost, *state))
    return None


def _steps(
    graph: CostGraph, budget_bytes: int, done: int, held: int
) -> Iterator[tuple[int, int, int]]:
    for op, operation in enumerate(graph.operations):
        bit = 1 << op
        needed = sum(1 << source for source, _ in set(operation.inputs))
        if held & bit:
            yield 0, done, held & ~bit
        elif needed & ~held == 0 and _bytes(graph, held | bit) <= budget_bytes:
            yield operation.cost, done | bit, held | bit


def _bytes(graph: CostGraph, held: int) -> int:
    return sum(
        operation.output_bytes[0] for op, operation in enumerate(graph.operations) if held >> op & 1
    )
