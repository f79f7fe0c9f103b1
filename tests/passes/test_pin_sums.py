"""Sums held to one order of addition, each case a text before and after, and run for real."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.one_pass import run_case, run_pass
from support.text_cases import read_cases

from memopt.item import GrapplerItem
from memopt.passes.pin_sums import PinSums

if TYPE_CHECKING:
    from support.text_cases import TextCase

CASES = read_cases(Path(__file__).parent / "cases" / "pin_sums.txt")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    done = run_case(case, PinSums.parse(case.spec))
    assert done.text == case.after
    assert done.reasons == case.declined


def test_the_pass_has_nothing_to_do_a_second_time() -> None:
    for case in CASES:
        once = run_case(case, PinSums())
        item = GrapplerItem(
            once.graph_def,
            feed=tuple(sorted(case.settings["fed"])),
            fetch=tuple(sorted(case.settings["fetched"])),
        )
        assert not run_pass(item, PinSums()).edits, case.name


def test_the_edit_says_on_whom_the_bits_depend() -> None:
    (edit,) = run_case(CASES[0], PinSums()).edits
    assert "before or after 'n'" in edit.reason
