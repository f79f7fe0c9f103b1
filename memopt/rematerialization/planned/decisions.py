"""Why a plan recomputes or swaps what it does: what the peak would be without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.rewriter import Decision
from memopt.planning.edits import remove, undo
from memopt.planning.problem import COPIES, output_bytes, problem_of
from memopt.planning.sequence_state import LENGTH, fill, new_state
from memopt.rematerialization.planned.reduction import Reduction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memopt.planning.arrays import IntArray
    from memopt.rematerialization.rematerialized import Rematerialized
    from memopt.rematerialization.storage.forms import Form

_NS_PER_US = 1_000


def explain(done: Rematerialized, forms: Mapping[int, Sequence[Form]]) -> tuple[Decision, ...]:
    """Each decision of a plan; those without which the peak would be highest come first.

    The peak without one of them is what the plan's sequence would need if only that was left out,
    and all that reads it read the result from before. A link of a chain is of no use alone, and is
    needed all the same.

    Args:
        done: The plan.
        forms: By node: other forms in which its result could be kept.
    """
    reduction = Reduction.of(done.instructions.network, forms)
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
    for slot in state.sequence[: state.numbers[LENGTH]].tolist():
        if state.previous[slot] < 0:
            continue
        op = slot // COPIES
        cost, what = problem.cost[op], "recomputed"
        if state.swapped[slot]:
            cost, what = problem.swap_cost[op], "brought back from the host"
        remove(problem, state, slot)
        peak_bytes = int(state.bytes_at[: state.numbers[LENGTH]].max()) + graph.held_bytes
        undo(problem, state, slot)
        reason = (
            f"{what}, {int(sizes[op])} bytes in about {cost / _NS_PER_US:.1f} us; kept instead, "
            f"the peak would be {peak_bytes} bytes"
        )
        yield peak_bytes, nodes[reduction.nodes[op]].name, reason
