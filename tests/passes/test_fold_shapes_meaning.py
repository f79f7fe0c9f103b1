"""Steps with folded shapes, run for real: the same bits, and large tensors that go earlier."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from support.one_pass import run_pass
from support.scheduling import run_sums
from support.sessions import run_graph
from support.state import without_grappler
from support.steps import tiny_step

from memopt.api import rewrite
from memopt.item import GrapplerItem
from memopt.passes.bypass_barriers import BypassBarriers
from memopt.passes.fold_shapes import SHAPE_OPS, FoldShapes
from memopt.runtime.entry import verify
from memopt.runtime.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt
    from support.one_pass import Done
    from tensorflow.core.framework.graph_pb2 import GraphDef

    Array = npt.NDArray[Any]

PASS = FoldShapes()
RANDOM_SEEDS = range(30)
v1 = tf.compat.v1


@pytest.mark.parametrize("name", [pytest.param("vgg16", marks=pytest.mark.slow), "bert"])
def test_training_steps_keep_their_bits(name: str) -> None:
    """Together with the barrier's bypass, in the order in which they would run."""
    step = tiny_step(name)
    done = run_pass(GrapplerItem.from_concrete_function(step.function), BypassBarriers(), PASS)
    assert any("shapes" in edit.reason for edit in done.edits)
    program = Program.from_concrete_function(step.function, step.inputs)
    assert verify(program, done.graph_def, steps=3, timing_rounds=0).equal


# --- what shapes may be taken from ----------------------------------------------------------------


