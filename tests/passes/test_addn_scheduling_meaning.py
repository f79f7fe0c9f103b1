"""What accumulators compute when run for real, and what they gain."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from support.native import optimize_native
from support.native_simulation import cpu, meta_graph
from support.random_sums import SINK, random_sums_graph
from support.scheduling import item_of, run_sums, schedule, schedule_body
from support.state import without_grappler

from memopt.accumulation.accumulators import add_running_sums
from memopt.accumulation.addition_order import AdditionOrders
from memopt.api import rewrite
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.item import GrapplerItem
from memopt.passes.addn_scheduling import AddnScheduling
from memopt.runtime.entry import verify
from memopt.runtime.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import numpy.typing as npt
    from tensorflow.core.framework.graph_pb2 import GraphDef

    Array = npt.NDArray[Any]

FULL = [cpu(memory_bytes=1)]
VARIABLE = AddnScheduling(trust_feeds=True, all_types=True)
ORDERED = AddnScheduling(trust_feeds=True, all_types=True, ordered=True)
RUNNING_SUMS = AddnScheduling(running_sums=True)
FORMS = (VARIABLE, ORDERED, RUNNING_SUMS)

# --- one sum --------------------------------------------------------------------------------------

COUNTS = (3, 4, 8, 9, 10, 17, 20)
FLOATS = (tf.float32, tf.float64, tf.half, tf.bfloat16, tf.complex64, tf.complex128)
INTEGERS = (tf.int64, tf.int32, tf.uint8)


def random_values(dtype: tf.DType, count: int) -> list[Array]:
    """Numbers of very different size, so that every order of addition gives other bits."""
    random = np.random.default_rng(0)
    shape = (33, 17)
    values = []
    for _ in range(count):
        value = random.standard_normal(shape) * 10.0 ** random.uniform(-2, 2, shape)
        if dtype.is_complex:
            value = value + 1j * random.standard_normal(shape)
        if dtype.is_integer:
            value = np.abs(value) * 100 % 250
        values.append(value.astype(dtype.as_numpy_dtype))
    return values


def sum_graph(kinds: Sequence[str], values: Sequence[Array]) -> GraphDef:
    """An AddN of inputs of these kinds.

    "own" is computed, "contracted" by an Einsum of two, "const" a constant, "fed" a Placeholder,
    "alias" an Identity of something computed, "read later" read once more after the sum, "shown
    later" read then through an Identity of it, "read before" before the sum, and "read in vain"
    after it for nothing.
    """
    with tf.Graph().as_default() as graph:
        inputs: list[Any] = []
        read: dict[str, list[Any]] = {"read later": [], "shown later": [], "read in vain": []}
        for number, (kind, value) in enumerate(zip(kinds, values, strict=True)):
            fed = tf.compat.v1.placeholder(value.dtype, value.shape, name=f"x{number}")
            term = tf.raw_ops.Mul(x=fed, y=np.ones_like(value))
            if kind == "contracted":
                term = tf.raw_ops.Einsum(inputs=[fed, np.ones_like(value)], equation="...,...->...")
            elif kind == "const":
                term = tf.constant(value)
            elif kind == "fed":
                term = fed
            elif kind == "alias":
                term = tf.identity(term)
            elif kind in read:
                read[kind].append(tf.identity(term) if kind == "shown later" else term)
            elif kind == "read before":
                inputs[-1] = tf.raw_ops.AddV2(x=inputs[-1], y=tf.raw_ops.Sub(x=term, y=term))
            inputs.append(term)
        total = tf.raw_ops.AddN(inputs=inputs, name="sum")
        end = tf.identity(total, name="end")
        with graph.control_dependencies([total]):
            for term in read["read later"] + read["shown later"]:
                end = tf.raw_ops.AddV2(x=end, y=tf.raw_ops.Sub(x=term, y=term))
            for term in read["read in vain"]:
                tf.raw_ops.Neg(x=term)
        tf.identity(end, name="train")
    return graph.as_graph_def()


def fed_values(graph_def: GraphDef, values: Sequence[Array]) -> dict[str, Array]:
    fed = {node.name for node in graph_def.node if node.op == "Placeholder"}
    return {f"x{k}": value for k, value in enumerate(values) if f"x{k}" in fed}


def before_and_after(pass_: AddnScheduling, kinds: Sequence[str], values: Sequence[Array]) -> Any:
    graph_def = sum_graph(kinds, values)
    done = schedule(pass_, item_of(graph_def, "train"), FULL)
    assert [edit.changed for edit in done.edits] == [("sum",)], done.declined
    given = fed_values(graph_def, values)
    ((before,),) = run_sums(graph_def, ["train:0"], given)
    ((after,),) = run_sums(done.graph_def, ["train:0"], given)
    return before, after


@pytest.mark.parametrize("pass_", FORMS, ids=str)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=lambda dtype: dtype.name)
def test_sums_are_equal_up_to_the_order_of_additions(
    dtype: tf.DType, pass_: AddnScheduling
) -> None:
    for count in COUNTS:
        values = random_values(dtype, count)
        before, after = before_and_after(pass_, ["own"] * count, values)
        if dtype.is_integer:
            assert after.tobytes() == before.tobytes()
            continue
        # A bound for the sum of so many numbers, whatever the order.
        wide = np.complex128 if dtype.is_complex else np.float64
        sizes = sum(np.abs(value.astype(wide)) for value in values)
        epsilon = 2.0 ** -{tf.half: 10, tf.bfloat16: 7}.get(dtype, 23)
        difference = np.abs(after.astype(wide) - before.astype(wide))
        assert (difference <= 2 * count * epsilon * sizes).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_running_sums_have_the_bits_of_addn_and_ordered_ones_up_to_nine_inputs(
    dtype: tf.DType,
) -> None:
    for count in COUNTS:
        values = random_values(dtype, count)
        before, after = before_and_after(RUNNING_SUMS, ["own"] * count, values)
        assert after.tobytes() == before.tobytes(), count
        before, after = before_and_after(ORDERED, ["own"] * count, values)
        assert (after.tobytes() == before.tobytes()) is (count <= 9), count


def test_only_zeros_lose_their_sign_where_the_variable_begins_as_zeros() -> None:
    """The sum of negative zeros is -0.0; with Grappler's form, it is 0.0."""
    values = [np.full((4, 4), -0.0, np.float32)] * 3
    negative = {}
    for pass_ in FORMS:
        before, after = before_and_after(pass_, ["own"] * 3, values)
        assert np.signbit(before).all()
        assert (after == before).all()
        negative[pass_] = bool(np.signbit(after).all())
    assert negative == {VARIABLE: False, ORDERED: True, RUNNING_SUMS: True}


