"""Rematerialization on small graphs, each case a text before and after, and what it reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.bad_inputs import graph_def_of
from support.one_pass import run_case, run_pass
from support.text_cases import TextCase, read_cases

from memopt.errors import OptionsError
from memopt.item import GrapplerItem
from memopt.passes.rematerialization import Rematerialization
from memopt.rematerialization.limits import Plan
from memopt.rematerialization.network import OUT_OF_REACH
from memopt.rematerialization.plan_choice import make_plan
from memopt.rematerialization.rewriting import memory_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.rematerialization.limits import Limits
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized

CASES = read_cases(Path(__file__).parent / "cases" / "rematerialization.txt")


def case_of(name: str) -> TextCase:
    (case,) = (case for case in CASES if case.name.startswith(name))
    return case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    done = run_case(case, Rematerialization.parse(case.spec))
    assert done.text == case.after


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_limit_that_is_not_kept_is_reported_once(case: TextCase) -> None:
    done = run_case(case, Rematerialization.parse(case.spec))
    warnings = [one for one in done.declined if "cannot be met" in one.reason]
    assert len(warnings) == (case.before == case.after)


def test_the_report_has_the_peaks_before_and_after() -> None:
    case = case_of("what is not needed")
    first, second = run_case(case, Rematerialization.parse(case.spec)).edits
    assert first.added == ("Recomputed/kept",)
    assert "the peak is 16904 bytes instead of 17160 bytes, 512 bytes of which" in first.reason
    assert "the limit is 17012 bytes" in first.reason
    assert not second.added
    assert "16904 bytes" in second.reason


def test_the_properties_know_the_copies() -> None:
    case = case_of("a view is copied")
    properties = run_case(case, Rematerialization.parse(case.spec)).properties
    assert properties.size_bytes("Recomputed/kept:0") == 256
    assert properties.size_bytes("Recomputed/view:0") == 256


def test_a_taken_name_is_declined() -> None:
    case = case_of("a name that is taken")
    reasons = run_case(case, Rematerialization.parse(case.spec)).reasons
    assert "kept: the name 'Recomputed/kept' is taken" in reasons


def test_a_graph_within_the_limit_is_only_ordered() -> None:
    case = case_of("what is not needed")
    done = run_case(case, Rematerialization(memory_limit=1 << 20))
    assert not any(edit.added or edit.removed for edit in done.edits)
    assert not done.declined


def test_without_a_limit_it_goes_as_low_as_it_can() -> None:
    case = case_of("what is not needed")
    done = run_case(case, Rematerialization(algorithm="standard", scheduler="program"))
    assert done.text == case.after


def test_an_edit_says_what_its_plan_comes_to() -> None:
    """Of the step's own; an order is no plan."""
    case = case_of("what is not needed")
    copying, *others = run_case(case, Rematerialization.parse(case.spec)).edits
    assert copying.added
    held_bytes = 512
    assert f"so that the peak is {copying.planned.step_bytes + held_bytes} bytes" in copying.reason
    assert f"{held_bytes} bytes of which are held before the step" in copying.reason
    assert not any(edit.planned.step_bytes for edit in others)


def test_a_second_run_adds_nothing() -> None:
    for case in CASES:
        pass_ = Rematerialization.parse(case.spec)
        once = run_case(case, pass_)
        item = GrapplerItem(
            once.graph_def,
            feed=tuple(sorted(case.settings["fed"])),
            fetch=tuple(sorted(case.settings["fetched"])),
            keep=tuple(sorted(case.settings.get("kept", ()))),
        )
        assert not run_pass(item, pass_).edits, case.name


def test_of_plans_that_come_to_more_than_the_limit_the_lowest_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of what stands in one piece: plans say what they keep, and come to more in the graph."""
    made: list[Plan] = []

    def optimistic(
        algorithm: str, network: Network, limits: Limits, near: Sequence[Rematerialized]
    ) -> Plan:
        assert [plan.done for plan in made[-1:]] == list(near)
        if made:
            plan = Plan(None, limits.limit_bytes + 1, 0)
        else:
            lowest = make_plan(algorithm, network, replace(limits, limit_bytes=OUT_OF_REACH))
            plan = lowest._replace(peak_bytes=limits.limit_bytes)
        made.append(plan)
        return plan

    monkeypatch.setattr(memory_limit, "make_plan", optimistic)
    case = case_of("what is not needed")
    pass_ = replace(Rematerialization.parse(case.spec), memory_limit=16000)
    assert run_case(case, pass_).text == case.after
    assert len(made) == 2


def test_options_print_and_parse_and_are_checked() -> None:
    pass_ = Rematerialization(memory_limit=1000, largest_block=1)
    assert str(pass_) == "rematerialization{memory_limit=1000,largest_block=1}"
    assert Rematerialization.parse(str(pass_)) == pass_
    for wrong in ("memory_limit=-1", "small_node_limit=-1", "largest_block=0"):
        with pytest.raises(OptionsError, match="less than"):
            Rematerialization.parse(f"rematerialization{{{wrong}}}")
    with pytest.raises(OptionsError, match=r"scheduler is one of list, .*, not 'latest'"):
        Rematerialization(scheduler="latest")
    with pytest.raises(OptionsError, match=r"algorithm is one of standard, .*, not 'luck'"):
        Rematerialization(algorithm="luck")


def test_an_empty_graph_is_left_alone() -> None:
    item = GrapplerItem(run_case(CASES[0], Rematerialization()).graph_def.__class__())
    assert not run_pass(item, Rematerialization()).edits


LEFT_ALONE = """
x = Placeholder() {dtype=float, shape=[64,64]}
s = Shape(x) {T=float, out_type=int32}
hinted = Exp(x) {T=float, _memopt_hint="keep"}
drawn = RandomUniform(s) {T=int32, dtype=float}
first = Sin(x) {T=float}
second = Cos(x) {T=float}
asked = L2Loss(first, ^second) {T=float}
top = Tan(x, ^asked, ^hinted, ^drawn) {T=float}
one = L2Loss(top) {T=float}
a = Mul(hinted, drawn, ^one) {T=float}
b = Mul(a, first) {T=float}
c = Mul(b, second) {T=float}
end = Mul(c, one) {T=float}
"""


def test_what_is_left_alone_at_the_peak_is_told_with_the_reason() -> None:
    item = GrapplerItem(graph_def_of(LEFT_ALONE), feed=("x:0",), fetch=("asked:0", "end:0"))
    sheet = 64 * 64 * 4
    # The input, three sheets and the one at the peak.
    done = run_pass(item, Rematerialization(memory_limit=5 * sheet + 100, scheduler="program"))
    told = dict(reason.split(": ", 1) for reason in done.reasons.splitlines())
    assert told.pop("top") == f"{sheet} bytes in use at the peak: 'one' reads it there"
    assert told.pop("hinted") == f"{sheet} bytes in use at the peak: a hint says to keep it"
    drawn = f"{sheet} bytes in use at the peak: what makes it may not run twice"
    assert told.pop("drawn") == drawn
    ((node, reason),) = told.items()
    assert node in ("first", "second")
    assert "the limit is kept without recomputing it, which takes about" in reason
