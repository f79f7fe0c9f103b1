"""Running sums for plans: text cases, what counts as large, and the same bits for less memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.bad_inputs import graph_def_of
from support.one_pass import run_case, run_pass
from support.text_cases import read_cases

import memopt
from memopt.context import Context
from memopt.errors import OptionsError
from memopt.graph.graphdef import from_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.item import GrapplerItem
from memopt.passes.running_sums import RunningSums
from memopt.runtime.entry import verify
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from support.text_cases import TextCase

CASES = read_cases(Path(__file__).parent / "cases" / "running_sums.txt")
OPS = ("Exp", "Sin", "Cos", "Tan", "Erf", "Sinh")
BRANCHES = len(OPS)
SIDE = 256
ROWS = "\n".join(f"b{number} = {op}(x) {{T=float}}" for number, op in enumerate(OPS))
SUM = f"""
x = Placeholder() {{dtype=float, shape=[{SIDE},{SIDE}]}}
{ROWS}
s = AddN({", ".join(f"b{number}" for number in range(BRANCHES))}) {{N={BRANCHES}, T=float}}
y = Neg(s) {{T=float}}
"""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    done = run_case(case, RunningSums.parse(case.spec))
    assert done.text == case.after
    assert done.reasons == case.declined


def test_the_pass_has_nothing_to_do_a_second_time() -> None:
    item = GrapplerItem(graph_def_of(SUM), feed=("x:0",), fetch=("y:0",))
    once = run_pass(item, RunningSums())
    assert len(once.edits) == 1
    twice = run_pass(replace(item, graph_def=once.graph_def), RunningSums())
    assert not twice.edits
    assert not twice.declined


def test_what_was_added_has_the_size_of_the_sum() -> None:
    item = GrapplerItem(graph_def_of(SUM), feed=("x:0",), fetch=("y:0",))
    properties = run_pass(item, RunningSums()).properties
    assert properties.size_bytes(f"s/sum_{BRANCHES - 2}:0") == SIDE * SIDE * 4


@pytest.mark.parametrize(("parts", "edits"), [(100, 1), (2, 1), (1, 0)])
def test_small_sums_are_left_alone(parts: int, edits: int) -> None:
    item = GrapplerItem(graph_def_of(SUM), feed=("x:0",), fetch=("y:0",))
    inputs_bytes = BRANCHES * SIDE * SIDE * 4
    context = Context(
        Properties.of(item),
        fed=frozenset({"x"}),
        fetched=frozenset({"y"}),
        budget_bytes=inputs_bytes * 3 // 2,
    )
    rewriter = Rewriter(from_graph_def(item.graph_def))
    RunningSums(smallest_part=parts).run(rewriter, context)
    assert len(rewriter.edits) == edits


def test_a_part_of_nothing_is_refused() -> None:
    with pytest.raises(OptionsError, match="smallest_part is 0, less than 1"):
        RunningSums(smallest_part=0)


def test_a_budget_is_kept_that_needs_sums_to_be_added_as_they_arrive() -> None:
    """All inputs of the sum at once are over the budget, and none of them can be computed late."""
    item = GrapplerItem(graph_def_of(SUM), feed=("x:0",), fetch=("y:0",))
    sheet_bytes = SIDE * SIDE * 4
    ordered = memopt.optimize(item, level="ordered").report.runtime
    assert ordered is not None
    assert ordered.after.step_peak_bytes >= BRANCHES * sheet_bytes
    budget = ordered.after.held_bytes + 3 * sheet_bytes
    result = memopt.optimize(item, budget=budget)
    verification = verify(item, result.graph_def, steps=2, timing_rounds=0)
    assert verification.equal
    assert verification.rewritten.peak_bytes <= budget
