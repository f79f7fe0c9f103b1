"""What recomputation is for: the same bits with less memory, seen by running graphs for real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from support.random_graphs import SIDE, random_training_graph
from support.sessions import run_graph
from support.state import run_from_start, without_grappler

from memopt.api import optimize, rewrite
from memopt.item import GrapplerItem
from memopt.passes import Recomputation
from memopt.runtime.entry import verify
from memopt.runtime.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.graph.rewriter import Edit
    from memopt.result import OptimizationResult

OPTIONS: dict[str, dict[str, Any]] = {
    "as Grappler": {},
    "by cost": {"rule": "cost"},
    "all ports": {"all_ports": True},
    "auto": {"target_scope": "auto"},
    "hints only": {"level": "manual"},
    "everything": {"rule": "cost", "all_ports": True},
}
RANDOM_SEEDS = range(18)


def tensors_of(graph_def: GraphDef) -> list[str]:
    """Every output of every operation."""
    names: list[str] = []
    for node in graph_def.node:
        ports = {"NoOp": 0, "IdentityN": 2}.get(node.op, 1)
        names.extend(f"{node.name}:{port}" for port in range(ports))
    return names


def placeholder_values(graph_def: GraphDef, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        f"{node.name}:0": random.standard_normal((SIDE, SIDE)).astype(np.float32)
        for node in graph_def.node
        if node.op == "Placeholder"
    }


def recomputed(result: OptimizationResult) -> tuple[Edit, ...]:
    """What recomputation did to the main graph."""
    return result.report.named(Recomputation.name)[0].edits


def test_random_graphs_compute_the_same_bits() -> None:
    """Every tensor of the original, NaN and infinities included, under all options."""
    rewritten = dict.fromkeys(OPTIONS, 0)
    for seed in RANDOM_SEEDS:
        graph_def = random_training_graph(seed)
        fetch, feed = tensors_of(graph_def), placeholder_values(graph_def, seed)
        (expected,) = run_graph(graph_def, fetch, feed)
        for name, options in OPTIONS.items():
            result = optimize(graph_def, fetch=["train"], **options)
            if not recomputed(result):
                continue
            rewritten[name] += 1
            (found,) = run_graph(result.graph_def, fetch, feed)
            for tensor, before, after in zip(fetch, expected, found, strict=True):
                assert after.tobytes() == before.tobytes(), f"graph {seed}, {name}: {tensor}"
    # A random graph updates nothing, so its gradients are told by their names.
    assert min(rewritten.values()) > len(RANDOM_SEEDS) / 3, rewritten


def test_copies_of_copies_compute_the_same_bits() -> None:
    """A graph that was rewritten already: the copies are recomputed, and nothing else."""
    again = 0
    for seed in RANDOM_SEEDS[::4]:
        graph_def = random_training_graph(seed)
        fetch, feed = tensors_of(graph_def), placeholder_values(graph_def, seed)
        once = optimize(graph_def, fetch=["train"])
        twice = optimize(once.graph_def, fetch=["train"])
        for edit in recomputed(twice):
            again += 1
            assert any(name.startswith("Recomputed/Recomputed/") for name in edit.added)
        (expected,) = run_graph(graph_def, fetch, feed)
        (found,) = run_graph(twice.graph_def, fetch, feed)
        assert [array.tobytes() for array in found] == [array.tobytes() for array in expected]
    assert again > 10


def test_what_a_model_gains_once_it_gains_once(tiny_item: Callable[[str], GrapplerItem]) -> None:
    """A second rewrite costs nodes and finds no more: what it adds are copies of copies."""
    item = tiny_item("mlp")
    once = optimize(item, target_scope="auto")
    second = GrapplerItem(once.graph_def, item.feed, item.fetch, variables=item.variables)
    twice = optimize(second, target_scope="auto")
    originals = {node.name for node in item.graph_def.node}
    before, after = recomputed(once), recomputed(twice)
    assert {edit.changed for edit in after} == {edit.changed for edit in before}
    for edit in after:
        for name in edit.added:
            prefix, _, copied = name.partition("/")
            assert prefix in ("Recomputed", "RecomputeTrigger")
            assert copied not in originals


# --- gains ---------------------------------------------------------------------------------------

LAYERS, BATCH, WIDTH = 6, 512, 128
LAYER_BYTES = BATCH * WIDTH * 4


def training_step(layer: Callable[[Any, Any, Any], Any], *, columns: int = WIDTH) -> Any:
    """A deep net of a layer `(x, weight, bias)`, trained with gradient descent."""
    random = np.random.default_rng(0)
    weights = [
        tf.Variable(random.standard_normal((WIDTH, columns)).astype(np.float32) * 0.1)
        for _ in range(LAYERS)
    ]
    biases = [
        tf.Variable(random.standard_normal(columns).astype(np.float32)) for _ in range(LAYERS)
    ]

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = x
            for weight, bias in zip(weights, biases, strict=True):
                y = layer(y, weight, bias)
            loss = tf.reduce_mean(tf.square(y))
        variables = [*weights, *biases]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.01 * gradient)
        return loss

    function = tf.function(step, autograph=False).get_concrete_function(
        tf.TensorSpec([BATCH, WIDTH])
    )
    function.keep_alive = (weights, biases)
    return function


def smooth(x: Any, weight: Any, bias: Any) -> Any:
    """Four operations in a row that are cheap, but not on Grappler's list."""
    return tf.math.softplus(tf.tanh(tf.exp(tf.tanh(tf.matmul(x, weight) + bias))))