def test_grapplers_form_adds_in_the_order_of_arrival() -> None:
    """The first input comes late, because it takes long: other bits than those of AddN."""
    random = np.random.default_rng(0)
    x = random.standard_normal((400, 400)).astype(np.float32)
    with tf.Graph().as_default() as graph:
        fed = tf.compat.v1.placeholder(tf.float32, x.shape, name="x")
        slow = fed
        for _ in range(4):
            slow = tf.tanh(tf.matmul(slow, fed))
        tf.raw_ops.AddN(inputs=[slow, tf.sin(fed), tf.cos(fed), tf.exp(fed)], name="sum")
    graph_def = graph.as_graph_def()
    native = schedule(VARIABLE, item_of(graph_def, "sum"), FULL)
    sums = schedule(RUNNING_SUMS, item_of(graph_def, "sum"), FULL)
    inputs = next(node for node in graph_def.node if node.name == "sum").input
    ((before, *terms),) = run_sums(graph_def, ["sum:0", *(f"{n}:0" for n in inputs)], {"x": x})
    (((after,)),) = run_sums(native.graph_def, ["sum:0"], {"x": x})
    (((kept,)),) = run_sums(sums.graph_def, ["sum:0"], {"x": x})
    arrivals = {
        (((terms[a] + terms[b]) + terms[c]) + terms[d]).tobytes()
        for a, b, c, d in itertools.permutations(range(4))
        if a != 0
    }
    assert after.tobytes() != before.tobytes()
    assert after.tobytes() in arrivals
    assert kept.tobytes() == before.tobytes()


ORDERS = [
    (("own", "own", "own", "own"), (0, 1, 2, 3)),
    (("const", "own", "own", "own"), (0, 1, 2, 3)),
    (("const", "const", "own", "own"), (2, 1, 0, 3)),
    (("const", "const", "const", "own"), (3, 1, 2, 0)),
    (("const", "const", "alias", "own"), (2, 1, 0, 3)),
    (("read later", "read later", "own", "own"), (2, 1, 0, 3)),
    (("shown later", "shown later", "own", "own"), (2, 1, 0, 3)),
    (("read later", "read later", "read in vain", "own"), (2, 1, 0, 3)),
    (("own", "read before", "own", "own"), (0, 1, 2, 3)),
    (("const", "const", "own", "read before"), (2, 1, 0, 3)),
    (("contracted", "own", "contracted", "own"), (0, 1, 2, 3)),
    (("const", "const", "contracted", "own"), (2, 1, 0, 3)),
    (("const",) * 3 + ("own",) * 9, (3, 1, 2, 0, *range(4, 12))),
]


