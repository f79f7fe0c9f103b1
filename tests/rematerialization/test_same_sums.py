"""Sums that XLA's own kernels add up stay with them, in whatever form their operand comes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memopt.context import Context
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.rematerialization.rewriting.data_triggers import DataTriggers, find_known
from memopt.rematerialization.rewriting.same_sums import keep_sums
from memopt.runtime.function import build_function
from memopt.runtime.grappler_off import without_grappler
from memopt.runtime.program import Program
from memopt.shapes.properties import Properties
from memopt.xla.compiler import compiler_process

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

ROWS, WIDTH = 1024, 256
"""Of so many elements a library adds up all that is no product."""


@pytest.fixture(scope="module")
def step() -> ConcreteFunction:
    """A product that is in memory for a matrix product, and the sum of a view of it."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    weight = tf.Variable(random.standard_normal((WIDTH, WIDTH), dtype=np.float32))

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator] # no types there
    def function(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        product = tf.multiply(x, y, name="product")
        view = tf.reshape(product, (ROWS // 4, 4, WIDTH), name="view")
        total = tf.reduce_sum(view, (0, 1), name="total")
        return [total, tf.matmul(product, weight), tf.exp(view)]

    spec = tf.TensorSpec((ROWS, WIDTH))
    concrete = function.get_concrete_function(spec, spec)
    concrete.kept_alive = weight
    return concrete


def divided(program: Program, context: Context, *, keeps_sums: bool) -> GraphDef:
    """The step with its product divided by a one that no compiler knows."""
    rewriter = Rewriter(from_graph_def(program.item.graph_def))
    product = rewriter.graph["product"].output(0)
    known = find_known(rewriter, context)
    assert known is not None
    with rewriter.edit("a test"):
        triggers = DataTriggers(rewriter, context)
        readers = [user for user, _ in product.uses]
        stored = triggers.add(product, "RealDiv", [product, triggers.unknown_one(known)], T=1)
        triggers.read_instead(readers, product, triggers.learn(stored, product, 1))
        if keeps_sums:
            keep_sums(rewriter, context)
    return to_graph_def(rewriter.graph)


def context_of(program: Program) -> Context:
    context = Context.of_item(program.item, Properties.of(program.item))
    return replace(context, stored=frozenset({"product"}))


def operand_of(name: str, graph_def: GraphDef) -> str:
    """The op of what a node reads first."""
    nodes = {node.name: node for node in graph_def.node}
    return str(nodes[nodes[name].input[0].partition(":")[0]].op)


def test_it_reads_a_view_of_a_product_again(step: ConcreteFunction) -> None:
    """In the sum alone: others read what is in memory."""
    program = Program.from_concrete_function(step)
    context = context_of(program)
    graph_def = divided(program, context, keeps_sums=True)
    nodes = {node.name: node for node in graph_def.node}
    view = nodes["total"].input[0].partition(":")[0]
    assert nodes[view].op == "Reshape"
    assert operand_of(view, graph_def) == "Mul"
    assert operand_of("view", graph_def) == "RealDiv"
    samples = np.random.default_rng(1).standard_normal((2, ROWS, WIDTH), dtype=np.float32)
    before = without_grappler(build_function(program.item.graph_def, step))(*samples)
    after = without_grappler(build_function(graph_def, step))(*samples)
    assert [each.numpy().tobytes() for each in before] == [each.numpy().tobytes() for each in after]


@pytest.mark.parametrize("known", ["nothing", "of a library"])
def test_others_stay_as_they_are(step: ConcreteFunction, known: str) -> None:
    program = Program.from_concrete_function(step)
    context = context_of(program)
    if known == "nothing":
        context = replace(context, stored=frozenset())
    else:
        context = replace(context, library_sums=frozenset({"total"}))
    graph_def = divided(program, context, keeps_sums=True)
    assert {node.name: list(node.input) for node in graph_def.node}["total"][0] == "view"
    assert graph_def == divided(program, context, keeps_sums=False)


@pytest.mark.slow
def test_the_compiler_gives_it_away_otherwise(step: ConcreteFunction) -> None:
    program = Program.from_concrete_function(step)
    context = context_of(program)
    with compiler_process(program) as compiler:
        before = compiler.compile(program.item.graph_def).memory
        assert "product" in before.stored
        assert "total" not in before.library_sums
        given_away = compiler.compile(divided(program, context, keeps_sums=False)).memory
        kept = compiler.compile(divided(program, context, keeps_sums=True)).memory
    assert "total" not in kept.library_sums
    if "total" not in given_away.library_sums:
        pytest.skip("no library adds up anything here")
