"""Relaxed allocation equals TensorFlow's own: every assignment, in functions too."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.native import RELAX_ATTRIBUTE, differences, normalize_native, optimize_native
from support.text_cases import TextCase, read_cases

from memopt.context import Context
from memopt.graph import op_types
from memopt.graph.functiondef import Library
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.text import parse_graph
from memopt.models import MODELS, SESSION_MODELS
from memopt.passes.relax_allocator import ASSIGNMENTS, RelaxAllocator, never_forwards
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.graph.graph import Graph
    from memopt.item import GrapplerItem

CASES = read_cases(Path(__file__).parent / "cases" / "relax_allocator.txt")
RANDOM_GRAPHS = 200
LEVEL = "MANUAL"
CPU, GPU = "/device:CPU:0", "/device:GPU:0"


def relax(graph_def: GraphDef) -> GraphDef:
    graph = from_graph_def(graph_def)
    graphs = [graph]
    called = 0
    while called < len(graphs):
        graphs.extend(body for body in bodies(graphs[called]) if body not in graphs)
        called += 1
    for body in graphs:
        RelaxAllocator().run(Rewriter(body), Context(Properties.unknown()))
    return to_graph_def(graph)


def bodies(graph: Graph) -> list[Graph]:
    library = graph.library
    assert isinstance(library, Library)
    names = {name: None for node in graph for name in op_types.called_functions(node, library)}
    return [library.graph(name) for name in names]


def marked(graph_def: GraphDef) -> int:
    nodes = [*graph_def.node, *(n for f in graph_def.library.function for n in f.node_def)]
    return sum(RELAX_ATTRIBUTE in node.attr for node in nodes)


def assert_equals_native(graph_def: GraphDef, fetch: tuple[str, ...]) -> GraphDef:
    received = normalize_native(graph_def, fetch)
    native = optimize_native(graph_def, LEVEL, fetch)
    ours = relax(received)
    assert differences(ours, native, relaxing=True) == []
    return ours


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_equal_native(case: TextCase) -> None:
    graph_def = to_graph_def(parse_graph(case.before))
    ours = assert_equals_native(graph_def, (graph_def.node[0].name,))
    assert marked(ours) == case.after.count(RELAX_ATTRIBUTE)


@pytest.mark.parametrize("model", [*MODELS, *SESSION_MODELS])
def test_models_equal_native(model: str, tiny_item: Callable[[str], GrapplerItem]) -> None:
    item = tiny_item(model)
    fetch = tuple(name.removesuffix(":0") for name in item.fetch)
    ours = assert_equals_native(item.graph_def, fetch)
    assignments = sum(node.op in ASSIGNMENTS for node in ours.node)
    assert marked(ours) == assignments


def test_random_graphs_equal_native() -> None:
    relaxed = assignments = 0
    for seed in range(RANDOM_GRAPHS):
        graph_def = random_assignments(seed)
        received = normalize_native(graph_def, ["x"])
        native = optimize_native(graph_def, LEVEL, ["x"])
        ours = relax(received)
        assert differences(ours, native, relaxing=True) == [], f"graph {seed}"
        relaxed += marked(ours)
        assignments += sum(node.op in ASSIGNMENTS for node in ours.node)
    # The comparison is one of graphs in which both happens.
    assert assignments / 10 < relaxed < assignments * 9 / 10


def test_every_op_of_tensorflow_forwards_or_not_as_native_says() -> None:
    """One graph: an assignment for each op, whose result the op may hand on over a border."""
    ops = registered_ops()
    assert len(ops) > 1500
    lines = [
        f"x = Placeholder() {{dtype=float, shape=[]}} @{CPU}",
        f"v = VariableV2() {{dtype=float, shape=[]}} @{CPU}",
    ]
    for op in ops:
        lines += [
            f"assign/{op} = Assign(v, x) {{T=float}} @{CPU}",
            f"op/{op} = {op}(assign/{op}) @{CPU}",
            f"read/{op} = Identity(op/{op}) {{T=float}} @{GPU}",
        ]
    graph_def = to_graph_def(parse_graph("\n".join(lines) + "\n"))
    # Not MANUAL, which would look at what such nodes produce.
    native = optimize_native(graph_def, "RECOMPUTATION_HEURISTICS", ["x"])
    names = {node.name for node in native.node if RELAX_ATTRIBUTE in node.attr}
    assert {name.removeprefix("assign/") for name in names} == set(filter(never_forwards, ops))


def registered_ops() -> list[str]:
    """Every op of TensorFlow, but Sends, and Placeholders, which would need an element type."""
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session

    ops = op_def_pb2.OpList.FromString(
        pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    )
    left_out = {"_Send", "_HostSend", "Placeholder", "PlaceholderV2"}
    return sorted(op.name for op in ops.op if op.name not in left_out)


def test_function_bodies_equal_native() -> None:
    """A body's results leave it on no device, which is a border where the body has full names."""
    found = []
    for first, second in [("", ""), (CPU, CPU), (CPU, GPU), (f"/job:a{CPU}", f"/job:a{CPU}")]:
        ours = assert_equals_native(graph_with_function(first, second), ("out",))
        body = next(f for f in ours.library.function if f.signature.name.startswith("assigning"))
        found.append([node.name for node in body.node_def if RELAX_ATTRIBUTE in node.attr])
    assert found == [["returned", "inner"], ["returned", "inner"], ["inner"], ["inner"]]


