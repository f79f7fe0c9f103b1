"""Sums held to one order of addition, each case a text before and after, and run for real."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.bad_inputs import graph_def_of
from support.one_pass import run_case, run_pass
from support.text_cases import read_cases

from memopt.buffers.kernel_call import Runtime
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


@pytest.mark.parametrize(
    ("threads", "waits", "order"),
    [(1, {"n": "s"}, "order of one thread"), (2, {"s": "n"}, "likely order of 2 threads")],
)
def test_a_sum_is_held_to_what_the_threads_of_the_program_would_do(
    threads: int, waits: dict[str, str], order: str
) -> None:
    """One thread comes to `q` last; of two one has long read `m` when the products are there."""
    rows = ["q = Exp(z) {T=float}", "m = Mul(x, y) {T=float}"]
    rows += [f"p{n} = MatMul({f'p{n - 1}' if n else 'x'}, y) {{T=float}}" for n in range(8)]
    rows += ["s = AddN(x, y, m, p7) {N=4, T=float}", "n = Mul(m, q) {T=float}"]
    fed = [f"{name} = Placeholder() {{dtype=float, shape=[256,256]}}" for name in "zxy"]
    item = GrapplerItem(
        graph_def_of("\n".join([*fed, *rows])), feed=("x:0", "y:0", "z:0"), fetch=("s:0", "n:0")
    )
    done = run_pass(item, PinSums(), runtime=Runtime(inter_op_threads=threads))
    held = {node.name: node.control_inputs[0].name for node in done.graph if node.control_inputs}
    assert held == waits
    (edit,) = done.edits
    assert order in edit.reason
