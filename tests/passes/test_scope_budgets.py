"""Budgets of scopes: what they say, that they are kept for real, and what if they cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.bad_inputs import graph_def_of

import memopt
from memopt.errors import BudgetError, OptionsError
from memopt.item import GrapplerItem
from memopt.passes.rematerialization import Rematerialization
from memopt.rematerialization.rewriting.scope_budgets import ScopeBudget, parse_scopes
from memopt.runtime.entry import verify

if TYPE_CHECKING:
    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.result import OptimizationResult

SHEET = 64 * 64 * 4
STEP = """
x = Placeholder() {dtype=float, shape=[64,64]}
early/first = Sin(x) {T=float}
early/second = Cos(x) {T=float}
asked = L2Loss(early/first) {T=float}
asked_too = L2Loss(early/second) {T=float}
late/wide = MatMul(x, x, ^asked, ^asked_too) {T=float}
late/wider = MatMul(late/wide, x) {T=float}
late/one = L2Loss(late/wider) {T=float}
a = MatMul(x, early/first, ^late/one) {T=float}
b = MatMul(a, early/second) {T=float}
end = Mul(b, late/one) {T=float}
"""


def item() -> GrapplerItem:
    return GrapplerItem(
        graph_def_of(STEP), feed=("x:0",), fetch=("asked:0", "asked_too:0", "end:0")
    )


def optimized(scopes: str, budget: str = "1MiB") -> OptimizationResult:
    return memopt.optimize(
        item(), budget=budget, pass_options=[f"rematerialization{{scopes={scopes}}}"]
    )


def after(result: OptimizationResult) -> MemoryTimeline:
    assert result.report.runtime is not None
    return result.report.runtime.after


def peak_of(pattern: str, timeline: MemoryTimeline) -> int:
    return ScopeBudget(pattern, 1).peak_bytes(timeline.buffer_graph, timeline.sequence)


def test_budgets_are_read_and_refused() -> None:
    assert parse_scopes("") == ()
    expected = (ScopeBudget("encoder/*", 100 << 20), ScopeBudget("a:b/*", 1000))
    assert parse_scopes("encoder/*:100MiB;a:b/*:1kB") == expected
    for text in ("encoder/*", ":1MiB", "encoder/*:much"):
        with pytest.raises(OptionsError):
            Rematerialization(scopes=text)


def test_only_the_scopes_own_results_count() -> None:
    timeline = after(memopt.optimize(item(), level="ordered"))
    assert peak_of("early/*", timeline) == 2 * SHEET
    assert peak_of("late/*", timeline) == pytest.approx(2 * SHEET, abs=256)
    assert peak_of("no/*", timeline) == 0


def test_a_scopes_budget_is_kept_with_the_same_bits() -> None:
    result = optimized(f"early/*:{SHEET}")
    timeline = after(result)
    assert peak_of("early/*", timeline) == SHEET
    added = {name for done in result.report.passes for edit in done.edits for name in edit.added}
    assert added <= {"Recomputed/early/first", "Recomputed/early/second"}
    assert added
    assert verify(item(), result.graph_def, steps=2, timing_rounds=0).equal


def test_a_scope_and_the_step_are_kept_together() -> None:
    peak_bytes = after(memopt.optimize(item(), level="ordered")).peak_bytes
    budget = peak_bytes - SHEET + 256
    timeline = after(optimized(f"early/*:{SHEET};late/*:{2 * SHEET + 512}", str(budget)))
    assert timeline.peak_bytes <= budget
    assert peak_of("early/*", timeline) <= SHEET


def test_a_scopes_budget_that_cannot_be_kept_is_an_error_that_names_it() -> None:
    with pytest.raises(BudgetError, match=r"of the scope 'early/\*' cannot be kept") as caught:
        optimized(f"early/*:{SHEET - 1}")
    assert caught.value.lowest_bytes == SHEET
    assert caught.value.budget_bytes == SHEET - 1
