"""What is computed where XLA draws normal numbers is not computed again in a compiled step."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memopt.context import Context
from memopt.graph.copy_names import COPY_PREFIX
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.optimization.pipeline import Pipeline
from memopt.passes import CompiledRematerialization
from memopt.rematerialization.rewriting.drawn_results import find_drawn
from memopt.runtime.program import Program
from memopt.shapes.properties import Properties
from memopt.xla.compiler import compiler_process

if TYPE_CHECKING:
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

LAYERS, WIDTH, BATCH = 4, 64, 1024


@pytest.fixture(scope="module")
def step() -> ConcreteFunction:
    """Training on samples with noise; of the noisy ones the first layer's gradient is made."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    weights = [
        tf.Variable(random.standard_normal((WIDTH, WIDTH), dtype=np.float32) / 8)
        for _ in range(LAYERS)
    ]

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator] # no types there
    def noisy(samples: Any) -> Any:
        noise = tf.random.stateless_normal((BATCH, WIDTH), (1, 2), name="noise")
        with tf.GradientTape() as tape:
            value = tf.add(samples, tf.multiply(noise, 0.1, name="scaled"), name="noisy")
            for weight in weights:
                value = tf.nn.relu(value @ weight)
            loss = tf.reduce_mean(value * value)
        return [loss, *tape.gradient(loss, weights)]

    function = noisy.get_concrete_function(tf.TensorSpec((BATCH, WIDTH)))
    function.kept_alive = weights
    return function


def ops_of(step: ConcreteFunction, *ops: str) -> frozenset[str]:
    nodes = step.graph.as_graph_def().node
    return frozenset(node.name for node in nodes if node.op in ops)


def drawn(step: ConcreteFunction, stored: frozenset[str]) -> set[str]:
    graph = from_graph_def(GrapplerItem.from_concrete_function(step).graph_def)
    return {node.name for node in find_drawn(graph, stored)}


def test_it_is_found_up_to_what_is_in_memory(step: ConcreteFunction) -> None:
    products = ops_of(step, "MatMul")
    normal = "noise/StatelessRandomNormalV2"
    assert normal in ops_of(step, "StatelessRandomNormalV2")
    assert drawn(step, products | {"noisy"}) == {normal, "noise/mul", "noise", "scaled", "noisy"}
    assert drawn(step, products | {"noisy", "noise"}) == {normal, "noise/mul", "noise"}
    assert drawn(step, products | {"noisy", normal}) == {normal}
    assert drawn(step, frozenset()) == set()


def test_copies_begin_behind_it(step: ConcreteFunction) -> None:
    """Where nobody knows what is in memory, noise is added again for the gradient that reads it."""
    products = ops_of(step, "MatMul")
    inside = drawn(step, products | {"noisy"})
    copied, declined = rewritten(step, frozenset())
    assert "noisy" in copied
    assert not declined
    copied, declined = rewritten(step, products | {"noisy"})
    assert copied
    assert copied.isdisjoint(inside)
    assert declined == inside


def rewritten(step: ConcreteFunction, stored: frozenset[str]) -> tuple[set[str], set[str]]:
    """What is computed again, and what is left alone because of where it is drawn."""
    item = GrapplerItem.from_concrete_function(step)
    graph = from_graph_def(item.graph_def)
    context = replace(Context.of_item(item, Properties.of(item)), stored=stored)
    options = CompiledRematerialization(step_limit=4 * 4 * BATCH * WIDTH, keep="none", alike=True)
    (report,) = Pipeline((options,), ()).run("", graph, context, math.inf).passes
    assert not report.failure
    assert report.edits
    copied = {node.name for node in graph if node.name.startswith(COPY_PREFIX)}
    declined = {each.node for each in report.declined if "normal numbers" in each.reason}
    return {name.removeprefix(COPY_PREFIX) for name in copied}, declined


@pytest.mark.slow
def test_numbers_are_drawn_where_they_are_read(step: ConcreteFunction) -> None:
    """That is what XLA does with what one kernel reads, and why it is left alone."""
    program = Program.from_concrete_function(step)
    with compiler_process(program) as compiler:
        memory = compiler.compile(program.item.graph_def).memory
    assert "noisy" in memory.stored
    assert memory.stored.isdisjoint({"noise/StatelessRandomNormalV2", "noise", "scaled"})