def graph_with_function(first: str, second: str) -> GraphDef:
    """A v1 graph with a function that assigns to variables of its own, on two devices."""
    import tensorflow as tf
    from tensorflow.python.framework import function

    @function.Defun(tf.float32, func_name="assigning")  # type: ignore[untyped-decorator]
    def assigning(x: tf.Tensor) -> tf.Tensor:
        with tf.device(first):
            variable = tf.raw_ops.VariableV2(shape=[2], dtype=tf.float32, name="v")
            returned = tf.raw_ops.Assign(ref=variable, value=x, name="returned")
            inner = tf.raw_ops.Assign(ref=variable, value=x, name="inner")
            tf.raw_ops.Shape(input=inner)
        with tf.device(second):
            return tf.identity(returned)

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        with tf.device(first):
            y = assigning(x)
        tf.identity(y, name="out")
    graph_def: GraphDef = graph.as_graph_def()
    return graph_def


TASKS = ("", "", "", "/job:worker/task:0", "/job:worker/task:1", "/job:localhost/replica:0/task:0")
DEVICES = (CPU, GPU, "/device:GPU:1", "/cpu:0", "/gpu:0", "/device:TPU:0", "/device:CPU:*", "")
UNARY = ("Identity", "Relu", "Exp", "StopGradient")
BINARY = ("Add", "Mul", "Maximum", "MatMul", "MatMul", "BatchMatMul")


def random_assignments(seed: int) -> GraphDef:
    """A random graph of assignments and what reads them, the same for the same seed.

    It has both kinds of assignment, some that assign to what another one gives, ops that forward
    and ops that do not, several devices and tasks, control edges, loops and Sends; half of the
    graphs are shuffled.
    """
    choice = random.Random(seed)
    return _Builder(choice).build(choice.randint(10, 60))


class _Builder:
    def __init__(self, choice: random.Random) -> None:
        self._choice = choice
        task = choice.choice(TASKS)
        tasks = [task] if choice.random() < 0.8 else [task, choice.choice(TASKS)]
        count = choice.randint(1, 3)
        self._devices = [choice.choice(tasks) + choice.choice(DEVICES) for _ in range(count)]
        self._device = self._devices[0]
        self._send_share = choice.choice((0, 0, 0.03))
        self._lines: list[str] = []
        self._tensors: list[str] = []
        self._references: list[str] = []

    def build(self, count: int) -> GraphDef:
        self._add("x", "Placeholder", "", "dtype=float, shape=[2,2]")
        self._tensors.append("x")
        self._add("v", "VariableV2", "", "dtype=float, shape=[2,2]")
        self._references.append("v")
        self._add("handle", "VarHandleOp", "", "dtype=float, shape=[2,2]")
        for number in range(count):
            self._add_operation(f"n{number}")
        if self._choice.random() < 0.3:
            self._add_loop()
        if self._choice.random() < 0.5:
            self._choice.shuffle(self._lines)
        return to_graph_def(parse_graph("\n".join(self._lines) + "\n"))

    def _add(self, name: str, op: str, inputs: str, attributes: str = "T=float") -> None:
        if self._choice.random() < 0.15:
            self._device = self._choice.choice(self._devices)
        placed = f" @{self._device}" if self._device else ""
        self._lines.append(f"{name} = {op}({inputs}) {{{attributes}}}{placed}")

    def _add_operation(self, name: str) -> None:
        kind = self._choice.random()
        value = self._choice.choice(self._tensors[-8:])
        if kind < self._send_share:
            op = self._choice.choice(("_Send", "_HostSend"))
            where = 'tensor_name="t", send_device="", send_device_incarnation=0, recv_device=""'
            self._add(name, op, value, f"T=float, {where}")
            return
        if kind < 0.12:
            self._add(name, "AssignVariableOp", f"handle, {value}", "dtype=float")
            return
        if kind < 0.4:
            reference = self._choice.choice(self._references[-4:])
            self._add(name, "Assign", f"{reference}, {value}")
            self._references.append(name)
        elif kind < 0.7:
            control = f", ^{self._choice.choice(self._tensors)}" if kind < 0.45 else ""
            self._add(name, self._choice.choice(UNARY), f"{value}{control}")
        else:
            other = self._choice.choice(self._tensors)
            self._add(name, self._choice.choice(BINARY), f"{value}, {other}")
        self._tensors.append(name)

    def _add_loop(self) -> None:
        """A loop whose body assigns what came round."""
        start = self._choice.choice(self._tensors)
        self._add("enter", "Enter", start, 'T=float, frame_name="loop"')
        self._add("merge", "Merge", "enter, next", "T=float, N=2")
        self._add("test", "Greater", "merge, merge")
        self._add("more", "LoopCond", "test", "")
        self._add("switch", "Switch", "merge, more")
        self._add("reference", "RefEnter", "v", 'T=float, frame_name="loop"')
        self._add("inside", "Assign", "reference, switch:1")
        self._add("next", "NextIteration", self._choice.choice(("inside", "switch:1")))
        self._add("exit", "Exit", "switch")
        self._add("after", "Exp", "exit")
