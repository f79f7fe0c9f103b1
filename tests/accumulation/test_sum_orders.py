"""Rewrites keep the order in which sums are added, and with it their last bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.bad_inputs import graph_def_of
from support.one_pass import run_pass
from support.sessions import run_graph

from memopt.accumulation.shared_inputs import find_shared_inputs
from memopt.errors import PassError
from memopt.graph.text import parse_graph
from memopt.item import GrapplerItem
from memopt.passes import Recomputation
from memopt.passes.rematerialization import Rematerialization
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

SIDE = 64
BRANCHES = 4
FACTORS = ("Exp", "Tanh", "Sigmoid", "Sin")


def _branches(*, hinted: int, summed: str = "r{0}") -> str:
    """A sum of branches that gradients read again; one of them asks to be recomputed."""
    lines = [f"x = Placeholder() {{dtype=float, shape=[{SIDE},{SIDE}]}}"]
    for number in range(BRANCHES):
        hint = ", _recompute_hint=0" if number == hinted else ""
        lines += [
            f"b{number} = Mul(x, c{number}) {{T=float}}",
            f"c{number} = {FACTORS[number]}(x) {{T=float}}",
            f"r{number} = Relu(b{number}) {{T=float{hint}}}",
            f"gradients/g{number} = Mul(y, r{number}) {{T=float}}",
        ]
    terms = ", ".join(summed.format(number) for number in range(BRANCHES))
    gradients = ", ".join(f"gradients/g{number}" for number in range(BRANCHES))
    lines += [
        f"s = AddN({terms}) {{N={BRANCHES}, T=float}}",
        "y = Tanh(s) {T=float}",
        f"z = Pack({gradients}) {{N={BRANCHES}, T=float, axis=0}}",
    ]
    return "\n".join(lines)


def _item(text: str) -> GrapplerItem:
    return GrapplerItem(graph_def_of(text), feed=("x:0",), fetch=("z:0",))


def _bits(item: GrapplerItem, graph_def: GraphDef | None = None) -> bytes:
    random = np.random.default_rng(5)
    shape = (SIDE, SIDE)
    value = (random.standard_normal(shape) * 10.0 ** random.uniform(-2, 0, shape)).astype("f")
    ((result,),) = run_graph(graph_def or item.graph_def, ["z:0"], {"x:0": value})
    return bytes(result.tobytes())


@pytest.mark.parametrize(("hinted", "is_split"), [(0, False), (1, False), (2, True), (3, True)])
def test_recomputation_splits_a_sum_that_would_add_in_another_order(
    hinted: int, is_split: bool
) -> None:
    """Grappler changes the last bit: what is recomputed leaves its first buffer to the sum."""
    item = _item(_branches(hinted=hinted))
    kept = run_pass(item, Recomputation(hints_only=True))
    assert f"Recomputed/r{hinted}" in kept.graph
    assert ("s/sum_1" in kept.graph) is is_split
    assert _bits(item, kept.graph_def) == _bits(item)
    as_grappler = run_pass(item, Recomputation(hints_only=True, same_sums=False))
    assert "s/sum_1" not in as_grappler.graph
    assert (_bits(item, as_grappler.graph_def) == _bits(item)) is not is_split


def test_what_shares_a_buffer_with_a_sum_of_unknown_order_is_left_alone() -> None:
    """Who holds a buffer that a Cast may hand on is not known."""
    text = _branches(hinted=3).replace("r3 = Relu(b3)", "r3 = Cast(b3)")
    text = text.replace("Cast(b3) {T=float,", "Cast(b3) {SrcT=float, DstT=float, Truncate=false,")
    item = _item(text.replace("gradients/g3 = Mul(y, r3)", "gradients/g3 = Mul(x, r3)"))
    done = run_pass(item, Recomputation(hints_only=True))
    assert not done.edits
    assert done.reasons == "r3: the order in which 's' adds could change"


def test_a_name_that_is_taken_undoes_the_pass() -> None:
    item = _item(_branches(hinted=3) + "\ns/sum_2 = NoOp()")
    with pytest.raises(PassError, match="'s' would add in another order, and the name 's/sum_2'"):
        run_pass(item, Recomputation(hints_only=True))


def test_a_sum_is_not_rematerialized_nor_what_shares_its_inputs() -> None:
    item = _item(_branches(hinted=-1))
    done = run_pass(item, Rematerialization(recompute="r*;s;y"))
    reasons = {one.node: one.reason for one in done.declined}
    for name in ("r0", "r3", "s"):
        assert "it may not run twice" in reasons[name]
    assert "y" not in reasons
    assert _bits(item, done.graph_def) == _bits(item)


@pytest.mark.parametrize(
    ("summed", "makers", "readers"),
    [
        ("r{0}", {"r0"}, {"s", "gradients/g0", "v0"}),
        ("v{0}", {"r0", "v0"}, {"s", "gradients/g0"}),
        ("c{0}", {"c0"}, {"s", "b0"}),
    ],
)
def test_a_buffer_is_followed_through_views(
    summed: str, makers: set[str], readers: set[str]
) -> None:
    views = "\n".join(f"v{number} = Identity(r{number}) {{T=float}}" for number in range(BRANCHES))
    text = f"{_branches(hinted=-1, summed=summed)}\n{views}"
    properties = Properties.of(_item(text))
    shared = find_shared_inputs(parse_graph(text), properties)
    assert len(shared) == BRANCHES
    first = min(shared, key=lambda one: sorted(node.name for node in one.makers))
    assert {node.name for node in first.makers} >= makers
    assert {node.name for node in first.readers} == readers
    assert [node.name for node in first.sums] == ["s"]


def test_sums_that_nobody_can_disturb_share_nothing() -> None:
    text = _branches(hinted=-1, summed="t{0}") + "".join(
        f"\nt{number} = Neg(r{number}) {{T=float}}" for number in range(BRANCHES)
    )
    assert not find_shared_inputs(parse_graph(text), Properties.of(_item(text)))