@pytest.mark.parametrize(("kinds", "order"), ORDERS, ids=str)
def test_addn_adds_in_the_order_that_is_predicted(
    kinds: tuple[str, ...], order: tuple[int, ...]
) -> None:
    """It takes over the first buffer that nobody else holds."""
    values = random_values(tf.float32, len(kinds))
    graph_def = sum_graph(kinds, values)
    graph = from_graph_def(graph_def)
    node = graph["sum"]
    found = AdditionOrders(graph, {"train"}).order(node)
    assert found == tuple(node.inputs[slot] for slot in order)
    before, after = before_and_after(RUNNING_SUMS, kinds, values)
    assert after.tobytes() == before.tobytes()


# --- whole graphs ---------------------------------------------------------------------------------

RANDOM_SEEDS = range(60)


def results_of(graph_def: GraphDef) -> list[str]:
    """Every tensor that nobody reads."""
    read = {name.partition(":")[0] for node in graph_def.node for name in node.input}
    return [
        f"{node.name}:0"
        for node in graph_def.node
        if node.name not in {name for name in read if not name.startswith("^")}
        and node.op not in ("NoOp", "VarHandleOp")
    ]


def values_of(graph_def: GraphDef, seed: int) -> dict[str, Array]:
    """What is fed and what variables hold: many sizes, and zeros of both signs."""
    random = np.random.default_rng(seed)
    values = {}
    for node in sorted(graph_def.node, key=lambda node: node.name):
        if node.op in ("Placeholder", "VariableV2", "VarHandleOp"):
            dtype = tf.as_dtype(node.attr["dtype"].type)
            shape = [dim.size for dim in node.attr["shape"].shape.dim]
            value = random.standard_normal(shape) * 10.0 ** random.uniform(-2, 2, shape)
            value = np.where(random.random(shape) < 0.1, -0.0, value)
            values[node.name] = np.asarray(value).astype(dtype.as_numpy_dtype)
    return values


def with_fixed_orders(graph_def: GraphDef, fetched: Collection[str]) -> GraphDef:
    """The graph with sums whose order depends on timing replaced, until none is left.

    TensorFlow itself gives other bits for those from run to run.
    """
    graph = from_graph_def(graph_def)
    rewriter = Rewriter(graph)
    while True:
        orders = AdditionOrders(graph, fetched)
        uncertain = [
            node
            for node in graph
            if node.op == "AddN" and len(node.inputs) > 2 and orders.order(node) is None
        ]
        if not uncertain:
            return to_graph_def(graph)
        with rewriter.edit("given an order"):
            add_running_sums(rewriter, uncertain[0], uncertain[0].inputs)


def without_accumulate_n(graph_def: GraphDef) -> GraphDef:
    """AccumulateNV2 promises no order, so that its bits differ from run to run."""
    for node in graph_def.node:
        if node.op == "AccumulateNV2":
            node.op = "AddN"
            del node.attr["shape"]
    return graph_def


@pytest.mark.parametrize("reuse", [pytest.param(0.4, marks=pytest.mark.exhaustive), 1.0])
def test_running_sums_keep_the_bits_of_whole_graphs(reuse: float) -> None:
    """With one operation at a time and with several."""
    edits = 0
    for seed in RANDOM_SEEDS:
        drawn = without_accumulate_n(random_sums_graph(seed, ["/device:CPU:0", ""], reuse=reuse))
        fetch = results_of(drawn)
        names = [name.partition(":")[0] for name in fetch]
        graph_def = with_fixed_orders(drawn, {*names, SINK})
        done = schedule(RUNNING_SUMS, item_of(graph_def, SINK, *names), FULL)
        edits += len(done.edits)
        values = values_of(graph_def, seed)
        expected = run_sums(graph_def, fetch, values, steps=2)
        for threads in (1, 4):
            found = run_sums(done.graph_def, fetch, values, threads=threads, steps=2)
            for name, before, after in zip(
                fetch * 2, itertools.chain(*expected), itertools.chain(*found), strict=True
            ):
                assert after.tobytes() == before.tobytes(), f"graph {seed}, {name}"
    assert edits > 50


