"""Why a plan recomputes or swaps what it does: what the peak would be without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.rewriter import Decision
from memopt.planning.edits import remove, undo
from memopt.planning.problem import COPIES, output_bytes, problem_of
from memopt.planning.sequence_state import LENGTH, fill, new_state
from memopt.rematerialization.planned.reduction import Reduction, room_within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memopt.planning.arrays import IntArray
    from memopt.rematerialization.rematerialized import Rematerialized
    from memopt.rematerialization.storage.forms import Form

_NS_PER_US = 1_000
_MOST_MOVED = 4_000_000_000
"""Positions of sequences that move in all while the peaks without decisions are found: seconds."""


def explain(
    done: Rematerialized, forms: Mapping[int, Sequence[Form]], limit_bytes: int
) -> tuple[Decision, ...]:
    """Each decision of a plan; those without which the peak would be highest come first.

    The peak without one of them is what the plan's sequence would need if only that was left out,
    and all that reads it read the result from before. A link of a chain is of no use alone, and is
    needed all the same. To find it takes as long as the plan is: of very many decisions only those
    are said with it that make most bytes, and the others come last.

    Args:
        done: The plan.
        forms: By node: other forms in which its result could be kept.
        limit_bytes: What it was planned for.
    """
    network = done.instructions.network
    reduction = Reduction.of(network, forms, room_within(network, limit_bytes))
    steps = reduction.steps(done)
    if steps is None:
        return ()
    found = sorted(_weigh(reduction, steps.operations, steps.swapped), reverse=True)
    return tuple(Decision(node, reason) for _, node, reason in found)


def _weigh(
    reduction: Reduction, operations: IntArray, swapped: IntArray
) -> Iterator[tuple[int, str, str]]:
    """For each repeated computation: the peak without it, its node's name, and why it is there."""
    graph = reduction.cost_graph
    problem = problem_of(graph)
    state = new_state(problem, 0, 0)
    fill(problem, state, operations, swapped)
    sizes = output_bytes(problem)
    nodes = reduction.network.buffer_graph.nodes
    length = int(state.numbers[LENGTH])
    slots = [slot for slot in state.sequence[:length].tolist() if state.previous[slot] >= 0]
    slots.sort(key=lambda slot: -int(sizes[slot // COPIES]))
    for number, slot in enumerate(slots):
        op = slot // COPIES
        cost, what = problem.cost[op], "recomputed"
        if state.swapped[slot]:
            cost, what = problem.swap_cost[op], "brought back from the host"
        reason = f"{what}, {int(sizes[op])} bytes in about {cost / _NS_PER_US:.1f} us"
        peak_bytes = 0
        if number * length < _MOST_MOVED:
            remove(problem, state, slot)
            peak_bytes = int(state.bytes_at[: length - 1].max()) + graph.held_bytes
            undo(problem, state, slot)
            reason += f"; kept instead, the peak would be {peak_bytes} bytes"
        yield peak_bytes, nodes[reduction.nodes[op]].name, reason
