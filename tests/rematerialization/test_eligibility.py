"""What may be computed twice."""

from __future__ import annotations

import pytest
from support.bad_inputs import graph_def_of

from memopt.context import Context
from memopt.graph.graphdef import from_graph_def
from memopt.graph.text import parse_graph
from memopt.graph.traversal import Numbering
from memopt.item import GrapplerItem
from memopt.rematerialization.algorithms import ALGORITHMS, PATH
from memopt.rematerialization.limits import Limits
from memopt.rematerialization.network import OUT_OF_REACH, Network
from memopt.rematerialization.rewriting.eligibility import can_run_twice, network_of
from memopt.sequencing.step import Step
from memopt.shapes.properties import Properties

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


def network_from(text: str, *, sums_again: bool = False) -> Network:
    """A graph with an input "x" and a result "end", in an order that runs."""
    item = GrapplerItem(graph_def_of(text), feed=("x:0",), fetch=("end:0",))
    context = Context(Properties.of(item), fed=frozenset({"x"}), fetched=frozenset({"end"}))
    graph = from_graph_def(item.graph_def)
    step = Step.in_context(graph, context)
    sequence = step.settle(Numbering.of(graph).order)
    return network_of(graph, step.buffer_graph, sequence, context, sums_again=sums_again)


def test_what_closes_a_loop_is_no_input() -> None:
    """It is of the turn before: as an input it would make every order impossible."""
    text = """
x = Placeholder() {dtype=float, shape=[64]}
enter = Enter(x) {T=float, frame_name="loop", is_constant=false, parallel_iterations=1}
merge = Merge(enter, next) {T=float, N=2}
go = Const(^merge) {dtype=bool, value=<tensor { dtype: DT_BOOL tensor_shape { } bool_val: false }>}
cond = LoopCond(go)
switch = Switch(merge, cond) {T=float}
body = Neg(switch:1) {T=float}
next = NextIteration(body) {T=float}
exit = Exit(switch) {T=float}
end = Neg(exit) {T=float}
"""
    network = network_from(text)
    names = [node.name for node in network.buffer_graph.nodes]
    assert network.inputs[names.index("merge")] == [names.index("enter")]
    assert network.inputs[names.index("next")] == [names.index("body")]
    for algorithm in ALGORITHMS[PATH](network, Limits(OUT_OF_REACH)):
        assert sorted(algorithm.sequence) == sorted(network.sequence)


LOOP = """
x = Placeholder() {dtype=float, shape=[64]}
limit = Const() {dtype=float, value=<tensor { dtype: DT_FLOAT tensor_shape { } float_val: 0 }>}
axis = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 }>}
enter = Enter(x) {T=float, frame_name="loop", is_constant=false, parallel_iterations=1}
limits = Enter(limit) {T=float, frame_name="loop", is_constant=true, parallel_iterations=1}
axes = Enter(axis) {T=int32, frame_name="loop", is_constant=true, parallel_iterations=1}
merge = Merge(enter, next) {T=float, N=2}
sum = Sum(merge, axes) {T=float, Tidx=int32, keep_dims=false}
go = Less(sum, limits) {T=float}
cond = LoopCond(go)
switch = Switch(merge, cond) {T=float}
free = Neg(switch:1) {T=float}
awaited = Abs(free) {T=float}
constant = Const(^awaited) {dtype=float, value=<tensor { dtype: DT_FLOAT tensor_shape { } }>}
body = Mul(awaited, constant) {T=float}
next = NextIteration(body) {T=float}
exit = Exit(switch) {T=float}
end = Neg(exit) {T=float}
"""


def test_in_a_loop_runs_again_what_nothing_but_data_hangs_on() -> None:
    """What others wait for may be all that has them run in the loop; what decides, decides once."""
    network = network_from(LOOP)
    names = [node.name for node in network.buffer_graph.nodes]
    again = {name for name, is_so in zip(names, network.recomputable, strict=True) if is_so}
    assert again == {"limit", "axis", "sum", "free", "constant", "body"}
    # In each turn.
    assert network.weights[names.index("free")] >= 10


def test_sums_that_are_compiled_are_added_in_one_order() -> None:
    """TensorFlow's kernel adds into whichever buffer it can take over; XLA's kernels do not."""
    text = """
    x = Placeholder() {dtype=float, shape=[64, 64]}
    a = Tanh(x) {T=float}
    b = Exp(x) {T=float}
    c = Sqrt(x) {T=float}
    sum = AddN(a, b, c) {T=float, N=3}
    end = Neg(sum) {T=float}
    """
    assert can_run_twice_in(text, "sum", sums_again=True)
    assert not can_run_twice_in(text, "sum", sums_again=False)


def can_run_twice_in(text: str, name: str, *, sums_again: bool) -> bool:
    network = network_from(text, sums_again=sums_again)
    numbers = {node.name: number for number, node in enumerate(network.buffer_graph.nodes)}
    return network.recomputable[numbers[name]]