@pytest.mark.parametrize(
    "pass_", [VARIABLE, pytest.param(ORDERED, marks=pytest.mark.slow)], ids=str
)
def test_accumulators_in_variables_run_and_keep_integers(pass_: AddnScheduling) -> None:
    integers = edits = 0
    for seed in RANDOM_SEEDS:
        graph_def = random_sums_graph(seed, ["/device:CPU:0", ""])
        fetch = results_of(graph_def)
        names = [name.partition(":")[0] for name in fetch]
        done = schedule(pass_, item_of(graph_def, SINK, *names), FULL)
        edits += len(done.edits)
        values = values_of(graph_def, seed)
        (expected,) = run_sums(graph_def, fetch, values)
        (found,) = run_sums(done.graph_def, fetch, values, threads=4)
        for before, after in zip(expected, found, strict=True):
            assert after.shape == before.shape
            assert after.dtype == before.dtype
            if before.dtype.kind == "i":
                integers += 1
                assert after.tobytes() == before.tobytes()
    assert edits > 100
    assert integers > 20


# --- loops and branches of TensorFlow 1 -----------------------------------------------------------


def loop_graph() -> GraphDef:
    """A loop of TensorFlow 1, six turns of which may run at the same time, with a sum inside."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [128, 128], name="x")

        def turn(number: tf.Tensor, results: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            y = x + tf.cast(number, tf.float32)
            slow = tf.tanh(tf.matmul(tf.matmul(y, y), y))
            total = tf.raw_ops.AddN(inputs=[slow, tf.sin(y), tf.cos(y), tf.tanh(y)])
            return number + 1, results.write(number, total)

        _, results = tf.compat.v1.while_loop(
            lambda number, _: number < 6,
            turn,
            (0, tf.TensorArray(tf.float32, 6)),
            parallel_iterations=6,
        )
        tf.identity(results.stack(), name="end")
    return graph.as_graph_def()


def branch_graph() -> GraphDef:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [128, 128], name="x")

        def branch(y: tf.Tensor) -> tf.Tensor:
            return tf.raw_ops.AddN(inputs=[tf.exp(y), tf.sin(y), tf.cos(y), tf.tanh(y)])

        tf.identity(
            tf.compat.v1.cond(tf.reduce_sum(x) > 0, lambda: branch(x), lambda: branch(-x)),
            name="end",
        )
    return graph.as_graph_def()


@pytest.mark.parametrize("pass_", FORMS, ids=str)
@pytest.mark.parametrize("build", [loop_graph, branch_graph], ids=lambda build: build.__name__)
def test_sums_in_loops_and_branches(build: Callable[[], GraphDef], pass_: AddnScheduling) -> None:
    """A variable's name has the turn of the loop in it, so turns do not meet."""
    tf.compat.v1.disable_control_flow_v2()
    try:
        graph_def = build()
    finally:
        tf.compat.v1.enable_control_flow_v2()
    done = schedule(pass_, item_of(graph_def, "end"), FULL)
    assert done.edits
    for sign in (1, -1):
        x = sign * np.abs(np.random.default_rng(0).standard_normal((128, 128))) * 0.01
        values = {"x": x.astype(np.float32)}
        ((before,),) = run_sums(graph_def, ["end:0"], values)
        for ((after,),) in (
            run_sums(done.graph_def, ["end:0"], values, threads=threads) for threads in (1, 4)
        ):
            np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)
            if pass_ != VARIABLE:
                assert after.tobytes() == before.tobytes()


# --- functions ------------------------------------------------------------------------------------

SIDE = 512


def called_twice() -> Any:
    """A function that is called twice in a step, at the same time; its sum has one late input."""

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def total(x: tf.Tensor) -> tf.Tensor:
        y = tf.reshape(x, [SIDE, SIDE])
        slow = tf.tanh(tf.matmul(tf.matmul(tf.matmul(y, y), y), y))
        return tf.raw_ops.AddN(inputs=[tf.exp(y), slow, tf.cos(y), tf.sin(y)], name="sum")

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(x: tf.Tensor) -> tf.Tensor:
        return total(x) + total(x + 1.0)

    return step.get_concrete_function(tf.TensorSpec([SIDE, SIDE]))


def body_of(graph_def: GraphDef) -> str:
    (function,) = graph_def.library.function
    name: str = function.signature.name
    return name


def call_often(step: Any, x: tf.Tensor) -> None:
    """Often enough for two calls within to meet."""
    for _ in range(50):
        step(x)


