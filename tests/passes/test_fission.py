"""Fission on small graphs, each case a text before and after, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.attention import attention_step
from support.one_pass import run_case, run_pass
from support.text_cases import read_cases

import memopt
from memopt.errors import BudgetError, OptionsError
from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.item import GrapplerItem
from memopt.passes.fission import Fission

if TYPE_CHECKING:
    from support.text_cases import TextCase

CASES = read_cases(Path(__file__).parent / "cases" / "fission.txt")
TRUSTING = Fission(try_kernels=False)
CHAIN = """
x = Placeholder() {dtype=float, shape=[4,16]}
m = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: 1 int_val: 64 }>}
a = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 tensor_shape { dim { size: 1 } } int_val: 1 }>}
y = Tile(x, m) {T=float, Tmultiples=int32}
e = Exp(y) {T=float}
s = Sum(e, a) {T=float, Tidx=int32}
n = Neg(s) {T=float}
"""  # noqa: E501 - constants


def item_of(text: str, fetch: tuple[str, ...] = ("n",), keep: tuple[str, ...] = ()) -> GrapplerItem:
    return GrapplerItem(to_graph_def(parse_graph(text)), feed=("x",), fetch=fetch, keep=keep)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    done = run_case(case, Fission.parse(case.spec))
    assert done.text == case.after
    assert done.reasons == case.declined


def test_parts_are_not_split_again() -> None:
    done = run_pass(item_of(CHAIN), TRUSTING)
    assert len(done.edits) == 1
    assert not any("part_0/part_0" in node.name for node in done.graph)


@pytest.mark.parametrize("options", [Fission(most_parts=1), Fission(memory_limit=1 << 30)])
def test_nothing_is_split_that_need_not_be(options: Fission) -> None:
    assert not run_pass(item_of(CHAIN), options).edits


@pytest.mark.parametrize("named", [{"fetch": ("n", "y", "e", "s")}, {"keep": ("y", "e", "s")}])
def test_what_has_a_name_for_the_caller_stays(named: dict[str, tuple[str, ...]]) -> None:
    done = run_pass(item_of(CHAIN, **named), TRUSTING)
    assert {"y", "e", "s", "n"} <= {node.name for node in done.graph}


def test_operations_on_a_gpu_stay_whole() -> None:
    graph_def = to_graph_def(parse_graph(CHAIN))
    for node in graph_def.node:
        node.device = "/device:GPU:0"
    item = GrapplerItem(graph_def, feed=("x",), fetch=("n",))
    assert not run_pass(item, TRUSTING).edits


def test_the_second_run_of_a_graph_does_the_same() -> None:
    first, second = (run_pass(item_of(CHAIN), TRUSTING) for _ in range(2))
    assert first.text == second.text
    assert first.edits == second.edits


def test_options_are_checked() -> None:
    with pytest.raises(OptionsError, match="most_parts is 0, less than 1"):
        Fission(most_parts=0)
    with pytest.raises(OptionsError, match="memory_limit is -1, less than 0"):
        Fission(memory_limit=-1)


def test_a_budget_below_the_floor_is_kept_by_fission_and_by_nothing_else() -> None:
    step = attention_step()
    with pytest.raises(BudgetError):
        memopt.optimize(step.function, budget="40%", pass_options=("fission{most_parts=1}",))
    trusting = ("fission{try_kernels=false}",)
    result = memopt.optimize(step.function, budget="40%", pass_options=trusting)
    (report,) = result.report.named("fission")
    assert report.edits
    assert "parts of their rows" in report.edits[0].reason
    assert report.edits[0].decisions
    assert result.report.runtime is not None
    assert result.report.runtime.keeps_budget


def test_a_budget_that_is_kept_without_splits_nothing() -> None:
    result = memopt.optimize(attention_step().function, budget="90%")
    assert not result.report.named("fission")