def gated(x: Any, weight: Any, bias: Any) -> Any:
    """A split, both of whose outputs are needed by the gradients."""
    one, other = tf.split(tf.matmul(x, weight) + bias, 2, axis=1)
    return tf.sin(one) * tf.sin(other)


def assert_same_bits(function: Any, result: OptimizationResult) -> None:
    rewritten = rewrite(function, graph_def=result.graph_def)
    x = np.random.default_rng(1).standard_normal((BATCH, WIDTH)).astype(np.float32)
    with without_grappler():
        before = run_from_start(function, function.variables, [x])
        after = run_from_start(rewritten, function.variables, [x])
    assert after == before
    assert len(set(before)) == len(before), "no real step: results repeat"


def measured(function: Any, one: OptimizationResult, other: OptimizationResult) -> tuple[int, int]:
    """The peaks of two rewrites of a step, which compute the same to the bit."""
    program = Program.from_concrete_function(function).replace_graph(one.graph_def)
    verification = verify(program, other.graph_def, steps=2, timing_rounds=0)
    assert verification.equal
    return verification.original.step_peak_bytes, verification.rewritten.step_peak_bytes


@pytest.mark.parametrize("model", ["mlp", "vgg16", "unet", "bert", "lstm"])
def test_auto_finds_the_gradients_of_a_tape_where_grapplers_scope_finds_none(
    model: str, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    item = tiny_item(model)
    assert not recomputed(optimize(item))
    result = optimize(item, target_scope="auto")
    changed = {name for edit in recomputed(result) for name in edit.changed}
    assert len(changed) > 10
    assert not changed & leading_to(item.graph_def, item.fetch[0])


def leading_to(graph_def: GraphDef, tensor: str) -> set[str]:
    """The operations that a tensor is computed from: of a loss, the forward part."""
    nodes = {node.name: node for node in graph_def.node}
    found: set[str] = set()
    pending = [tensor]
    while pending:
        name = pending.pop().partition(":")[0]
        if name not in found:
            found.add(name)
            pending.extend(read for read in nodes[name].input if not read.startswith("^"))
    return found


def test_cost_finds_what_grapplers_list_lacks_and_the_measured_peak_falls() -> None:
    function = training_step(smooth)
    by_default = optimize(function)
    by_list = optimize(function, target_scope="auto")
    by_cost = optimize(function, target_scope="auto", rule="cost")

    copied = {
        name.removeprefix("Recomputed/").rpartition("_")[0] or name.removeprefix("Recomputed/")
        for edit in recomputed(by_cost)
        for name in edit.added
        if name.startswith("Recomputed/")
    }
    assert {"Tanh", "Exp", "Softplus", "add"} <= copied
    assert not recomputed(by_default)
    assert recomputed(by_list)
    listed = {name for edit in recomputed(by_list) for name in edit.added}
    assert not any(op in name for name in listed for op in ("Tanh", "Exp", "Softplus", "add"))

    assert_same_bits(function, by_list)
    assert_same_bits(function, by_cost)
    list_bytes, cost_bytes = measured(function, by_list, by_cost)
    # A layer keeps one tensor instead of three, and its input as before.
    assert list_bytes - cost_bytes > LAYERS * LAYER_BYTES


def copies_that_read_a_second_half(result: OptimizationResult) -> list[str]:
    return [
        node.name
        for node in result.graph_def.node
        if node.name.startswith("Recomputed/")
        and any(name.startswith("split") and name.endswith(":1") for name in node.input)
    ]


def test_all_ports_free_what_a_copy_of_the_first_port_alone_leaves_alive() -> None:
    function = training_step(gated, columns=2 * WIDTH)
    first = optimize(function, target_scope="auto", rule="cost")
    every = optimize(function, target_scope="auto", rule="cost", all_ports=True)

    assert copies_that_read_a_second_half(every) == []
    assert len(copies_that_read_a_second_half(first)) >= LAYERS

    assert_same_bits(function, first)
    assert_same_bits(function, every)
    first_bytes, every_bytes = measured(function, first, every)
    # The second half of each split is freed, but for those of the last layers.
    assert first_bytes - every_bytes > LAYERS / 2 * LAYER_BYTES
