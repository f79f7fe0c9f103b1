"""Ordering on small graphs, each case a text before and after, and what the pass reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.one_pass import run_case, run_pass
from support.ordering import order_step
from support.text_cases import read_cases

from memopt.errors import OptionsError
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.text import parse_graph
from memopt.item import GrapplerItem
from memopt.passes.ordering import Ordering
from memopt.sequencing.orders import SEQUENCERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.text_cases import TextCase

CASES = read_cases(Path(__file__).parent / "cases" / "ordering.txt")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    done = run_case(case, Ordering.parse(case.spec))
    assert done.text == case.after
    assert not done.declined


def test_an_ordered_graph_needs_no_further_edge() -> None:
    for case in CASES:
        pass_ = Ordering.parse(case.spec)
        once = run_case(case, pass_)
        item = GrapplerItem(
            once.graph_def,
            feed=tuple(sorted(case.settings["fed"])),
            fetch=tuple(sorted(case.settings["fetched"])),
        )
        assert not run_pass(item, pass_).edits, case.name


def test_there_is_one_edit_for_each_chain_and_it_says_why() -> None:
    (case,) = (case for case in CASES if case.name.startswith("each device"))
    edits = run_case(case, Ordering.parse(case.spec)).edits
    assert [edit.changed for edit in edits] == [("c",), ("d",)]
    assert edits[0].reason.startswith("2 operations on CPU:0 run in the order 'program'")
    assert "MiB" in edits[0].reason


THIN_FIRST = """
y = Placeholder() {dtype=float, shape=[1,16]}
x = Placeholder() {dtype=float, shape=[16,1]}
wide = MatMul(x, y) {T=float}
one = L2Loss(wide) {T=float}
thin = Exp(x) {T=float}
half = Neg(thin) {T=float}
end = Mul(thin, one, ^half) {T=float}
"""
"""The executor runs `thin` before `wide`, which needs more than the other way round."""


@pytest.mark.parametrize(
    ("sequencer", "is_ordered"),
    [("list", False), ("best", True)],
)
def test_an_order_that_needs_no_less_is_not_enforced(sequencer: str, is_ordered: bool) -> None:
    item = GrapplerItem(
        to_graph_def(parse_graph(THIN_FIRST)), feed=("x:0", "y:0"), fetch=("end:0",)
    )
    assert run_pass(item, Ordering(sequencer=sequencer)).edits
    done = run_pass(item, Ordering(sequencer=sequencer, only_lower=True))
    assert bool(done.edits) is is_ordered
    assert bool(done.declined) is not is_ordered
    if not is_ordered:
        assert "without one it needs" in done.reasons


def test_options_print_and_parse_and_are_checked() -> None:
    pass_ = Ordering(sequencer="list", smallest_bytes=65536)
    assert str(pass_) == "ordering{sequencer=list,smallest_bytes=65536}"
    assert Ordering.parse(str(pass_)) == pass_
    assert str(Ordering()) == "ordering"
    with pytest.raises(OptionsError, match="postorder"):
        Ordering(sequencer="latest")
    with pytest.raises(OptionsError, match="less than 0"):
        Ordering(smallest_bytes=-1)


def test_an_empty_graph_is_left_alone() -> None:
    item = GrapplerItem(run_case(CASES[0], Ordering()).graph_def.__class__())
    assert not run_pass(item, Ordering()).edits


@pytest.mark.parametrize("sequencer", SEQUENCERS)
def test_bodies_of_functions_are_ordered(
    sequencer: str, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    """What leads to a result or has an effect; arguments and results are no ends of edges."""
    ordered = order_step(tiny_item("lstm"), Ordering(sequencer=sequencer))
    library = from_graph_def(ordered.graph_def).library
    assert library is not None
    changed = [library.graph(name) for name in library.names()]
    before = from_graph_def(tiny_item("lstm").graph_def).library
    assert before is not None
    added = 0
    for body in changed:
        for node in body:
            ends = (node, *node.control_inputs) if node.control_inputs else ()
            assert not any(end.op in ("_Arg", "_Retval") for end in ends)
            added += len(node.control_inputs)
    assert added > sum(
        len(node.control_inputs) for name in before.names() for node in before.graph(name)
    )
    assert len(ordered.edits) > 1
