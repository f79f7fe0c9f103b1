"""Copies that round as their originals do, in steps that XLA compiles."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import memopt
from memopt.context import Context
from memopt.errors import BudgetError
from memopt.graph.copy_names import COPY_PREFIX
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.item import GrapplerItem
from memopt.optimization.pipeline import Pipeline
from memopt.passes import CompiledRematerialization
from memopt.runtime.function import build_function
from memopt.runtime.grappler_off import without_grappler
from memopt.shapes.properties import Properties
from memopt.xla.entry import CompiledOptions, compiled_memory, rewrite_compiled

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

LAYERS, WIDTH, BATCH = 4, 64, 512


def normalized(value: Any) -> Any:
    """What Keras' `LayerNormalization` computes."""
    import tensorflow as tf

    mean, variance = tf.nn.moments(value, -1, keepdims=True)
    inverse = tf.math.rsqrt(variance + 1e-3) * 1.1
    return value * inverse + (0.1 - mean * inverse)


def make_step(*, jit_compile: bool) -> ConcreteFunction:
    """A training step whose kernels add products, compiled by XLA or not."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    weights = [
        tf.Variable(random.standard_normal((WIDTH, WIDTH), dtype=np.float32) / 8)
        for _ in range(LAYERS)
    ]

    @tf.function(jit_compile=jit_compile)  # type: ignore[untyped-decorator] # no types there
    def step(samples: Any) -> Any:
        with tf.GradientTape() as tape:
            value = samples
            for weight in weights:
                value = normalized(value + tf.nn.gelu(value @ weight))
            loss = tf.reduce_mean(value * value * value)
        return [loss, *tape.gradient(loss, weights)]

    function = step.get_concrete_function(tf.TensorSpec((BATCH, WIDTH)))
    function.kept_alive = weights
    return function


def rewritten(item: GrapplerItem, stored: frozenset[str], *, alike: bool) -> GraphDef:
    graph = from_graph_def(item.graph_def)
    context = replace(Context.of_item(item, Properties.of(item)), stored=stored)
    options = CompiledRematerialization(step_limit=800_000, keep="none", alike=alike)
    (report,) = Pipeline((options,), ()).run("", graph, context, math.inf).passes
    assert not report.failure
    assert report.edits
    return to_graph_def(graph)


def copies(graph_def: GraphDef) -> set[str]:
    return {node.name for node in graph_def.node if node.name.startswith(COPY_PREFIX)}


@pytest.fixture(scope="module")
def plain_step() -> ConcreteFunction:
    return make_step(jit_compile=False)


@pytest.mark.parametrize("ops", [(), ("MatMul",), ("MatMul", "Erfc", "AddV2"), None])
def test_it_computes_the_same_whatever_is_stored(
    plain_step: ConcreteFunction, ops: tuple[str, ...] | None
) -> None:
    """`None`: everything is."""
    item = GrapplerItem.from_concrete_function(plain_step)
    stored = [node.name for node in item.graph_def.node if ops is None or node.op in ops]
    graph_def = rewritten(item, frozenset(stored), alike=True)
    samples = np.random.default_rng(1).standard_normal((BATCH, WIDTH), dtype=np.float32)
    before = without_grappler(plain_step)(samples)
    after = without_grappler(build_function(graph_def, plain_step))(samples)
    assert [each.numpy().tobytes() for each in before] == [each.numpy().tobytes() for each in after]


def test_copies_begin_with_what_is_in_memory(plain_step: ConcreteFunction) -> None:
    """What is computed in the kernels of its readers is copied, what is stored is not."""
    item = GrapplerItem.from_concrete_function(plain_step)
    stored = frozenset(n.name for n in item.graph_def.node if n.op in ("MatMul", "Erfc", "Rsqrt"))
    without = copies(rewritten(item, stored, alike=False))
    with_operands = copies(rewritten(item, stored, alike=True))
    assert without < with_operands
    assert without == copies(rewritten(item, frozenset(), alike=True))
    further = {name.removeprefix(COPY_PREFIX) for name in with_operands - without}
    assert further.isdisjoint(stored)


def test_averages_that_readers_divide_do_not_wait(plain_step: ConcreteFunction) -> None:
    """Something else does: a reader adds to what it divides in one step, and rounds once."""
    item = GrapplerItem.from_concrete_function(plain_step)
    averages = {node.name for node in item.graph_def.node if node.op == "Mean"}
    products = {node.name for node in item.graph_def.node if node.op == "MatMul"}
    for stored, do_wait in ((products, False), (products | averages, True)):
        after = rewritten(item, frozenset(stored), alike=True)
        waiting = bits_of_what_waits(after)
        assert waiting
        assert (not averages.isdisjoint(waiting)) == do_wait


def bits_of_what_waits(graph_def: GraphDef) -> set[str]:
    """What is read for its bits, to which a zero is added."""
    bits = {node.input[0] for node in graph_def.node if node.op == "BitwiseXor"}
    return {node.input[0] for node in graph_def.node if node.name in bits}


def test_what_was_stored_is_stored_again(plain_step: ConcreteFunction) -> None:
    item = GrapplerItem.from_concrete_function(plain_step)
    stored = frozenset(node.name for node in item.graph_def.node if node.op == "Erfc")
    before = rewritten(item, stored, alike=False)
    after = rewritten(item, stored, alike=True)
    added = [node for node in after.node if node.op == "RealDiv"]
    again = [name for name in copies(before) if name.removeprefix(COPY_PREFIX) in stored]
    found = {node.input[0].partition(":")[0] for node in added}
    assert again
    assert set(again) <= found


@pytest.mark.slow
def test_a_compiled_step_of_sums_of_products_keeps_its_bits() -> None:
    """And does not where copies are put into whatever kernels, if this machine's differ."""
    step = make_step(jit_compile=True)
    assert compiled_memory(step).stored
    budget = memopt.Budget.parse("70%")
    done = rewrite_compiled(step, CompiledOptions(budget))
    assert done.equal
    assert any("Recomputed" in n for r in done.reports for e in r.edits for n in e.added)
    assert done.memory.step_peak_bytes <= 0.7 * done.original.step_peak_bytes


@pytest.mark.slow
def test_otherwise_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    step = make_step(jit_compile=True)
    monkeypatch.setattr("memopt.passes.compiled_rematerialization.copy_operands", _same_order)
    monkeypatch.setattr("memopt.passes.compiled_rematerialization.store_copies", lambda *_: 0)
    try:
        done = rewrite_compiled(step, CompiledOptions(memopt.Budget.parse("70%")))
    except BudgetError as error:
        assert "other last bits" in str(error)  # noqa: PT017 - or else it has to be equal
    else:
        pytest.skip(f"this machine's kernels round alike: {done.equal}")


def _same_order(rewriter: Any, context: Any, order: list[Any]) -> list[Any]:
    del rewriter, context
    return order