def test_in_a_function_grapplers_variable_makes_steps_fail() -> None:
    """Both calls make the variable of the same name; so memopt leaves sums in bodies alone."""
    step = called_twice()
    graph_def = step.graph.as_graph_def()
    name = body_of(graph_def)
    native = optimize_native(
        graph_def, "SCHEDULING_HEURISTICS", [step.outputs[0].op.name], devices=FULL
    )
    (body,) = native.library.function
    assert "sum/tmp_var" in {node.name for node in body.node_def}
    rewritten = rewrite(step, graph_def=native)
    x = tf.fill([SIDE, SIDE], 0.001)
    with without_grappler(), pytest.raises(tf.errors.AlreadyExistsError):
        call_often(rewritten, x)

    ours = schedule_body(VARIABLE, graph_def, name, FULL)
    assert not ours.edits
    ((_, reason),) = ours.declined
    assert reason == "in a function, another call could use its variable at the same time"


def test_running_sums_work_in_functions() -> None:
    step = called_twice()
    graph_def = step.graph.as_graph_def()
    done = schedule_body(RUNNING_SUMS, graph_def, body_of(graph_def), FULL)
    assert [edit.changed for edit in done.edits] == [("sum",)]
    rewritten = rewrite(step, graph_def=done.graph_def)
    x = tf.constant(np.random.default_rng(0).standard_normal((SIDE, SIDE)), tf.float32)
    with without_grappler():
        expected = step(x).numpy().tobytes()
        assert {rewritten(x).numpy().tobytes() for _ in range(5)} == {expected}


def test_grappler_leaves_running_sums_apart() -> None:
    """Without the mark that they carry, its arithmetic optimizer joins them again."""
    with tf.Graph().as_default() as graph:
        x = tf.random.normal([64, 64], seed=1)
        terms = [tf.sin(x), tf.cos(x), tf.exp(x), tf.tanh(x), tf.sigmoid(x)]
        tf.square(tf.raw_ops.AddN(inputs=terms, name="sum"), name="end")
    done = schedule(RUNNING_SUMS, item_of(graph.as_graph_def(), "end"), FULL)
    assert done.edits
    unmarked = done.graph_def
    for node in unmarked.node:
        node.attr.pop("_grappler_ArithmeticOptimizer_AddOpsRewriteStage", None)
    assert largest_sum(optimize_by_default(done.graph_def)) == 2
    assert largest_sum(optimize_by_default(unmarked)) == 5


def optimize_by_default(graph_def: GraphDef) -> GraphDef:
    """What Grappler makes of a graph with all of its passes."""
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.grappler import tf_optimizer

    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    return tf_optimizer.OptimizeGraph(config, meta_graph(graph_def, ["end"]))


def largest_sum(graph_def: GraphDef) -> int:
    return max(len(node.input) for node in graph_def.node if node.op == "AddN")


# --- gains ----------------------------------------------------------------------------------------

LAYERS = 9
TENSOR_BYTES = SIDE * SIDE * 4


def sum_of_layers() -> Any:
    """A deep net whose result is the sum of what all of its layers give."""
    random = np.random.default_rng(0)
    weight = tf.Variable(random.standard_normal((SIDE, SIDE)).astype(np.float32) * 0.05)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(x: tf.Tensor) -> tf.Tensor:
        layers = []
        for _ in range(LAYERS):
            x = tf.tanh(tf.matmul(x, weight))
            layers.append(x)
        return tf.raw_ops.AddN(inputs=layers, name="sum")

    concrete = step.get_concrete_function(tf.TensorSpec([SIDE, SIDE]))
    concrete.keep_alive = weight
    return concrete


@pytest.mark.parametrize(
    ("pass_", "tensors", "equal"),
    [(VARIABLE, 3, False), (ORDERED, 3, True), (RUNNING_SUMS, 3, True)],
    ids=str,
)
def test_the_measured_peak_falls(pass_: AddnScheduling, tensors: int, equal: bool) -> None:
    """Without, every layer's result waits for the last one."""
    step = sum_of_layers()
    item = GrapplerItem.from_concrete_function(step)
    done = schedule(pass_, item, FULL)
    (edit,) = done.edits
    sizes = done.context.properties.size_bytes
    effect_bytes = sum(sizes(name) or 0 for name in edit.holds) - sum(
        sizes(name) or 0 for name in edit.releases
    )
    x = np.random.default_rng(1).standard_normal((SIDE, SIDE)).astype(np.float32)
    program = Program.from_concrete_function(step, [x])
    verification = verify(program, done.graph_def, steps=2, timing_rounds=0)

    assert verification.original.step_peak_bytes == LAYERS * TENSOR_BYTES
    assert verification.rewritten.step_peak_bytes == tensors * TENSOR_BYTES
    assert effect_bytes == (2 - LAYERS) * TENSOR_BYTES
    if equal:
        assert verification.equal
