"""Why a budget cannot be kept: the lowest peak found, what is in use there, what it cannot pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.buffers.working_sets import WorkingSet, largest_working_set
from memopt.errors import BudgetError
from memopt.graph.op_types import called_functions

if TYPE_CHECKING:
    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.graph.graph import FunctionLibrary
    from memopt.result import OptimizationResult

_LARGEST_SHOWN = 3


def refusal(result: OptimizationResult, library: FunctionLibrary | None) -> BudgetError:
    """The error that says that a budget is not kept, and hands over what comes nearest.

    Args:
        result: The step with the lowest peak that was found, and the budget.
        library: The functions that it may call.
    """
    runtime = result.report.runtime
    assert runtime is not None
    over = next((device for device in runtime.devices if not device.keeps_budget), None)
    if over is not None:
        return BudgetError(
            f"the budget of {over.budget_bytes} bytes of {over.name} cannot be kept: the lowest "
            f"peak that was found there is {over.peak_after_bytes} bytes, {over.held_bytes} of "
            "which are held before the step begins",
            over.budget_bytes,
            over.peak_after_bytes,
            result,
        )
    after, budget_bytes = runtime.after, runtime.budget_bytes
    failures = (done.failure for done in result.report.passes if done.failure)
    undone = "".join(f"; undone: {failure}" for failure in failures)
    node = after.buffer_graph.nodes[after.sequence[after.peak_position]]
    return BudgetError(
        f"the budget of {budget_bytes} bytes cannot be kept: the lowest peak that was found is "
        f"{after.peak_bytes} bytes, {after.held_bytes} of which are held before the step begins; "
        f"the peak is at {node.name!r}{_largest_there(after)}{_floor_text(after, library)}{undone}",
        budget_bytes,
        after.peak_bytes,
        result,
    )


def _largest_there(after: MemoryTimeline) -> str:
    """The largest results of the step at its peak, in words; "" if there are none."""
    graph = after.buffer_graph
    found = [
        f"{graph.nodes[graph.makers[buffer]].name!r} ({after.memory_bytes(buffer)} bytes)"
        for buffer in after.results_at_peak()[:_LARGEST_SHOWN]
    ]
    return f", where the largest results in use are {', '.join(found)}" if found else ""


def find_floor(after: MemoryTimeline, library: FunctionLibrary | None) -> WorkingSet:
    """What no order and no recomputation of a step gets below.

    Calls are left out: what they need depends on how their functions are rewritten.

    Args:
        after: The step.
        library: The functions that it may call.
    """
    nodes = after.buffer_graph.nodes
    running = after.sequence
    if library is not None:
        running = tuple(n for n in running if not called_functions(nodes[n], library))
    return largest_working_set(after.buffer_graph, running)


def _floor_text(after: MemoryTimeline, library: FunctionLibrary | None) -> str:
    """The same in words; "" if there is nothing to say."""
    floor = find_floor(after, library)
    if floor.node < 0:
        return ""
    return (
        f"; no order and no recomputation gets below {floor.size_bytes} bytes, which "
        f"{after.buffer_graph.nodes[floor.node].name!r} needs to run"
    )
