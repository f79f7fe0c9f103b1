"""The figures of a result: peaks, floor, overhead; plain data, as it goes between processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memopt.buffers.working_sets import largest_working_set
from memopt.cluster import ANY_CPU
from memopt.costs.kernel_costs import KernelCosts
from memopt.graph.copy_names import is_copy

if TYPE_CHECKING:
    from memopt.result import OptimizationReport
    from memopt.saved_model.report import FunctionReport


def figures_of(report: OptimizationReport, function: str = "") -> dict[str, Any]:
    """What was predicted for a graph or a function.

    Args:
        report: What was done to it.
        function: What it is called; "" for the main graph.

    Returns:
        Bytes, and `overhead` as a share of the estimated time; see the reference of the JSON file
        in docs/fleets.md.
    """
    runtime = report.runtime
    if runtime is None:
        return {"function": function}
    return {
        "function": function,
        "held_bytes": runtime.before.held_bytes,
        "peak_before_bytes": runtime.before.peak_bytes,
        "peak_after_bytes": runtime.after.peak_bytes,
        "budget_bytes": runtime.budget_bytes,
        "keeps_budget": runtime.keeps_budget,
        "floor_bytes": _floor_bytes(report),
        "overhead": _overhead(report),
    }


def figures_of_function(one: FunctionReport) -> dict[str, Any]:
    """The same of a function of a SavedModel, with what was done to it."""
    plain: dict[str, Any] = {"function": one.called_as}
    if one.report is not None:
        plain = figures_of(one.report, one.called_as)
    if one.peak_before_bytes:
        plain["peak_after_bytes"] = one.peak_after_bytes
        plain["keeps_budget"] = one.keeps_budget
    if one.outcome != "rewritten" and "overhead" in plain:
        plain["overhead"] = 0.0
    return plain | {"outcome": one.outcome, "reason": one.reason}


def _floor_bytes(report: OptimizationReport) -> int:
    """What no order and no recomputation gets below."""
    assert report.runtime is not None
    after = report.runtime.after
    return largest_working_set(after.buffer_graph, after.sequence).size_bytes


def _overhead(report: OptimizationReport) -> float:
    """The estimated time of what runs again, as a share of everything once."""
    assert report.runtime is not None
    costs, properties = KernelCosts(), report.properties
    graph = report.runtime.after.buffer_graph
    once_ns = again_ns = 0
    for number in report.runtime.after.sequence:
        node = graph.nodes[number]
        time_ns = costs.cost(node, ANY_CPU, properties).execution_ns
        if is_copy(node.name):
            again_ns += time_ns
        else:
            once_ns += time_ns
    return round(again_ns / max(once_ns, 1), 6)
