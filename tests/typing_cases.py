"""Uses of the public surface for mypy, right and wrong ones; nothing of this runs.

An expected error carries `type: ignore` with its code; `warn_unused_ignores`, which is part of
strict, reports one that no longer occurs.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

import memopt

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.core.framework.graph_pb2 import GraphDef


def step(samples: float) -> float:
    return samples


def right_uses_of_the_switches() -> None:
    assert_type(memopt.enable(), memopt.Policy)
    memopt.enable(level=memopt.Level.ORDERED, budget="60%", only="all", report_dir=Path("reports"))
    memopt.enable(budget=6 << 30, pass_options=["ordering{smallest_bytes=65536}"])
    memopt.enable(budget=memopt.Budget.parse("6GiB"), deadline_ms=1000, from_config=True)
    assert_type(memopt.enabled(budget="60%"), AbstractContextManager[memopt.Policy])
    with memopt.enabled(min_nodes=4) as policy:
        assert_type(policy, memopt.Policy)
    assert_type(memopt.plugin_status(), memopt.PluginStatus)


def right_uses_of_the_decorator() -> None:
    decorated = memopt.optimize_function(step)
    assert_type(decorated(1.0), float)
    with_options = memopt.optimize_function(budget="60%", enabled=True)(step)
    assert_type(with_options(1.0), float)

    @memopt.optimize_function(enabled=False)
    def other(samples: int) -> str:
        return str(samples)

    assert_type(other(1), str)


def wrong_uses_of_the_switches() -> None:
    memopt.enable(levle="ordered")  # type: ignore[call-arg]
    memopt.enable("ordered")  # type: ignore[call-arg]
    memopt.enable(budget=0.6)  # type: ignore[arg-type]
    memopt.enable(only="some")  # type: ignore[arg-type]
    memopt.enable(min_nodes="4")  # type: ignore[arg-type]
    memopt.enabled(deadline_ms=None)  # type: ignore[arg-type]
    memopt.enabled(small_node_limit="1MiB")  # type: ignore[arg-type]
    memopt.optimize_function(bugdet="60%")  # type: ignore[call-overload]
    memopt.optimize_function(budget=0.6)  # type: ignore[call-overload]
    memopt.optimize_function(step)("text")  # type: ignore[arg-type]


def right_uses_of_the_calls(graph_def: GraphDef, function: Any) -> None:
    result = memopt.optimize(graph_def, budget="60%", fetch=["loss:0"], devices=["GPU:0=GPU:16GiB"])
    assert_type(result, memopt.OptimizationResult)
    assert_type(result.report, memopt.OptimizationReport)
    memopt.rewrite(function, level="recomputation_heuristics", target_scope="auto", keep=("a",))
    memopt.rewrite(function, graph_def=graph_def)
    assert_type(memopt.verify(graph_def, graph_def, mode="as-is", steps=1), memopt.Verification)
    assert_type(memopt.analyze("graph.pb", devices="GPU:0=GPU:16GiB"), memopt.MemoryAnalysis)
    assert_type(memopt.fit(function, "4GiB", max_overhead=0.2), memopt.Fit)
    assert_type(memopt.plan({"nodes": []}, 0.8, exact=True), memopt.Plan)
    assert_type(memopt.sweep("graph.json", budgets=3), tuple[memopt.Plan, ...])
    assert_type(memopt.profile(function, steps=3).step_ns, int)


def wrong_uses_of_the_calls(graph_def: GraphDef, function: Any) -> None:
    memopt.optimize(graph_def, bugdet="60%")  # type: ignore[call-arg]
    memopt.optimize(graph_def, "ordered")  # type: ignore[call-arg]
    memopt.optimize(graph_def, budget=0.6)  # type: ignore[arg-type]
    memopt.optimize(graph_def, deadline_ms="1s")  # type: ignore[arg-type]
    memopt.optimize(graph_def, fetch=3)  # type: ignore[arg-type]
    memopt.rewrite(function, bugdet="60%")  # type: ignore[call-arg]
    memopt.rewrite(function, "ordered")  # type: ignore[call-arg]
    memopt.rewrite(function, small_node_limit="1MiB")  # type: ignore[arg-type]
    memopt.rewrite(function, level=3)  # type: ignore[arg-type]
    memopt.verify(graph_def, graph_def, mode="exactly")  # type: ignore[arg-type]
    memopt.analyze(graph_def, cost="native")  # type: ignore[call-arg]
    memopt.plan({"nodes": []})  # type: ignore[call-arg]
    memopt.fit(function)  # type: ignore[call-arg]


def wrong_uses_of_results(result: memopt.OptimizationResult, policy: memopt.Policy) -> None:
    result.graph_def = None  # type: ignore[misc]
    policy.budget = "60%"  # type: ignore[misc]
    result.peak  # type: ignore[attr-defined]  # noqa: B018 - the look-up is the case
    callback: Callable[[], int] = memopt.disable  # type: ignore[assignment]
    del callback
