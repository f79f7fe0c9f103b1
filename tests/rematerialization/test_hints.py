"""Hints: what the user says of single results is honoured, and why where it cannot be."""

from __future__ import annotations

import pytest
from support.one_pass import Done, run_pass

from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.item import GrapplerItem
from memopt.passes.rematerialization import Rematerialization

# Two results of the same size wait while `wide` is there, and one of them is enough to go.
TWO_WAIT = """
x = Placeholder() {dtype=float, shape=[64,1]}
y = Placeholder() {dtype=float, shape=[1,64]}
first = Exp(x) {T=float}
second = Sin(x) {T=float}
a = L2Loss(first) {T=float}
b = L2Loss(second) {T=float}
wide = MatMul(x, y, ^a, ^b) {T=float}
one = L2Loss(wide) {T=float}
both = Add(first, second, ^one) {T=float}
end = Mul(both, one) {T=float}
"""
LIMIT_BYTES = 512 + 256 + 16384 + 64


def run(text: str = TWO_WAIT, **options: object) -> Done:
    graph = parse_graph(text.strip())
    item = GrapplerItem(to_graph_def(graph), feed=("x:0", "y:0"), fetch=("a:0", "b:0", "end:0"))
    usual = {"scheduler": "program", "memory_limit": LIMIT_BYTES}
    return run_pass(item, Rematerialization(**{**usual, **options}))  # type: ignore[arg-type]


def copied(done: Done) -> set[str]:
    return {name for edit in done.edits for name in edit.added if name.startswith("Recomputed/")}


@pytest.mark.parametrize("algorithm", ["standard", "path", "planner", "best"])
def test_what_is_kept_is_not_computed_again(algorithm: str) -> None:
    assert copied(run(algorithm=algorithm))
    assert copied(run(algorithm=algorithm, keep="first")) == {"Recomputed/second"}
    assert copied(run(algorithm=algorithm, keep="sec*")) == {"Recomputed/first"}
    done = run(algorithm=algorithm, keep="first;second")
    assert not copied(done)
    assert "cannot be met" in done.reasons


@pytest.mark.parametrize("algorithm", ["standard", "planner", "best"])
@pytest.mark.parametrize("name", ["first", "second"])
def test_what_is_to_be_computed_again_is_the_first_to_be(algorithm: str, name: str) -> None:
    assert copied(run(algorithm=algorithm, recompute=name)) == {f"Recomputed/{name}"}


def test_an_attribute_comes_before_a_pattern() -> None:
    text = TWO_WAIT.replace(
        "first = Exp(x) {T=float}", 'first = Exp(x) {T=float, _memopt_hint="keep"}'
    )
    assert copied(run(text, recompute="first")) == {"Recomputed/second"}


@pytest.mark.parametrize("algorithm", ["standard", "planner", "best"])
def test_what_is_to_be_swapped_is_taken_to_the_host(algorithm: str) -> None:
    done = run(algorithm=algorithm, swap="second", offload="serialize")
    assert not copied(done)
    ops = {node.op for node in done.graph}
    assert {"SerializeTensor", "ParseTensor"} <= ops


def test_a_hint_without_effect_says_why() -> None:
    done = run(swap="first", recompute="a")
    assert "first: a hint asks to take it to the host, but nothing says how" in done.reasons
    assert "a: a hint asks to recompute it, but it may not run twice" in done.reasons