def test_sessions_refuse_other_shapes_than_a_placeholder_declares() -> None:
    """So what it declares is certain, and the other feeds of such a graph change nothing."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [2, 3])
        shape = tf.raw_ops.Shape(input=x)
        with v1.Session() as session:
            for run in (lambda x_: session.run(shape, {x: x_}), session.make_callable(shape, [x])):
                assert run(np.zeros([2, 3], np.float32)).tolist() == [2, 3]
                with pytest.raises(ValueError, match="Cannot feed"):
                    run(np.zeros([4, 3], np.float32))


def test_in_functions_tensorflow_itself_goes_by_declared_shapes_if_they_are_whole() -> None:
    """A ConcreteFunction takes other shapes, and TensorFlow has folded what they are."""
    outcomes = []
    for declared in ([2, 3], [None, 3]):
        function = tf.function(lambda x: tf.raw_ops.Shape(input=x), autograph=False)
        concrete = function.get_concrete_function(tf.TensorSpec(declared))
        done = run_pass(GrapplerItem.from_concrete_function(concrete), PASS)
        ours = rewrite(concrete, graph_def=done.graph_def)
        outcomes.append([call(tf.zeros([4, 5])).numpy().tolist() for call in (concrete, ours)])
    assert outcomes == [[[2, 3], [2, 3]], [[4, 5], [4, 5]]]


def test_nothing_is_certain_behind_open_dimensions_not_even_the_others() -> None:
    """A ConcreteFunction takes values of any shape."""
    function = tf.function(
        lambda x: tf.raw_ops.Shape(input=tf.reduce_sum(x, axis=0)), autograph=False
    )
    concrete = function.get_concrete_function(tf.TensorSpec([None, 3]))
    assert concrete.graph.outputs[0].op.inputs[0].op.inputs[0].shape == [3]
    done = run_pass(GrapplerItem.from_concrete_function(concrete), PASS)
    assert not done.edits
    with without_grappler():
        ours = rewrite(concrete, graph_def=done.graph_def)
        assert ours(tf.zeros([4, 5])).numpy().tolist() == [5]
        assert concrete(tf.zeros([4, 5])).numpy().tolist() == [5]


# --- control flow of TensorFlow 1 -----------------------------------------------------------------


def loop_graph() -> GraphDef:
    """Shapes of a loop's tensors, with their arithmetic, six turns of which may run at once."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4, 6], name="x")

        def turn(number: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            y = tf.sin(x + total)
            rows, columns = tf.unstack(tf.raw_ops.Shape(input=y))
            flat = tf.reshape(y, tf.stack([rows * columns]))
            # The second is of what enters the loop once.
            size = tf.raw_ops.Size(input=y) + tf.raw_ops.Size(input=x)
            scaled = flat * tf.cast(size, tf.float32) * 0.005
            return number + 1, tf.reshape(scaled, tf.raw_ops.Shape(input=total))

        _, total = v1.while_loop(lambda number, _: number < 6, turn, (0, tf.zeros([4, 6])))
        tf.identity(total, name="end")
    return graph.as_graph_def()


def branch_graph() -> GraphDef:
    """Shapes in both branches, the other of which is dead, and so are the shapes."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [4, 6], name="x")

        def large(y: tf.Tensor) -> tf.Tensor:
            return tf.raw_ops.Shape(input=tf.concat([y, y], 0))

        end = v1.cond(
            tf.reduce_sum(x) > 0,
            lambda: large(x),
            lambda: tf.raw_ops.Shape(input=tf.exp(-x)),
        )
        tf.identity(end, name="end")
    return graph.as_graph_def()


def v1_graph(build: Callable[[], GraphDef]) -> GraphDef:
    v1.disable_control_flow_v2()
    try:
        return build()
    finally:
        v1.enable_control_flow_v2()


def item_of(graph_def: GraphDef, *fetch: str) -> GrapplerItem:
    feed = tuple(f"{node.name}:0" for node in graph_def.node if node.op == "Placeholder")
    return GrapplerItem(graph_def, feed=feed, fetch=fetch)


def folded(done: Done) -> list[str]:
    """The names of the constants that were made."""
    return [name for edit in done.edits for name in (*edit.changed, *edit.added)]


@pytest.mark.parametrize("build", [loop_graph, branch_graph], ids=lambda build: build.__name__)
def test_shapes_in_loops_and_branches(build: Callable[[], GraphDef]) -> None:
    graph_def = v1_graph(build)
    done = run_pass(item_of(graph_def, "end"), PASS)
    assert len(folded(done)) > 1
    assert not SHAPE_OPS & {node.op for node in done.graph}
    for sign in (1, -1):
        x = sign * np.random.default_rng(0).uniform(0.1, 1, (4, 6)).astype(np.float32)
        ((before,),) = run_graph(graph_def, ["end:0"], {"x:0": x})
        ((after,),) = run_graph(done.graph_def, ["end:0"], {"x:0": x})
        assert after.tobytes() == before.tobytes()


# --- random graphs --------------------------------------------------------------------------------


def random_shapes_graph(seed: int) -> tuple[GraphDef, list[str], list[str]]:
    """A random graph of tensors, their shapes, and what is computed from those.

    Returns it with the tensors that were computed, and the names of inner nodes that are fed.
    """
    choice = random.Random(seed)
    with tf.Graph().as_default() as graph:
        sides = [choice.randint(1, 4) for _ in range(3)]
        tensors = [
            v1.placeholder(tf.float32, sides, name="x"),
            v1.placeholder(tf.float32, [None, *sides[1:]], name="open"),
        ]
        shapes: list[Any] = []
        for _ in range(choice.randint(8, 30)):
            _add_random(choice, tensors, shapes)
    inner = [tensor.op.name for tensor in tensors[2:] if choice.random() < 0.1]
    names = [tensor.name for tensor in (*tensors[2:], *shapes)]
    return graph.as_graph_def(), names, inner


def _add_random(choice: random.Random, tensors: list[Any], shapes: list[Any]) -> None:
    tensor = choice.choice(tensors)
    kind = choice.randint(0, 9)
    controls = [choice.choice(tensors).op] if choice.random() < 0.2 else []
    with tf.control_dependencies(controls):
        if kind <= 2:
            function = choice.choice((tf.sin, tf.reduce_sum, lambda x: x[:1], lambda x: x[None]))
            tensors.append(tf.identity(function(tensor)) if tensor.shape.rank else tf.sin(tensor))
        elif kind == 3:
            width = choice.choice((tf.int32, tf.int64))
            shapes.append(tf.raw_ops.Shape(input=tensor, out_type=width))
        elif kind == 4:
            chosen = choice.choices(tensors, k=choice.randint(1, 3))
            shapes.extend(tf.raw_ops.ShapeN(input=chosen))
        elif kind == 5:
            op = choice.choice((tf.raw_ops.Size, tf.raw_ops.Rank))
            shapes.append(op(input=tensor))
        elif kind == 6 and shapes:
            shape = choice.choice(shapes)
            shapes.append(tf.raw_ops.Mul(x=shape, y=shape))
            shapes.append(tf.raw_ops.Cast(x=shape, DstT=tf.int64))
        elif kind == 7:
            pair = [tf.raw_ops.Shape(input=tensor), tf.raw_ops.Shape(input=tensors[0])]
            if all(one.shape.is_fully_defined() for one in (tensor, tensors[0])):
                shapes.append(tf.raw_ops.Pack(values=[tf.reduce_prod(one) for one in pair]))
        elif kind == 8:
            shape = tf.raw_ops.Shape(input=tensor)
            sums = tf.raw_ops.BroadcastGradientArgs(s0=shape, s1=tf.ones_like(shape))
            shapes.extend(sums)
        else:
            shape = tf.raw_ops.Shape(input=tensor)
            tensors.append(tf.raw_ops.Fill(dims=shape, value=0.5) + tensor)


def test_random_graphs_keep_their_bits() -> None:
    """With what is fed in several shapes where the graph leaves that open."""
    constants = declined = 0
    for seed in RANDOM_SEEDS:
        graph_def, names, inner = random_shapes_graph(seed)
        choice = random.Random(seed)
        fetch = choice.sample(names, k=min(6, len(names)))
        feed = ("x:0", "open:0", *(f"{name}:0" for name in inner))
        fetched = [name for name in fetch if name.partition(":")[0] not in inner]
        done = run_pass(GrapplerItem(graph_def, feed=feed, fetch=tuple(fetched)), PASS)
        constants += len(folded(done))
        declined += len(done.declined)
        for rows in (1, 3):
            values = fed_values(graph_def, inner, rows)
            (before,) = run_graph(graph_def, fetched, values)
            (after,) = run_graph(done.graph_def, fetched, values)
            for name, one, other in zip(fetched, before, after, strict=True):
                assert one.dtype == other.dtype, f"graph {seed}, {name}"
                assert one.shape == other.shape, f"graph {seed}, {name}"
                assert one.tobytes() == other.tobytes(), f"graph {seed}, {name}"
    assert constants > 300
    assert declined > 50


def fed_values(graph_def: GraphDef, inner: Iterable[str], rows: int) -> dict[str, Array]:
    """What is fed: inner tensors as they would be, open ones with so many rows."""
    values = {}
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        for name in ("x", "open", *inner):
            sizes = graph.get_tensor_by_name(f"{name}:0").shape.as_list()
            shape = [rows if size is None else size for size in sizes]
            random_ = np.random.default_rng(len(name))
            values[f"{name}:0"] = random_.standard_normal(shape).astype(np.float32)
    return values


# --- gains ----------------------------------------------------------------------------------------

ROWS = 512
TENSOR_BYTES = ROWS * ROWS * 4


def late_shape() -> Any:
    """A step that asks late for the shape of a large tensor, which is needed for nothing else."""

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(x: tf.Tensor) -> tf.Tensor:
        first = tf.matmul(x, x)
        second = tf.matmul(tf.reduce_mean(first) + x, x)
        third = tf.matmul(second, x)
        with tf.control_dependencies([third]):
            shape = tf.raw_ops.Shape(input=first, name="late")
        return tf.reduce_sum(third) * tf.cast(tf.reduce_prod(shape), tf.float32)

    return step.get_concrete_function(tf.TensorSpec([ROWS, ROWS]))


def test_a_tensor_whose_shape_is_needed_late_need_not_be_kept() -> None:
    step = late_shape()
    done = run_pass(GrapplerItem.from_concrete_function(step), PASS)
    assert [edit.releases for edit in done.edits if edit.releases] == [("MatMul:0",)]
    x = np.random.default_rng(1).standard_normal((ROWS, ROWS)).astype(np.float32)
    program = Program.from_concrete_function(step, [x])
    verification = verify(program, done.graph_def, steps=2, timing_rounds=0)
    assert verification.equal
    before = verification.original.step_peak_bytes
    after = verification.rewritten.step_peak_bytes
    assert done.released_bytes == TENSOR_BYTES
    assert before - after == TENSOR_BYTES


def test_sums_keep_their_bits_beside_shapes_that_are_left_alone() -> None:
    """What AddN adds first depends on who else holds its inputs, be it for their shapes alone."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [33, 17], name="x")
        y = x * 3.7
        terms = [tf.sin(y), tf.cos(y), tf.exp(tf.sin(y)), tf.tanh(y)]
        total = tf.raw_ops.AddN(inputs=terms, name="sum")
        shape = tf.raw_ops.Shape(input=terms[0], name="held")
        with tf.control_dependencies([total]):
            late = tf.raw_ops.Shape(input=terms[0], name="late")
        tf.identity(total * tf.cast(tf.reduce_sum(shape + late), tf.float32), name="end")
    graph_def = graph.as_graph_def()
    done = run_pass(item_of(graph_def, "end"), PASS)
    assert {one.node for one in done.declined} == {"held", "late"}
    x_ = np.random.default_rng(0).standard_normal((33, 17)).astype(np.float32)
    with without_grappler():
        ((before,),) = run_sums(graph_def, ["end:0"], {"x": x_})
        ((after,),) = run_sums(done.graph_def, ["end:0"], {"x": x_})
    assert after.tobytes() == before.tobytes()
