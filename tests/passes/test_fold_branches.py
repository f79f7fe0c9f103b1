"""Branches folded on small graphs, each case a text before and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.one_pass import run_case
from support.text_cases import read_cases

from memopt.passes import BypassOptionals, FoldBranches

if TYPE_CHECKING:
    from support.text_cases import TextCase

    from memopt.passes import Pass

FOLDER = Path(__file__).parent / "cases"
CASES: list[tuple[TextCase, Pass]] = [
    *((case, FoldBranches()) for case in read_cases(FOLDER / "fold_branches.txt")),
    *((case, BypassOptionals()) for case in read_cases(FOLDER / "bypass_optionals.txt")),
]


@pytest.mark.parametrize(("case", "pass_"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_case(case: TextCase, pass_: Pass) -> None:
    done = run_case(case, pass_.parse(case.spec))
    assert done.text == case.after
    assert done.reasons == case.declined
