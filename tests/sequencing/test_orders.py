"""Sequences: all respect every edge and the order of state; each keeps to its own rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from support.random_steps import random_graphs
from support.small_buffers import Step, chain_graph, small_graph
from support.steps import tiny_step

from memopt.buffers.assignment import buffer_graph_of
from memopt.buffers.buffer_graph import check_sequence, simulate
from memopt.errors import OptionsError
from memopt.graph.graph import Graph
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.text import parse_graph
from memopt.item import GrapplerItem
from memopt.sequencing.list_order import LARGEST_SCALAR_BYTES, list_sequence
from memopt.sequencing.orders import BEST, LATE_UPDATES, PROGRAM, SEQUENCERS, make_sequence
from memopt.sequencing.precedence import Precedence
from memopt.sequencing.recorded_order import recorded_sequence
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from support.small_buffers import SmallGraph

    from memopt.buffers.buffer_graph import BufferGraph

MODELS = ("mlp", "bert", "vgg16", "lstm")
OF_BUFFERS = [name for name in SEQUENCERS if name not in (LATE_UPDATES, BEST)]


def step_of(text: str) -> tuple[Graph, BufferGraph]:
    graph = parse_graph(text)
    properties = Properties.of(GrapplerItem(to_graph_def(graph)))
    return graph, buffer_graph_of(graph, properties)


def names_of(text: str, sequencer: str, fetched: tuple[str, ...] = ()) -> list[str]:
    graph, buffers = step_of(text)
    precedence = Precedence.of(graph, buffers, fetched)
    sequence = make_sequence(sequencer, graph, buffers, precedence)
    return [buffers.nodes[node].name for node in sequence]


@settings(deadline=None)
@given(random_graphs())
def test_every_sequence_has_every_node_once_after_its_producers(graph: SmallGraph) -> None:
    for sequencer in OF_BUFFERS:
        sequence = make_sequence(sequencer, Graph(), graph.buffers, graph.precedence)
        check_sequence(graph.buffers, sequence)
        assert sorted(sequence) == list(range(len(graph.buffers.nodes)))


@settings(deadline=None)
@given(random_graphs())
def test_the_heap_of_the_list_sequence_chooses_as_a_plain_search_does(graph: SmallGraph) -> None:
    """The same rule, with all priorities worked out anew at every turn."""
    assert priorities_along(graph, list_sequence(graph.buffers, graph.precedence))


def priorities_along(graph: SmallGraph, sequence: list[int]) -> bool:
    """Whether every node of a sequence had the best priority of those that could run."""
    buffers, precedence = graph.buffers, graph.precedence
    readers = [
        [node for node, read in enumerate(buffers.read) if buffer in read]
        for buffer in range(len(buffers.size_bytes))
    ]
    done: set[int] = set()

    def priority(node: int) -> tuple[float, float]:
        made_bytes = sum(buffers.size_bytes[buffer] for buffer in buffers.made[node])
        if 0 < made_bytes <= LARGEST_SCALAR_BYTES * len(buffers.made[node]):
            return (float("inf"), float("inf"))
        freed_bytes = sum(
            buffers.size_bytes[buffer]
            for buffer in buffers.read[node]
            if not buffers.lasting[buffer] and set(readers[buffer]) - done == {node}
        )
        return (freed_bytes - made_bytes, len(precedence.users[node]))

    for node in sequence:
        ready = [
            other
            for other in range(len(buffers.nodes))
            if other not in done and done.issuperset(precedence.producers[other])
        ]
        if priority(node) != max(map(priority, ready)):
            return False
        done.add(node)
    return True


def test_the_list_sequence_runs_a_node_of_several_scalars_first() -> None:
    """Though they are larger together than what another node makes."""
    scalar = LARGEST_SCALAR_BYTES
    large = Step("large", (), scalar + 4)
    scalars = small_graph([large, Step("scalars", (), scalar, more_bytes=(scalar,))])
    assert list_sequence(scalars.buffers, scalars.precedence) == [1, 0]
    larger = small_graph([large, Step("larger", (), scalar, more_bytes=(scalar + 8,))])
    assert list_sequence(larger.buffers, larger.precedence) == [0, 1]


@pytest.mark.parametrize("model", MODELS)
def test_the_sequences_of_models_run(model: str) -> None:
    """And `best` is at least as good as every other."""
    step = tiny_step(model)
    item = GrapplerItem.from_concrete_function(step.function)
    graph = from_graph_def(item.graph_def)
    buffers = buffer_graph_of(
        graph, Properties.of(item), fed=item.feed, fetched=item.fetched_tensors
    )
    precedence = Precedence.of(graph, buffers, {name.partition(":")[0] for name in item.fetch})
    peaks = {}
    for sequencer in SEQUENCERS:
        sequence = make_sequence(sequencer, graph, buffers, precedence)
        check_sequence(buffers, sequence)
        assert sorted(sequence) == sorted(precedence.program)
        assert sequence == make_sequence(sequencer, graph, buffers, precedence)
        peaks[sequencer] = simulate(buffers, sequence).peak_bytes
    assert peaks[BEST] == min(peaks.values())


def test_the_best_is_the_lowest_as_it_will_run() -> None:
    """The lowest sequence by itself is of no use where what is made of it needs more."""
    step = tiny_step("mlp")
    item = GrapplerItem.from_concrete_function(step.function)
    graph = from_graph_def(item.graph_def)
    buffers = buffer_graph_of(graph, Properties.of(item))
    precedence = Precedence.of(graph, buffers)

    def peak_bytes(sequence: list[int]) -> int:
        return simulate(buffers, sequence).peak_bytes

    lowest = make_sequence(BEST, graph, buffers, precedence)
    worst = precedence.sorted_by([-node for node in range(len(buffers.nodes))])
    assert peak_bytes(worst) > peak_bytes(lowest)

    def settle(sequence: list[int]) -> list[int]:
        return worst if sequence == lowest else sequence

    settled = make_sequence(BEST, graph, buffers, precedence, settle)
    assert settled != worst
    assert peak_bytes(settled) < peak_bytes(worst)


def test_an_unknown_sequencer_is_refused() -> None:
    graph = small_graph([Step("a")])
    with pytest.raises(OptionsError, match="late_updates"):
        make_sequence("latest", Graph(), graph.buffers, graph.precedence)


STEP = """
x = Placeholder() {dtype=float}
w1 = VarHandleOp() {dtype=float, shape=[4,4], shared_name="w1"}
w2 = VarHandleOp() {dtype=float, shape=[4,4], shared_name="w2"}
m1 = VarHandleOp() {dtype=float, shape=[4,4], shared_name="m1"}
m2 = VarHandleOp() {dtype=float, shape=[4,4], shared_name="m2"}
r1 = ReadVariableOp(w1) {dtype=float}
r2 = ReadVariableOp(w2) {dtype=float}
momentum1 = ReadVariableOp(m1) {dtype=float}
kept1 = Neg(momentum1) {T=float}
momentum2 = ReadVariableOp(m2) {dtype=float}
kept2 = Neg(momentum2) {T=float}
y1 = MatMul(x, r1) {T=float}
a1 = Relu(y1) {T=float}
y2 = MatMul(a1, r2) {T=float}
loss = Square(y2) {T=float}
gradients/dy2 = Mul(loss, y2) {T=float}
gradients/dy1 = MatMul(gradients/dy2, r2) {T=float}
gradients/da1 = ReluGrad(gradients/dy1, a1) {T=float}
gradients/dw1 = MatMul(x, gradients/da1) {T=float}
gradients/dw2 = MatMul(a1, gradients/dy2) {T=float}
new1 = Add(kept1, gradients/dw1) {T=float}
set1 = AssignVariableOp(m1, new1) {dtype=float}
step1 = AssignSubVariableOp(w1, new1) {dtype=float}
new2 = Add(kept2, gradients/dw2) {T=float}
set2 = AssignVariableOp(m2, new2) {dtype=float}
step2 = AssignSubVariableOp(w2, new2, ^gradients/dy1) {dtype=float}
"""
FETCHED = ("set1", "step1", "set2", "step2", "loss")


def test_updates_run_where_they_hold_least() -> None:
    """The momentum waits for the gradient, which does not lag behind the chain."""
    names = names_of(STEP, LATE_UPDATES, FETCHED)
    chain = ["y1", "a1", "y2", "loss", "gradients/dy2", "gradients/dy1", "gradients/da1"]
    assert [name for name in names if name in chain] == chain
    assert names.index("gradients/dw2") == names.index("gradients/dy2") + 1
    for number in "12":
        # Its variable and what is made of it come between the gradient and its use.
        start = names.index(f"gradients/dw{number}")
        held = [f"m{number}", f"momentum{number}", f"kept{number}", f"new{number}"]
        assert names[start + 1 : start + 5] == held
    assert names.index("new2") < names.index("gradients/dy1")
    # A control edge holds this one back.
    assert names.index("step2") > names.index("gradients/dy1")


def test_what_reads_a_gradient_and_its_weight_does_not_hold_it_back() -> None:
    """As weight decay does: it reads no result that the layers keep for the way back."""
    decayed = "gradients/decayed2 = Mul(gradients/dw2, r2) {T=float}\nnew2 = Add(kept2, "
    text = STEP.replace("new2 = Add(kept2, gradients/dw2", f"{decayed}gradients/decayed2")
    names = names_of(text, LATE_UPDATES, FETCHED)
    assert names.index("gradients/dw2") == names.index("gradients/dy2") + 1


def test_program_order_stays_without_a_backward_part() -> None:
    text = """
    x = Placeholder() {dtype=float}
    b = Neg(x) {T=float}
    a = Square(b) {T=float}
    """
    assert names_of(text, LATE_UPDATES) == names_of(text, PROGRAM) == ["x", "b", "a"]


def test_what_does_not_lead_to_a_fetch_does_not_run() -> None:
    for sequencer in SEQUENCERS:
        names = names_of(STEP, sequencer, ("loss",))
        assert sorted(names) == ["a1", "loss", "r1", "r2", "w1", "w2", "x", "y1", "y2"]


def test_reads_and_writes_of_a_variable_keep_their_order() -> None:
    """Even where no edge says so, and through two handles of one name."""
    text = """
    v = VarHandleOp() {dtype=float, shape=[9], shared_name="v"}
    again = VarHandleOp() {dtype=float, shape=[9], shared_name="v"}
    x = Placeholder() {dtype=float}
    before = ReadVariableOp(v) {dtype=float}
    slow = Neg(x) {T=float}
    slower = Neg(slow) {T=float}
    write = AssignVariableOp(v, slower) {dtype=float}
    after = ReadVariableOp(again) {dtype=float}
    late = AssignAddVariableOp(again, x) {dtype=float}
    """
    for sequencer in SEQUENCERS:
        names = names_of(text, sequencer)
        kept = [name for name in names if name in ("before", "write", "after", "late")]
        assert kept == ["before", "write", "after", "late"], sequencer


def test_reads_alone_may_change_places() -> None:
    text = """
    v = VarHandleOp() {dtype=float, shape=[9], shared_name="v"}
    a = ReadVariableOp(v) {dtype=float}
    b = ReadVariableOp(v) {dtype=float}
    """
    graph, buffers = step_of(text)
    assert Precedence.of(graph, buffers).producers == [[], [0], [0]]


def test_random_and_stateful_operations_keep_their_order() -> None:
    text = """
    shape = Placeholder() {dtype=int32}
    r1 = RandomUniform(shape) {T=int32, dtype=float}
    n1 = Neg(r1) {T=float}
    r2 = RandomUniform(shape) {T=int32, dtype=float}
    r3 = RandomStandardNormal(shape) {T=int32, dtype=float}
    """
    for sequencer in SEQUENCERS:
        names = names_of(text, sequencer)
        assert [name for name in names if name.startswith("r")] == ["r1", "r2", "r3"]


def test_readers_of_a_reference_variables_buffer_come_before_its_update() -> None:
    """Identity hands the buffer on, so the reader behind it reads what the update changes."""
    text = """
    v = VariableV2() {dtype=float, shape=[4,4]}
    v/read = Identity(v) {T=float}
    x = Placeholder() {dtype=float}
    use = MatMul(x, v/read) {T=float}
    update = AssignSub(v, x) {T=float}
    later = Identity(v) {T=float}
    """
    graph, buffers = step_of(text)
    precedence = Precedence.of(graph, buffers)
    place = {node.name: number for number, node in enumerate(buffers.nodes)}
    assert place["use"] in precedence.producers[place["update"]]
    assert place["v/read"] in precedence.producers[place["update"]]
    assert place["update"] in precedence.producers[place["later"]]


def test_the_order_of_a_real_run() -> None:
    from tensorflow.core.protobuf import config_pb2

    text = """
    x = Placeholder() {dtype=float}
    a = Neg(x) {T=float}
    b = Square(x) {T=float}
    c = Exp(x) {T=float}
    d = Exp(c) {T=float}
    """
    graph, buffers = step_of(text)
    precedence = Precedence.of(graph, buffers)
    run = config_pb2.RunMetadata()
    device = run.step_stats.dev_stats.add(device="/cpu:0")
    # `d` cannot have started before `c`; `x` was not recorded, and `a` by the microsecond only.
    for name, start_ns in (("c", 5000), ("d", 3000), ("b", 9000)):
        device.node_stats.add(node_name=name, all_start_nanos=start_ns)
    device.node_stats.add(node_name="a", all_start_micros=7)
    sequence = recorded_sequence(buffers, precedence, run)
    assert [buffers.nodes[node].name for node in sequence] == ["x", "c", "d", "a", "b"]


@pytest.mark.slow
def test_sequences_of_long_chains() -> None:
    graph = chain_graph(100_000)
    for sequencer in ("list", "dfs", "postorder", "program"):
        sequence = make_sequence(sequencer, Graph(), graph.buffers, graph.precedence)
        assert len(sequence) == 100_000
        check_sequence(graph.buffers, sequence)
