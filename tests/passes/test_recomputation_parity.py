"""Recomputation equals TensorFlow's own, node by node.

Where groups share a gradient node, Grappler's result depends on the order in which it meets the
groups, which is that of a hash table: it differs from run to run. There its result must be one that
some order gives.
"""

from __future__ import annotations

from itertools import islice, permutations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.native import differences, normalize_native, optimize_native
from support.random_graphs import random_training_graph
from support.text_cases import read_cases

from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.text import parse_graph
from memopt.graph.traversal import Numbering
from memopt.item import GrapplerItem
from memopt.models import MODELS, SESSION_MODELS
from memopt.optimizer import MemoryOptimizer
from memopt.passes import Context, Recomputation
from memopt.passes.recomputation import Group, GroupRewrite
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

CASES = read_cases(Path(__file__).parent / "cases" / "recomputation.txt")
LEVELS = ("RECOMPUTATION_HEURISTICS", "MANUAL")
RANDOM_GRAPHS = 120
ORDERS_TRIED = 2000


def optimize(graph_def: GraphDef, level: str, fetch: tuple[str, ...], scope: str) -> GraphDef:
    item = GrapplerItem(graph_def, fetch=fetch)
    result = MemoryOptimizer(level, scope).optimize(None, item)
    assert not any(report.failure or report.declined for report in result.report.passes)
    return result.graph_def


@pytest.mark.parametrize("scope", ["gradients/", "gradient_tape/"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("model", [*MODELS, *SESSION_MODELS])
def test_models_equal_native(
    model: str, level: str, scope: str, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    item = tiny_item(model)
    fetch = tuple(name.removesuffix(":0") for name in item.fetch)
    received = normalize_native(item.graph_def, fetch)
    native = optimize_native(item.graph_def, level, fetch, scope)

    ours = optimize(received, level, fetch, scope)

    assert differences(ours, native) == []


@pytest.mark.parametrize(
    ("model", "scope", "added"),
    [("resnet50", "gradient_tape/", 630), ("convnet_v1", "gradients/", 10)],
)
def test_something_is_recomputed(
    model: str, scope: str, added: int, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    """The comparison above is not one of two graphs that stay as they are."""
    item = tiny_item(model)
    result = MemoryOptimizer(target_scope=scope).optimize(None, item)
    assert result.report.nodes_after - result.report.nodes_before == added


@pytest.mark.parametrize("level", LEVELS)
def test_random_graphs_equal_native(level: str) -> None:
    exact = allowed = 0
    for seed in range(RANDOM_GRAPHS):
        graph_def = random_training_graph(seed)
        received = normalize_native(graph_def, ["train"])
        native = optimize_native(graph_def, level, ["train"])
        ours = optimize(received, level, ("train",), "gradients/")
        difference = differences(ours, native)
        if not difference:
            exact += 1
            continue
        assert all(line.startswith("RecomputeTrigger/") for line in difference), difference
        orders = other_orders(received, Recomputation(hints_only=level == "MANUAL"))
        assert any(not differences(other, native) for other in orders), f"graph {seed}"
        allowed += 1
    assert exact + allowed == RANDOM_GRAPHS
    assert exact > RANDOM_GRAPHS / 3


def other_orders(graph_def: GraphDef, pass_: Recomputation) -> Iterator[GraphDef]:
    """The results of all orders of the groups that share a target with another one."""
    original = from_graph_def(graph_def)
    groups = pass_.groups(original, Numbering.of(original), context_of(graph_def))
    shared = [group for group in groups if shares_target(group, groups)]
    alone = [group for group in groups if group not in shared]
    for order in islice(permutations(shared), ORDERS_TRIED):
        graph = from_graph_def(graph_def)
        numbering = Numbering.of(graph)
        rewriter = Rewriter(graph)
        for group in (*alone, *order):
            GroupRewrite(rewriter, numbering, group, all_ports=False).apply()
        yield to_graph_def(graph)


def shares_target(group: Group, groups: list[Group]) -> bool:
    return any(other is not group and {*other.targets} & {*group.targets} for other in groups)


def context_of(graph_def: GraphDef) -> Context:
    fed = frozenset(node.name for node in graph_def.node if node.op == "Placeholder")
    return Context(Properties.unknown(), fed=fed)


REFUSED = [
    ("an operation with state", "Recomputed/r", ["gradients/a"]),
    ("an update that nothing keeps", "Recomputed/add", ["train"]),
    ("a copy that a Merge reads", "Recomputed/relu", ["gradients/m"]),
]


@pytest.mark.parametrize(("name", "copy", "fetch"), REFUSED, ids=[row[0] for row in REFUSED])
def test_native_makes_copies_that_memopt_refuses(name: str, copy: str, fetch: list[str]) -> None:
    """The deliberate differences: what memopt leaves alone because results could change."""
    (case,) = (case for case in CASES if case.name.startswith(name))
    graph_def = to_graph_def(parse_graph(case.before))
    native = optimize_native(graph_def, "RECOMPUTATION_HEURISTICS", fetch)
    assert copy in {node.name for node in native.node}
    result = MemoryOptimizer().optimize(None, GrapplerItem(graph_def, fetch=tuple(fetch)))
    assert not result.report.modified
    (done,) = result.report.named(Recomputation.name)
    assert done.declined


def test_a_random_number_that_native_draws_twice_changes_the_result() -> None:
    """Why operations with state are refused: what the forward part saw, the gradient must see."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        drawn = tf.raw_ops.RandomUniform(shape=[4], dtype=tf.float32, name="r")
        drawn.op._set_attr("_recompute_hint", tf.compat.v1.AttrValue(i=0))
        tf.identity(drawn, name="forward")
        with tf.name_scope("gradients/"):
            tf.identity(drawn, name="seen")
    native = optimize_native(
        graph.as_graph_def(), "RECOMPUTATION_HEURISTICS", ["forward", "gradients/seen"]
    )
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(native, name="")
        forward, seen = session.run(["forward:0", "gradients/seen:0"])
    assert (forward != seen).any()


def test_repeated_control_inputs_of_triggers_are_dropped() -> None:
    """A deliberate difference without a meaning: Grappler repeats them."""
    text = """
    x = Placeholder() {dtype=float, shape=[2,2]}
    relu = Relu(x) {T=float}
    gradients/early = Tanh(x) {T=float}
    gradients/a = Mul(gradients/early, relu) {T=float}
    gradients/b = AddN(gradients/early, gradients/a, relu) {T=float, N=3}
    """
    graph_def = to_graph_def(parse_graph(text))
    native = optimize_native(graph_def, "RECOMPUTATION_HEURISTICS", ["gradients/b"])
    ours = optimize(graph_def, "RECOMPUTATION_HEURISTICS", ("gradients/b",), "gradients/")
    (trigger,) = (node for node in native.node if node.op == "NoOp")
    assert list(trigger.input) == ["^gradients/early", "^gradients/early"]
    (trigger,) = (node for node in ours.node if node.op == "NoOp")
    assert list(trigger.input) == ["^gradients/early"]
