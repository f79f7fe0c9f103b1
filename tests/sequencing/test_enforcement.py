"""Enforcement: the fewest edges that leave one order, and none where one must not be."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from support.small_buffers import LOOP, Step, equal_buffers, small_graph, spell

from memopt.buffers.assignment import buffer_graph_of
from memopt.buffers.buffer_graph import BufferGraph
from memopt.buffers.kernel_call import Runtime
from memopt.graph.onednn_fusions import find_fused_pairs
from memopt.graph.text import parse_graph
from memopt.sequencing.enforcement import enforce
from memopt.sequencing.frames import find_frames
from memopt.sequencing.fusions import keep_adjacent, turn_pairs
from memopt.sequencing.precedence import Precedence
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Sequence


def edges_of(text: str, sequence: str = "") -> list[str]:
    """The edges for a graph in the order of its lines, or in the order named."""
    buffers = equal_buffers(parse_graph(text))
    place = {node.name: number for number, node in enumerate(buffers.nodes)}
    wanted = [place[name] for name in sequence.split()] or Precedence(buffers.producers).program
    return spell(buffers, enforce(buffers, wanted))


def test_neighbours_get_an_edge_where_no_path_leads() -> None:
    text = """
    a = A()
    b = A(a)
    c = A(a)
    d = A(b)
    """
    assert edges_of(text) == ["b>c", "c>d"]
    assert edges_of(text, "a c b d") == ["c>b"]


def test_paths_over_nodes_that_are_left_free_count() -> None:
    """`b` and `none` make nothing of any size, but lead from `a` to `c`."""
    graph = small_graph(
        [
            Step("a", (), 100),
            Step("b", ("a",), 4),
            Step("none", (), 0, waits=("b",), op="NoOp"),
            Step("c", (), 100, waits=("none",)),
            Step("d", (), 100),
        ]
    )
    chains = enforce(graph.buffers, range(5), smallest_bytes=100)
    assert spell(graph.buffers, chains) == ["c>d"]
    assert [graph.names(chain.nodes) for chain in chains] == [["a", "b", "c", "d"]]


def test_a_loop_waits_for_what_it_reads_as_each_of_that_enters_by_itself() -> None:
    def edges(op: str) -> list[str]:
        steps = [Step("a", (), 8), Step("b", ("a",), 8), Step("last", ("a", "b"), 8, op=op)]
        graph = small_graph(steps)
        return spell(graph.buffers, enforce(graph.buffers, range(3)))

    assert edges("While") == ["b>last"]
    assert edges("AddN") == []


def test_only_nodes_that_touch_enough_memory_are_ordered() -> None:
    graph = small_graph(
        [
            Step("given", (), -1),
            Step("small", (), 99),
            Step("large", (), 100),
            Step("reads", ("large",), 1),
            Step("scratch", (), 0, scratch_bytes=100),
            Step("reads-given", ("given",), 0),
            Step("other", (), 99),
        ]
    )
    chains = enforce(graph.buffers, range(7), smallest_bytes=100)
    assert [graph.names(chain.nodes) for chain in chains] == [["large", "reads", "scratch"]]
    every = enforce(graph.buffers, range(7))
    names = ["small", "large", "reads", "scratch", "other"]
    assert [graph.names(chain.nodes) for chain in every] == [names]


def test_devices_are_ordered_each_for_itself() -> None:
    text = """
    a1 = A() @/device:CPU:0
    b1 = A() @/device:GPU:0
    a2 = A() @/device:CPU:0
    b2 = A(a1) @/device:GPU:0
    a3 = A() @/device:CPU:0
    """
    assert edges_of(text) == ["a1>a2", "a2>a3", "b1>b2"]


def test_a_path_over_another_device_counts() -> None:
    text = """
    a1 = A() @/device:CPU:0
    b1 = A(a1) @/device:GPU:0
    a2 = A(b1) @/device:CPU:0
    """
    assert edges_of(text) == []


def test_the_ends_of_no_edge() -> None:
    """What is given, and what runs for nothing that holds memory."""
    text = """
    x = Placeholder() {dtype=float}
    c = Const() {dtype=float}
    v = VarHandleOp() {dtype=float, shape=[]}
    n = NoOp()
    a = Neg(x) {T=float}
    fed = Neg(x) {T=float}
    b = Neg(x) {T=float}
    """
    buffers = equal_buffers(parse_graph(text))
    chains = enforce(buffers, range(7), fed=("fed",))
    assert spell(buffers, chains) == ["a>b"]


@pytest.mark.parametrize("seed", range(60))
def test_edges_leave_one_order_and_none_can_be_spared(seed: int) -> None:
    """On random graphs with devices, against paths found by brute force."""
    choice = random.Random(seed)
    steps: list[Step] = []
    for number in range(choice.randint(2, 14)):
        earlier = [step.name for step in steps]
        reads = tuple(choice.sample(earlier, min(len(earlier), choice.choice((0, 1, 1, 2)))))
        steps.append(Step(f"n{number}", reads, choice.choice((8, 100))))
    buffers = small_graph(steps).buffers
    for node in buffers.nodes:
        node.device = choice.choice(("", "/device:GPU:0"))
    smallest_bytes = choice.choice((0, 100))
    sequence = Precedence(buffers.producers).sorted_by([choice.random() for _ in steps])
    chains = enforce(buffers, sequence, smallest_bytes=smallest_bytes)
    edges = [edge for chain in chains for edge in chain.edges]
    pairs = [pair for chain in chains for pair in pairwise(chain.nodes)]
    assert all(is_ordered(buffers, edges, *pair) for pair in pairs)
    for edge in edges:
        others = [other for other in edges if other != edge]
        assert not is_ordered(buffers, others, *edge)
        assert buffers.nodes[edge.before].device == buffers.nodes[edge.after].device


def is_ordered(
    buffers: BufferGraph, edges: Sequence[tuple[int, int]], before: int, after: int
) -> bool:
    earlier = {after}
    for _ in buffers.nodes:
        earlier |= {p for node in earlier for p in buffers.producers[node]}
        earlier |= {b for b, a in edges if a in earlier}
    return before in earlier


CONDITIONAL = """
p = Placeholder() {dtype=bool}
x = Square(x0) {T=float}
x0 = Placeholder() {dtype=float}
other = Neg(x) {T=float}
switch = Switch(x, p) {T=float}
no1 = Neg(switch) {T=float}
no2 = Square(switch) {T=float}
yes1 = Neg(switch:1) {T=float}
yes2 = Square(switch:1) {T=float}
yes = Add(yes1, yes2) {T=float}
no = Add(no1, no2) {T=float}
merge = Merge(no, yes) {N=2, T=float}
after = Neg(merge) {T=float}
last = Square(x) {T=float}
"""


def test_a_branch_waits_for_what_is_outside_and_that_for_where_its_sides_join() -> None:
    """No edge comes out of a branch, and none leads from one side to the other or to a Merge."""
    edges = edges_of(CONDITIONAL)
    assert "no1>no2" in edges
    assert "yes1>yes2" in edges
    sides = {"no1": 0, "no2": 0, "no": 0, "yes1": 1, "yes2": 1, "yes": 1}
    for edge in edges:
        before, after = edge.split(">")
        assert after != "merge"
        assert before not in sides or sides[before] == sides.get(after), edge
    order = "p x0 x other switch no1 no2 yes1 yes2 yes no merge last after"
    held = edges_of(CONDITIONAL, order)
    assert {"other>no1", "other>yes1", "merge>last"} <= set(held)


def test_a_path_over_a_merge_counts_for_nothing() -> None:
    """It does not wait for both sides: `other` may be needed by the one that is not taken."""
    text = CONDITIONAL.replace("yes = Add(yes1, yes2)", "yes = Add(yes1, yes2, ^other)")
    order = "p x0 x other switch no1 no2 yes1 yes2 yes no merge last after"
    assert "other>no1" in edges_of(text, order)
    assert "other>last" in edges_of(text, order)


def test_sides_of_a_case_join() -> None:
    """Behind a Merge of all sides of a Switch is outside; behind one of two out of three is not."""
    text = """
    p = Placeholder() {dtype=int32}
    x = Placeholder() {dtype=float}
    switch = _SwitchN(x, p) {T=float, num_outs=3}
    a = Neg(switch) {T=float}
    b = Neg(switch:1) {T=float}
    c = Neg(switch:2) {T=float}
    all = Merge(a, b, c) {N=3, T=float}
    two = Merge(a, b) {N=2, T=float}
    same = Merge(a, a) {N=2, T=float}
    after = Neg(all) {T=float}
    perhaps = Neg(two) {T=float}
    first = Neg(same) {T=float}
    """
    buffers = equal_buffers(parse_graph(text))
    order = Precedence(buffers.producers).program
    frame = dict(
        zip([n.name for n in buffers.nodes], find_frames(buffers.nodes, order), strict=True)
    )
    assert frame["x"] == frame["all"] == frame["after"]
    assert len({frame[name] for name in ("x", "a", "b", "c", "perhaps")}) == 5
    assert frame["first"] == frame["same"] != frame["x"]


def test_two_switches_of_one_predicate_open_one_branch() -> None:
    text = """
    p = Placeholder() {dtype=bool}
    q = Placeholder() {dtype=bool}
    x = Placeholder() {dtype=float}
    s1 = Switch(x, p) {T=float}
    s2 = Switch(x, p) {T=float}
    s3 = Switch(x, q) {T=float}
    a = Neg(s1) {T=float}
    b = Neg(s2) {T=float}
    c = Neg(s3) {T=float}
    d = Neg(s1:1) {T=float}
    """
    assert edges_of(text) == ["a>b"]


def test_no_edge_crosses_the_border_of_a_loop() -> None:
    edges = edges_of(LOOP)
    assert "a>b" in edges
    turn, body, outside = {"less", "also"}, {"a", "b", "c"}, {"before", "after", "beside"}
    for edge in edges:
        before, after = edge.split(">")
        assert any({before, after} <= group for group in (turn, body, outside)), edge
    assert "less>also" in edges or "also>less" in edges
    assert any("beside" in edge for edge in edges)


def test_frames_of_loops_and_branches() -> None:
    buffers = equal_buffers(parse_graph(LOOP))
    order = Precedence(buffers.producers).program
    frame = dict(
        zip([n.name for n in buffers.nodes], find_frames(buffers.nodes, order), strict=True)
    )
    assert frame["before"] == frame["after"] == frame["beside"] == 0
    assert frame["less"] == frame["also"] != 0
    assert frame["a"] == frame["b"] == frame["c"]
    assert len({frame["a"], frame["less"], frame["before"]}) == 3


PAIRS = """
x = Placeholder() {dtype=float}
f = Placeholder() {dtype=float}
bias0 = Placeholder() {dtype=float}
sizes = Placeholder() {dtype=int32}
before = Neg(x) {T=float}
conv = Conv2D(x, f) {T=float, padding="SAME", strides=[1,1,1,1]}
between = Neg(x) {T=float}
bias = Neg(bias0) {T=float}
y = BiasAdd(conv, bias) {T=float}
dy = Square(y) {T=float}
df = Conv2DBackpropFilter(x, sizes, dy) {T=float, padding="SAME", strides=[1,1,1,1]}
late = Neg(df) {T=float}
db = BiasAddGrad(dy) {T=float}
"""


def test_pairs_that_onednn_fuses_stand_side_by_side() -> None:
    """What the second needs comes before the first, and the rest stays in its order."""
    buffers = equal_buffers(parse_graph(PAIRS))
    precedence = Precedence(buffers.producers)
    pairs = find_fused_pairs(buffers.nodes)
    name = [node.name for node in buffers.nodes]
    assert {name[a]: name[b] for a, b in pairs.items()} == {"conv": "y", "df": "db"}
    sequence, kept = keep_adjacent(precedence, precedence.program, pairs)
    assert kept == pairs
    assert [name[node] for node in sequence] == (
        "x f bias0 sizes before bias conv y between dy df db late".split()
    )


def test_pairs_can_stand_where_the_second_stood() -> None:
    buffers = equal_buffers(parse_graph(PAIRS))
    precedence = Precedence(buffers.producers)
    pairs = find_fused_pairs(buffers.nodes)
    name = [node.name for node in buffers.nodes]
    delayed = precedence.delayed(precedence.program, pairs.items())
    sequence, kept = keep_adjacent(precedence, delayed, pairs)
    assert kept == pairs
    early, _ = keep_adjacent(precedence, precedence.program, pairs)
    for first in pairs:
        assert sequence.index(first) >= early.index(first)
    assert [name[node] for node in sequence] != [name[node] for node in early]


def test_where_onednn_cannot_run_nothing_need_stand_side_by_side() -> None:
    graph = parse_graph(PAIRS)
    properties = Properties.unknown()
    for runtime, are_pairs in (
        (None, True),
        (Runtime(onednn=True), True),
        (Runtime(onednn=False), False),
    ):
        buffers = buffer_graph_of(graph, properties, runtime=runtime)
        assert bool(buffers.fused_pairs) is are_pairs


def test_a_pair_is_given_up_where_something_must_run_between() -> None:
    text = PAIRS.replace("bias = Neg(bias0)", "bias = Neg(bias0, ^conv)")
    buffers = equal_buffers(parse_graph(text))
    precedence = Precedence(buffers.producers)
    sequence, kept = keep_adjacent(precedence, precedence.program, find_fused_pairs(buffers.nodes))
    assert [buffers.nodes[node].name for node in kept] == ["df"]
    assert sorted(sequence) == sorted(precedence.program)
    precedence.sorted_by(sequence)


def test_pairs_are_turned_where_neither_needs_the_other() -> None:
    buffers = equal_buffers(parse_graph(PAIRS))
    precedence = Precedence(buffers.producers)
    pairs = find_fused_pairs(buffers.nodes)
    sequence, _ = keep_adjacent(precedence, precedence.program, pairs)
    turned = turn_pairs(buffers.producers, sequence, pairs)
    assert [buffers.nodes[node].name for node in turned] == (
        "x f bias0 sizes before bias conv y between dy db df late".split()
    )
    assert turn_pairs(buffers.producers, precedence.program, pairs) == precedence.program


def test_nodes_that_do_not_run_are_left_out() -> None:
    text = """
    a = A()
    idle = A()
    b = A()
    """
    assert edges_of(text, "a b") == ["a>b"]


@pytest.mark.parametrize("smallest_bytes", [pytest.param(0, marks=pytest.mark.slow), 65])
def test_long_graphs_are_enforced(smallest_bytes: int) -> None:
    """100,000 nodes in 100 chains, whose sequence takes one node from each in turn."""
    width, length = 100, 1000
    producers = [[node - width] if node >= width else [] for node in range(width * length)]
    nodes = parse_graph("a = A()")
    (one,) = nodes
    count = width * length
    buffers = BufferGraph(
        nodes=(one,) * count,
        producers=producers,
        made=[[node] for node in range(count)],
        read=[list(before) for before in producers],
        size_bytes=[64 if node % 7 else 128 for node in range(count)],
        scratch_bytes=[0] * count,
        lasting=[False] * count,
        reusable=[[] for _ in range(count)],
    )
    sequence, _ = keep_adjacent(Precedence(producers), range(count), {})
    (chain,) = enforce(buffers, sequence, smallest_bytes=smallest_bytes)
    assert len(chain.edges) == len(chain.nodes) - 1
    assert not enforce(replace(buffers, made=[[]] * count, read=[[]] * count), sequence)
