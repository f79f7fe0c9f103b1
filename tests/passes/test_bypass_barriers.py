"""Barriers bypassed on small graphs, each case a text before and after, and orders kept."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.barriers import SINK, barrier_graph
from support.one_pass import run_case, run_pass
from support.text_cases import read_cases

from memopt.context import Context
from memopt.graph.functiondef import Library
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.text import parse_graph
from memopt.graph.verify import verify_graph
from memopt.item import GrapplerItem
from memopt.passes.bypass_barriers import BypassBarriers
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.text_cases import TextCase

    from memopt.graph.graph import Graph, Node

CASES = read_cases(Path(__file__).parent / "cases" / "bypass_barriers.txt")
PASS = BypassBarriers()
GROUPS = BypassBarriers(groups=True)
RANDOM_SEEDS = range(60)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    done = run_case(case, BypassBarriers.parse(case.spec))
    assert done.text == case.after
    assert done.reasons == case.declined


def test_the_pass_has_nothing_to_do_a_second_time() -> None:
    for case in CASES:
        pass_ = BypassBarriers.parse(case.spec)
        once = run_case(case, pass_)
        settings = {key: tuple(sorted(names)) for key, names in case.settings.items()}
        item = GrapplerItem(
            once.graph_def,
            feed=settings.get("fed", ()),
            fetch=settings.get("fetched", ()),
            keep=settings.get("kept", ()),
        )
        again = run_pass(item, pass_)
        assert again.text == once.text, case.name


def test_an_edit_releases_what_waited_for_the_barrier_alone() -> None:
    """All but what comes last, and what somebody else reads as late as the barrier."""
    text = """
    a = Placeholder() {dtype=float, shape=[64]}
    b = Neg(a) {T=float}
    c = Exp(b) {T=float}
    d = Square(c) {T=float}
    unused = Neg(b) {T=float}
    barrier = IdentityN(b, c, d) {T=<list { type: DT_FLOAT type: DT_FLOAT type: DT_FLOAT }>}
    u = Neg(barrier) {T=float}
    v = Neg(barrier:1) {T=float}
    w = Mul(barrier:2, other) {T=float}
    other = Exp(a) {T=float}
    """
    item = GrapplerItem(to_graph_def(parse_graph(text)), feed=("a:0",), fetch=("u", "v", "w"))
    (edit,) = run_pass(item, PASS).edits
    assert edit.releases == ("b:0", "c:0")
    assert edit.removed == ("barrier",)
    assert edit.changed == ("u", "v", "w")

    late = text.replace("u = Neg(barrier)", "x = Neg(c, ^w) {T=float}\n    u = Neg(barrier)")
    item = GrapplerItem(to_graph_def(parse_graph(late)), feed=("a:0",), fetch=("u", "v", "w", "x"))
    (edit,) = run_pass(item, PASS).edits
    assert edit.releases == ("b:0",)


@pytest.mark.parametrize("name", ["mlp", "vgg16", "unet", "mobilenetv2"])
def test_the_gradients_of_a_keras_step_pass_no_barrier(
    name: str, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    item = tiny_item(name)
    done = run_pass(item, PASS)
    assert [node.op for node in item_nodes(item) if node.op == "IdentityN"] == ["IdentityN"]
    assert not any(node.op == "IdentityN" for node in done.graph)
    (edit,) = done.edits
    assert edit.releases
    assert not done.declined


def item_nodes(item: GrapplerItem) -> Iterator[Node]:
    yield from from_graph_def(item.graph_def)


def test_variables_of_tensorflow_1_are_not_updated_before_they_are_read(
    tiny_item: Callable[[str], GrapplerItem],
) -> None:
    """Its groups are what keeps an update behind the gradient that still needs the old value."""
    item = tiny_item("convnet_v1")
    assert not run_pass(item, PASS).edits
    done = run_pass(item, GROUPS)
    assert len(done.edits) > 5
    update = done.graph["train/update_dense/kernel/ApplyMomentum"]
    assert done.graph["gradients/dense/MatMul_grad/MatMul"] in update.control_inputs


def test_in_the_body_of_a_function_arguments_are_not_waited_for() -> None:
    import tensorflow as tf

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def body(x: tf.Tensor) -> tf.Tensor:
        barrier = tf.raw_ops.IdentityN(input=[x, tf.sin(x)])
        with tf.control_dependencies([barrier[0]]):
            return tf.cos(x) + barrier[1]

    caller = tf.function(lambda x: body(x) + 1.0, autograph=False)
    graph_def = caller.get_concrete_function(tf.TensorSpec([2])).graph.as_graph_def()
    library = Library(graph_def.library)
    (name,) = library.names()
    graph = library.graph(name)
    results = frozenset(node.name for node in graph if node.op == "_Retval")
    fed = frozenset(node.name for node in graph if node.op == "_Arg")
    rewriter = Rewriter(graph)
    PASS.run(rewriter, Context(Properties.unknown(), fed=fed, fetched=results))
    verify_graph(graph)
    assert rewriter.edits
    for node in graph:
        assert not any(control.op == "_Arg" for control in node.control_inputs)


# --- random graphs --------------------------------------------------------------------------------


def ancestors(graph: Graph) -> dict[str, set[str]]:
    """For each node all that runs before it, found without the project's own searches."""
    found: dict[str, set[str]] = {}
    ranks: dict[Node, int] = {}
    for node in sorted(graph, key=lambda node: rank_of(node, ranks)):
        producers = {*(tensor.node for tensor in node.inputs), *node.control_inputs}
        found[node.name] = {one.name for one in producers}.union(
            *(found[one.name] for one in producers)
        )
    return found


