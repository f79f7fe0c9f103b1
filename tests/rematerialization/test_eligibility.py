"""What may be computed twice."""

from __future__ import annotations

import pytest

from memopt.graph.text import parse_graph
from memopt.rematerialization.rewriting.eligibility import can_run_twice

_NODES = {
    "matmul": "_FusedMatMul(a, a, b) {T=float, num_args=1}",
    "convolution": "_FusedConv2D(a, a, b) {T=float, TArgs=<list { type: DT_FLOAT }>, "
    "num_args=1, num_host_args=0}",
    "normalization": "_FusedBatchNormEx(a, b, b, b, b) {T=float, U=float, num_side_inputs=0}",
    "plain": "Tanh(a) {T=float}",
    "random": "RandomUniform(s) {T=int32, dtype=float, seed=1, seed2=2}",
    "read": "ReadVariableOp(r) {dtype=float}",
    "unknown": "MadeByNobody(a) {T=float}",
    "forward": "Merge(a, a) {T=float, N=2}",
}
_GRAPH = (
    "a = Placeholder() {dtype=float}\n"
    "b = Placeholder() {dtype=float}\n"
    "s = Placeholder() {dtype=int32}\n"
    "r = Placeholder() {dtype=resource}\n"
)


@pytest.mark.parametrize("name", ["matmul", "convolution", "normalization", "plain"])
def test_what_gives_the_same_again_may_run_twice(name: str) -> None:
    """Operations that TensorFlow fused, as they arrive inside it, like any other."""
    graph = parse_graph(_GRAPH + f"node = {_NODES[name]}\n")
    assert can_run_twice(graph["node"], None)


@pytest.mark.parametrize("name", ["random", "read", "unknown", "forward"])
def test_what_may_give_something_else_runs_once(name: str) -> None:
    graph = parse_graph(_GRAPH + f"node = {_NODES[name]}\n")
    assert not can_run_twice(graph["node"], None)
