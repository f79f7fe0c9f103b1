"""Recomputation on small graphs, each case a text before and after."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.text_cases import TextCase, read_cases

from memopt.errors import OptionsError
from memopt.graph.graphdef import to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.text import format_graph, parse_graph
from memopt.graph.verify import verify_graph
from memopt.item import GrapplerItem
from memopt.passes import Context, Recomputation
from memopt.shapes.properties import Properties

CASES = read_cases(Path(__file__).parent / "cases" / "recomputation.txt")


def run(case: TextCase) -> tuple[str, Rewriter]:
    graph = parse_graph(case.before)
    context = Context(
        Properties.of(GrapplerItem(to_graph_def(graph))),
        fed=case.settings.get("fed", frozenset()),
        fetched=case.settings.get("fetched", frozenset()),
    )
    verify_graph(graph)
    rewriter = Rewriter(graph)
    Recomputation.parse(case.spec).run(rewriter, context)
    verify_graph(graph)
    return format_graph(graph), rewriter


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    after, rewriter = run(case)
    assert after == case.after
    declined = "\n".join(f"{one.node}: {one.reason}" for one in rewriter.declined)
    assert declined == case.declined


def test_an_edit_says_what_it_releases_and_holds() -> None:
    case = next(case for case in CASES if "several nodes" in case.name)
    _, rewriter = run(case)
    (edit,) = rewriter.edits
    assert set(edit.releases) == {"relu:0", "add:0"}
    assert set(edit.holds) == {"matmul:0", "x:0"}
    assert len(edit.added) == 4
    assert edit.changed == ("gradients/relu", "gradients/add")


def test_options_print_and_parse() -> None:
    pass_ = Recomputation(target_scope="auto", rule="cost", all_ports=True)
    assert str(pass_) == "recomputation{target_scope=auto,rule=cost,all_ports=true}"
    assert Recomputation.parse(str(pass_)) == pass_
    assert str(Recomputation()) == "recomputation"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("swapping", "does not describe the pass 'recomputation'"),
        ("recomputation{depth=3}", "no option 'depth=3'; its options: all_ports, hints_only"),
        ("recomputation{all_ports=yes}", "option 'all_ports' cannot be 'yes'"),
        ("recomputation{rule=guess}", "rule is one of"),
    ],
)
def test_bad_options_are_named(spec: str, message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        Recomputation.parse(spec)
