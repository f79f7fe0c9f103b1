"""Results that XLA would compute again from larger ones stay in memory, whoever reads them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memopt.context import Context
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.optimization.pipeline import Pipeline
from memopt.passes import CompiledRematerialization
from memopt.rematerialization.rewriting.kept_results import is_reshaped_for_kernels
from memopt.runtime.function import build_function
from memopt.runtime.grappler_off import without_grappler
from memopt.runtime.program import Program
from memopt.shapes.properties import Properties
from memopt.xla.compiler import compiler_process

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

LAYERS, WIDTH, ROWS, COLUMNS = 4, 64, 16, 32
OPTIONS = CompiledRematerialization(keep="exact")


def make_step(*shape: int) -> ConcreteFunction:
    """A training step of dense layers that take the last of some dimensions, as Keras has them."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    weights = [
        tf.Variable(random.standard_normal((WIDTH, WIDTH), dtype=np.float32) / 8)
        for _ in range(LAYERS)
    ]

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator] # no types there
    def step(samples: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            value = samples
            for number, weight in enumerate(weights):
                product = tf.tensordot(value, weight, 1)
                value = tf.nn.relu(tf.nn.bias_add(product, weight[0]), name=f"made_{number}")
            loss = tf.reduce_mean(value * value)
        return [loss, *tape.gradient(loss, weights)]

    concrete = step.get_concrete_function(tf.TensorSpec((*shape, WIDTH)))
    concrete.kept_alive = weights
    return concrete


@pytest.fixture(scope="module")
def step() -> ConcreteFunction:
    return make_step(ROWS, COLUMNS)


def kept(program: Program) -> GraphDef:
    context = Context.of_item(program.item, Properties.of(program.item))
    graph = from_graph_def(program.item.graph_def)
    (report,) = Pipeline((OPTIONS,), ()).run("", graph, context, math.inf).passes
    assert not report.failure
    return to_graph_def(graph)


def kept_ops(graph_def: GraphDef) -> set[str]:
    """By which ops what is kept is handed on."""
    return {
        node.op
        for node in graph_def.node
        if node.name.startswith("Kept/made_") and node.op in ("RealDiv", "SelectV2")
    }


def test_how_it_is_kept_hangs_on_the_shape_that_kernels_read(step: ConcreteFunction) -> None:
    assert kept_ops(kept(Program.from_concrete_function(step))) == {"RealDiv"}
    flat = make_step(ROWS * COLUMNS)
    assert kept_ops(kept(Program.from_concrete_function(flat))) == {"SelectV2"}


def test_a_view_in_the_same_shape_is_none(step: ConcreteFunction) -> None:
    """XLA leaves that out, so that kernels read what was made."""
    program = Program.from_concrete_function(step)
    context = Context.of_item(program.item, Properties.of(program.item))
    graph = from_graph_def(program.item.graph_def)
    made = graph["made_0"].output(0)
    assert is_reshaped_for_kernels(made, context)
    (view,) = (user for user, _ in made.uses if user.op == "Reshape")
    context.properties.add(view.name, context.properties.outputs("made_0"))
    assert not is_reshaped_for_kernels(made, context)


def test_results_stay_what_they_are(step: ConcreteFunction) -> None:
    program = Program.from_concrete_function(step)
    samples = np.random.default_rng(1).standard_normal((ROWS, COLUMNS, WIDTH), dtype=np.float32)
    samples[0, 0, :4] = (np.nan, np.inf, -np.inf, -0.0)
    before = without_grappler(build_function(program.item.graph_def, step))(samples)
    after = without_grappler(build_function(kept(program), step))(samples)
    assert [each.numpy().tobytes() for each in before] == [each.numpy().tobytes() for each in after]


@pytest.mark.slow
def test_the_compiler_holds_it_once(step: ConcreteFunction) -> None:
    """Without, both what is read as a matrix and what that is made of are there."""
    program = Program.from_concrete_function(step)
    with compiler_process(program) as compiler:
        before = compiler.compile(program.item.graph_def).memory
        after = compiler.compile(kept(program)).memory
    assert after.step_peak_bytes < before.step_peak_bytes * 3 // 4