def rank_of(node: Node, ranks: dict[Node, int]) -> int:
    """One more than that of all producers."""
    pending = [node]
    while pending:
        current = pending[-1]
        producers = [tensor.node for tensor in current.inputs] + list(current.control_inputs)
        missing = [one for one in producers if one not in ranks]
        if missing:
            pending.extend(missing)
            continue
        ranks[current] = 1 + max((ranks[one] for one in producers), default=0)
        pending.pop()
    return ranks[node]


def variables_used(graph: Graph) -> dict[str, list[tuple[str, bool]]]:
    """For each variable who uses it, and whether to write."""
    uses: dict[str, list[tuple[str, bool]]] = {}
    for variable in graph:
        if variable.op not in ("VarHandleOp", "VariableV2"):
            continue
        holders = [variable]
        for holder in holders:
            for reader in [reader for tensor in holder.outputs for reader, _ in tensor.uses]:
                is_writer = reader.op.startswith("Assign")
                uses.setdefault(variable.name, []).append((reader.name, is_writer))
                if reader.op == "Identity":
                    holders.append(reader)
    return uses


@pytest.mark.parametrize("kind", ["VarHandleOp", "VariableV2"])
def test_uses_of_variables_stay_in_order_on_random_graphs(kind: str) -> None:
    bypassed = pairs = 0
    for seed in RANDOM_SEEDS:
        graph_def = barrier_graph(seed, kind)
        before = from_graph_def(graph_def)
        done = run_pass(GrapplerItem(graph_def, feed=("x:0",), fetch=(SINK,)), GROUPS)
        bypassed += len(done.edits)
        earlier, later = ancestors(before), ancestors(done.graph)
        for uses in variables_used(before).values():
            for first, first_writes in uses:
                for second, second_writes in uses:
                    if (first_writes or second_writes) and first in earlier[second]:
                        pairs += 1
                        assert first in later[second], f"graph {seed}: {first} before {second}"
    assert bypassed > 100
    assert pairs > 1000


def test_what_waited_for_a_node_by_a_control_edge_waits_still_on_random_graphs() -> None:
    for seed in RANDOM_SEEDS:
        graph_def = barrier_graph(seed, "VarHandleOp")
        before = from_graph_def(graph_def)
        done = run_pass(GrapplerItem(graph_def, feed=("x:0",), fetch=(SINK,)), PASS)
        later = ancestors(done.graph)
        for node in before:
            for control in node.control_inputs:
                if node.name in done.graph and control.name in done.graph:
                    assert control.name in later[node.name], f"graph {seed}: {node.name}"


def test_the_same_graph_gives_the_same_edits() -> None:
    seed = random.Random(0).randrange(1000)
    graph_def = barrier_graph(seed, "VariableV2")
    item = GrapplerItem(graph_def, feed=("x:0",), fetch=(SINK,))
    first, second = run_pass(item, GROUPS), run_pass(item, GROUPS)
    assert first.edits == second.edits
    assert first.declined == second.declined
    assert first.text == second.text
