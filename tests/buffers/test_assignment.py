"""Buffers: what kernels share, take over and need besides, on small graphs and in real steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.measured_order import measure_in_order
from support.steps import tiny_step

from memopt.buffers.assignment import buffer_graph_of
from memopt.buffers.buffer_graph import BufferGraph, MemoryTimeline, check_sequence, simulate
from memopt.buffers.kernel_call import Runtime
from memopt.graph.op_types import DT_STRING
from memopt.graph.text import parse_graph
from memopt.graph.traversal import Numbering
from memopt.runtime.program import Program
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import TensorProperties, tensor_properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.models import TrainingStep
    from memopt.runtime.replay import Measurement

FLOAT, INT32, RESOURCE, BOOL = 1, 3, 20, 10
HANDLE_BYTES = 200
TWO_THREADS = Runtime(intra_op_threads=2)

Shape = tuple[int, ...]
Tensors = dict[str, Shape | list[Shape | TensorProperties]]


def properties_of(tensors: Tensors) -> Properties:
    """What is known of nodes' outputs: a float of that shape, or a list by port."""
    known = Properties.unknown()
    for name, given in tensors.items():
        ports = given if isinstance(given, list) else [given]
        known.add(
            name,
            tuple(
                p if isinstance(p, TensorProperties) else tensor_properties(FLOAT, p) for p in ports
            ),
        )
    return known


class Buffers:
    """The buffers of a graph that is given as text, by names of tensors."""

    def __init__(
        self,
        text: str,
        tensors: Tensors,
        *,
        fetched: Sequence[str] = (),
        roots: Sequence[str] = (),
        runtime: Runtime = TWO_THREADS,
    ) -> None:
        graph = parse_graph(text)
        self.graph: BufferGraph = buffer_graph_of(
            graph, properties_of(tensors), fetched=fetched, roots=roots, runtime=runtime
        )
        numbering = Numbering.of(graph)
        self._places = {node.name: place for place, node in enumerate(numbering.nodes)}
        self._order = numbering.order

    def made(self, node: str) -> list[int]:
        """Sizes of what a node allocates."""
        return [self.graph.size_bytes[b] for b in self.graph.made[self._places[node]]]

    def reads(self, node: str, maker: str) -> bool:
        """Whether a node reads a buffer that another one makes."""
        made = self.graph.made[self._places[maker]]
        return any(buffer in made for buffer in self.graph.read[self._places[node]])

    def takes_over(self, node: str) -> list[str]:
        """The makers of the buffers that a node's first one may be put into, in order."""
        makers = {
            b: n.name
            for n, made in zip(self.graph.nodes, self.graph.made, strict=True)
            for b in made
        }
        reusable = self.graph.reusable[self.graph.made[self._places[node]][0]]
        return [makers[buffer] for buffer in reusable]

    def scratch_bytes(self, node: str) -> int:
        return self.graph.scratch_bytes[self._places[node]]

    def run(self, *names: str) -> MemoryTimeline:
        """The nodes in this order; in a topological one if none are named."""
        sequence = [self._places[name] for name in names] or self._order
        check_sequence(self.graph, sequence)
        return simulate(self.graph, sequence)


HANDLE = tensor_properties(RESOURCE, ())


@pytest.mark.parametrize(
    "op", ["Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient"]
)
def test_who_reads_an_alias_reads_the_buffer_behind_it(op: str) -> None:
    buffers = Buffers(f"x = A()\ny = {op}(x)\nz = B(y)", {"x": (10,), "y": (10,), "z": (10,)})
    assert buffers.made("y") == []
    assert buffers.reads("z", "x")
    assert buffers.run().usage_bytes == [40, 40, 80]


def test_an_identity_of_many_hands_each_on() -> None:
    text = "x = A()\nw = A()\ny = IdentityN(x, w)\nz = B(y:1)"
    buffers = Buffers(text, {"x": (10,), "w": (5,), "y": [(10,), (5,)], "z": (1,)})
    assert buffers.made("y") == []
    assert buffers.reads("z", "w")
    assert not buffers.reads("z", "x")


def test_an_activation_is_put_into_its_input() -> None:
    tensors: Tensors = {"x": (10,), "y": (10,)}
    buffers = Buffers("x = A()\ny = Relu(x)", tensors)
    assert buffers.takes_over("y") == ["x"]
    assert buffers.run().usage_bytes == [40, 40]


def test_an_input_that_is_read_later_stays() -> None:
    buffers = Buffers("x = A()\ny = Relu(x)\nz = B(x, y)", {"x": (10,), "y": (10,), "z": (1,)})
    assert buffers.run("x", "y", "z").usage_bytes == [40, 80, 84]


def test_an_alias_that_is_read_later_keeps_the_buffer() -> None:
    text = "x = A()\nv = Reshape(x, s)\ns = A()\ny = Relu(x)\nz = B(v, y)"
    buffers = Buffers(text, {"x": (10,), "v": (5, 2), "s": (2,), "y": (10,), "z": (1,)})
    assert buffers.run("s", "x", "v", "y", "z").usage_bytes == [8, 48, 48, 80, 84]


def test_a_product_tries_its_factors_in_order_of_the_kernel() -> None:
    tensors: Tensors = {
        "x": (10,),
        "w": (10,),
        "y": (10,),
    }
    buffers = Buffers("x = A()\nw = A()\ny = Mul(x, w)", tensors)
    assert buffers.takes_over("y") == ["x", "w"]
    assert Buffers("x = A()\nw = A()\ny = Mul(x, w)", {**tensors, "x": (1,)}).takes_over("y") == [
        "w"
    ]


def test_what_a_node_reads_twice_has_a_second_holder() -> None:
    text = "x = A()\nv = Reshape(x, s)\ns = A()\ny = Mul(x, v)\nq = Mul(x, x)"
    tensors: Tensors = {
        "x": (10,),
        "v": (1, 10),
        "s": (2,),
        "y": (1, 10),
        "q": (10,),
    }
    buffers = Buffers(text, tensors)
    assert buffers.takes_over("y") == []
    assert buffers.takes_over("q") == []


def test_other_types_of_the_same_size_are_not_taken_over() -> None:
    whole = tensor_properties(INT32, (10,))
    buffers = Buffers("x = A()\ny = Neg(x)", {"x": [whole], "y": (10,)})
    assert buffers.takes_over("y") == []


def test_a_sum_of_many_takes_over_any_of_them() -> None:
    text = "a = A()\nb = A()\nc = A()\ny = AddN(a, b, c)"
    tensors: Tensors = dict.fromkeys("abcy", (10,))
    assert Buffers(text, tensors).takes_over("y") == ["a", "b", "c"]
    assert Buffers("a = A()\ny = AddN(a)", tensors).made("y") == []


@pytest.mark.parametrize(
    ("op", "given", "result", "made"),
    [
        ("Sum", (10, 1), (10,), []),
        ("Sum", (10, 4), (10,), [40]),
        ("Mean", (10, 1), (10,), []),
        ("Max", (10, 1), (10,), []),
        ("Tile", (10,), (10,), []),
        ("Tile", (10,), (20,), [80]),
        ("Pad", (10,), (10,), [8]),  # scratch memory only
        ("Slice", (8, 16), (8, 16), []),
        ("Slice", (8, 16), (2, 16), []),  # rows of 64 bytes
        ("Slice", (8, 15), (2, 15), [120]),  # rows of 60
        ("Slice", (8, 16), (8, 2), [64]),
        ("StridedSlice", (8, 16), (2, 16), []),
        ("StridedSlice", (8, 16), (16,), []),
        ("Unpack", (2, 16), (16,), []),
        ("Unpack", (2, 15), (15,), [60]),
    ],
)
def test_what_does_next_to_nothing_shares(
    op: str, given: Shape, result: Shape, made: list[int]
) -> None:
    text = f"x = A()\ns = A()\ny = {op}(x, s, s)"
    assert Buffers(text, {"x": given, "s": (1,), "y": result}).made("y") == made


@pytest.mark.parametrize(
    ("order", "made"), [("1, 0, 2", []), ("2, 1, 0", [640])], ids=["only a 1", "for real"]
)
def test_a_transposition_that_moves_only_ones_shares(order: str, made: list[int]) -> None:
    numbers = "".join(f" int_val: {number}" for number in order.split(", "))
    constant = f"<tensor {{ dtype: DT_INT32 tensor_shape {{ dim {{ size: 3 }} }}{numbers} }}>"
    text = f"x = A()\np = Const() {{value={constant}}}\ny = Transpose(x, p)"
    whole = tensor_properties(INT32, (3,))
    assert Buffers(text, {"x": (10, 1, 16), "p": [whole], "y": (1, 10, 16)}).made("y") == made


def test_constants_are_there_before_the_step() -> None:
    buffers = Buffers("c = Const()\nx = A()\ny = A(c, x)", {"c": (10,), "x": (2,), "y": (1,)})
    timeline = buffers.run("c", "x", "y")
    assert timeline.held_bytes == 40
    assert timeline.usage_bytes == [40, 48, 52]


FOLDED = "c = Const()\nt = Tile(c, c)\ny = Cumsum(t, x)\nx = A()"
KEPT_BYTES = 4
"""Shape inference keeps `c`, since it asked for the value."""


def test_what_depends_on_constants_alone_is_a_constant() -> None:
    tensors: Tensors = {"c": (1,), "t": (10,), "y": (10,), "x": (1,)}
    order = ("x", "c", "t", "y")
    folded = Buffers(FOLDED, tensors).run(*order)
    assert folded.held_bytes == 40 + KEPT_BYTES
    assert folded.usage_bytes == [48, 48, 48, 88]
    plain = Buffers(FOLDED, tensors, runtime=Runtime(folds_constants=False)).run(*order)
    assert plain.held_bytes == 4 + KEPT_BYTES
    assert plain.usage_bytes == [12, 12, 52, 92]


def test_a_folded_node_that_others_wait_for_runs_for_nothing() -> None:
    tensors: Tensors = {"c": (1,), "t": (10,), "y": (10,), "x": (1,), "z": (1,)}
    buffers = Buffers(FOLDED + "\nz = A(^t)", tensors)
    usage_bytes = [48, 48, 88, 88, 48]
    found = buffers.run("x", "c", "t", "y", "z").usage_bytes
    assert found == [KEPT_BYTES + size_bytes for size_bytes in usage_bytes]


def test_what_is_fetched_is_not_folded() -> None:
    tensors: Tensors = {"c": (1,), "t": (10,)}
    buffers = Buffers("c = Const()\nt = Tile(c, c)", tensors, fetched=["t:0"])
    assert buffers.run("c", "t").usage_bytes == [4 + KEPT_BYTES, 44 + KEPT_BYTES]


def test_equal_constants_are_one_unless_they_wait_for_different_nodes() -> None:
    text = "x = A()\nb = Const() {u=1}\nc = Const() {u=1}\nd = Const() {u=2}\ny = B(b, c, d, x)"
    tensors: Tensors = {"b": (10,), "c": (10,), "d": (10,), "x": (1,), "y": (1,)}
    assert Buffers(text, tensors).graph.held_bytes == 80
    plain = Buffers(text, tensors, runtime=Runtime(folds_constants=False))
    assert plain.graph.held_bytes == 120
    waiting = text.replace("c = Const()", "c = Const(^x)")
    assert Buffers(waiting, tensors).graph.held_bytes == 120
    together = waiting.replace("b = Const()", "b = Const(^x)")
    assert Buffers(together, tensors).graph.held_bytes == 80
    fetched = Buffers(text, tensors, fetched=["c:0"])
    assert fetched.graph.held_bytes == 120


def test_what_is_folded_from_equal_constants_is_one() -> None:
    text = "x = A()\nb = Const()\nc = Const()\ns = Neg(b)\nt = Neg(c)\ny = B(s, t, x)"
    tensors: Tensors = dict.fromkeys(("b", "c", "s", "t", "x", "y"), (10,))
    assert Buffers(text, tensors).graph.held_bytes == 40
    waiting = text.replace("c = Const()", "c = Const(^x)")
    assert Buffers(waiting, tensors).graph.held_bytes == 80


def int32s(*numbers: int) -> str:
    """A Const of the graph, as text."""
    listed = "".join(f" int_val: {number}" for number in numbers)
    shape = f"tensor_shape {{ dim {{ size: {len(numbers)} }} }}"
    return f"Const() {{value=<tensor {{ dtype: DT_INT32 {shape}{listed} }}>}}"


PAIR = tensor_properties(INT32, (2,))


@pytest.mark.parametrize(("other", "count"), [((2, 4), 1), ((2, 5), 2)])
def test_what_is_folded_to_equal_values_is_one(other: tuple[int, int], count: int) -> None:
    """Not with a constant of the graph, which is written in another way."""
    text = f"""
x = A()
b = {int32s(1, 2)}
c = {int32s(*other)}
d = {int32s(2, 4)}
s = AddV2(b, b)
t = Identity(c)
y = B(s, t, d, x)
"""
    tensors: Tensors = {name: [PAIR] for name in "bcdst"}
    tensors |= {"x": (10,), "y": (10,)}
    assert Buffers(text, tensors).graph.held_bytes == 8 * (count + 1)


def test_what_nothing_asked_for_needs_holds_nothing() -> None:
    """Neither a constant nor what shape inference would keep of it."""
    text = "x = A()\nc = Const()\ny = Reshape(x, c)\nd = Const() {u=1}\nz = Reshape(x, d)"
    tensors: Tensors = dict.fromkeys("xcydz", (10,))
    assert Buffers(text, tensors).graph.held_bytes == 4 * 40
    assert Buffers(text, tensors, roots=["y"]).graph.held_bytes == 2 * 40


SHAPE_OF_PARTS = """
x = A()
c = Const() {u=1}
d = Const() {u=2}
p = Pack(c, d)
q = ConcatV2(p, e, f)
e = Const() {u=3}
f = Const() {u=4}
y = Reshape(x, q)
"""


def test_of_a_shape_shape_inference_keeps_the_parts() -> None:
    """`q`, the sizes that `p` is made of, `e`, and the axis `f`, which the concatenation asks for.

    What is computed of them is a constant for the reader alone.
    """
    scalar, sizes = tensor_properties(INT32, ()), tensor_properties(INT32, (3,))
    tensors: Tensors = {name: [scalar] for name in "cdf"}
    tensors |= dict.fromkeys("xy", (10,))
    tensors |= {"p": [PAIR], "e": [tensor_properties(INT32, (1,))], "q": [sizes]}
    assert Buffers(SHAPE_OF_PARTS, tensors).graph.held_bytes == 12 + (12 + 4 + 4 + 4 + 4)
    unknown = SHAPE_OF_PARTS.replace("d = Const() {u=2}", "d = A()")
    # `p` and `q` are not known as a whole; `e` and `f` are.
    assert Buffers(unknown, tensors).graph.held_bytes == (4 + 4 + 4) + (4 + 4 + 4)


def test_a_shape_put_together_of_itself_again_and_again_is_looked_at_once() -> None:
    doubled = "\n".join(f"q{k} = ConcatV2(q{k - 1}, q{k - 1}, a)" for k in range(1, 60))
    text = f"x = A()\na = Const()\nq0 = A()\n{doubled}\ny = Reshape(x, q59)"
    tensors: Tensors = {f"q{k}": [PAIR] for k in range(60)}
    tensors |= {"x": (10,), "y": (10,), "a": [tensor_properties(INT32, ())]}
    assert Buffers(text, tensors).graph.held_bytes == 4 + 4


@pytest.mark.parametrize(("elements", "kept_bytes"), [(512, 2048), (513, 0)])
def test_shape_inference_keeps_small_constants_that_it_asks_for(
    elements: int, kept_bytes: int
) -> None:
    """Once each, however many ask; `z` asks for the value of its first input only."""
    text = "x = A()\nc = Const()\ny = Reshape(x, c)\nw = Reshape(y, c)\nz = Fill(x, c)"
    tensors: Tensors = {"x": (1,), "c": (elements,), "y": (1,), "w": (1,), "z": (1,)}
    held_bytes = 4 * elements
    assert Buffers(text, tensors).graph.held_bytes == held_bytes + kept_bytes
    unasked = "x = A()\nc = Const()\nz = Fill(x, c)"
    assert Buffers(unasked, tensors).graph.held_bytes == held_bytes


def test_texts_take_what_refers_to_them() -> None:
    text = "x = A()\ns = Const()\nt = Const() {u=1}\nz = Const() {u=2}\ny = B(s, t, z, x)"
    scalar, pair, none = (tensor_properties(DT_STRING, shape) for shape in ((), (2,), (0,)))
    tensors: Tensors = {"s": [scalar], "t": [pair], "z": [none], "x": (1,), "y": (1,)}
    assert Buffers(text, tensors).graph.held_bytes == 24 + 48


def test_a_fetched_tensor_is_kept() -> None:
    text = "x = A()\ny = Identity(x)\nz = B(y)"
    tensors: Tensors = {"x": (10,), "y": (10,), "z": (5,)}
    assert Buffers(text, tensors).run().usage_bytes == [40, 40, 60]
    buffers = Buffers(text, tensors, fetched=["y:0", "train"])
    assert buffers.graph.lasting == [True, False]


VARIABLE = """
h = VarHandleOp()
r = ReadVariableOp(h)
n = Neg(r)
a = AssignVariableOp(h, n)
late = ReadVariableOp(h, ^a)
l = A(late)
"""
VALUES: Tensors = {
    "h": [HANDLE],
    "r": (10,),
    "n": (10,),
    "late": (10,),
    "l": (1,),
    "a": [],
}


def test_a_variable_keeps_what_it_is_given_and_lets_go_of_what_it_had() -> None:
    buffers = Buffers(VARIABLE, VALUES)
    timeline = buffers.run("h", "r", "n", "a", "late", "l")
    assert timeline.held_bytes == HANDLE_BYTES + 40
    assert [usage - timeline.held_bytes for usage in timeline.usage_bytes] == [0, 0, 40, 40, 0, 4]
    assert buffers.reads("l", "n")
    assert not buffers.reads("n", "n")


def test_an_update_in_place_copies_what_somebody_still_reads() -> None:
    text = (
        "h = VarHandleOp()\nr = ReadVariableOp(h)\nd = A()\nu = AssignAddVariableOp(h, d)\nz = B(r)"
    )
    buffers = Buffers(text, {"h": [HANDLE], "r": (10,), "d": (10,), "u": [], "z": (1,)})
    held_bytes = HANDLE_BYTES + 40
    in_place = buffers.run("h", "d", "r", "z", "u")
    assert [u - held_bytes for u in in_place.usage_bytes] == [0, 40, 40, 44, 40]
    copied = buffers.run("h", "d", "r", "u", "z")
    assert [u - held_bytes for u in copied.usage_bytes] == [0, 40, 40, 80, 44]


def test_variables_of_one_name_are_one() -> None:
    text = (
        'h = VarHandleOp() {shared_name="v"}\ng = VarHandleOp() {shared_name="v"}\n'
        "r = ReadVariableOp(h)\ns = ReadVariableOp(g)\ny = A(r, s)"
    )
    tensors: Tensors = {
        "h": [HANDLE],
        "g": [HANDLE],
        "r": (10,),
        "s": (10,),
        "y": (1,),
    }
    assert Buffers(text, tensors).graph.held_bytes == 2 * HANDLE_BYTES + 40
    other = Buffers(
        text.replace('g = VarHandleOp() {shared_name="v"}', "g = VarHandleOp()"), tensors
    )
    assert other.graph.held_bytes == 2 * HANDLE_BYTES + 80


def test_references_are_updated_where_they_lie() -> None:
    text = "v = VariableV2()\nx = A()\na = AssignAdd(v, x)\ny = B(a)"
    buffers = Buffers(text, {"v": (10,), "x": (10,), "a": (10,), "y": (1,)})
    timeline = buffers.run("v", "x", "a", "y")
    assert timeline.held_bytes == 40
    assert timeline.usage_bytes == [40, 80, 80, 44]


def test_unknown_sizes_count_the_least_that_there_can_be() -> None:
    unknown = tensor_properties(FLOAT, (-1, 10))
    assert Buffers("x = A()", {"x": [unknown]}).made("x") == [40]


@pytest.mark.parametrize(
    ("threads", "batch", "height", "channels", "kernel", "filters", "scratch_bytes"),
    [
        (2, 2, 8, 6, 3, 5, 26873856),
        (2, 2, 32, 64, 3, 64, 28311552),
        (2, 4, 56, 64, 1, 64, 16056320),
        (3, 8, 7, 256, 1, 512, 2358272),
    ],
)
def test_scratch_memory_of_filter_gradients(  # noqa: PLR0913, PLR0917 - a row of the table
    threads: int,
    batch: int,
    height: int,
    channels: int,
    kernel: int,
    filters: int,
    scratch_bytes: int,
) -> None:
    """As measured on TensorFlow 2.21."""
    buffers = Buffers(
        "x = A()\ns = A()\ng = A()\ny = Conv2DBackpropFilter(x, s, g)",
        {
            "x": (batch, height, height, channels),
            "s": (4,),
            "g": (batch, height, height, filters),
            "y": (kernel, kernel, channels, filters),
        },
        runtime=Runtime(intra_op_threads=threads),
    )
    assert buffers.scratch_bytes("y") == scratch_bytes


@pytest.mark.parametrize(
    ("threads", "batch", "height", "channels", "kernel", "filters", "scratch_bytes"),
    [
        (2, 2, 8, 6, 3, 5, 26873856),
        (2, 2, 32, 64, 3, 64, 2359296),
        (2, 1, 32, 16, 3, 16, 589824),
        (2, 8, 7, 256, 1, 512, 50176),
        (3, 8, 7, 256, 1, 512, 2358272),
    ],
)
def test_scratch_memory_of_input_gradients(  # noqa: PLR0913, PLR0917 - a row of the table
    threads: int,
    batch: int,
    height: int,
    channels: int,
    kernel: int,
    filters: int,
    scratch_bytes: int,
) -> None:
    """As measured on TensorFlow 2.21; threads that have enough to do share one image."""
    buffers = Buffers(
        "s = A()\nw = A()\ng = A()\ny = Conv2DBackpropInput(s, w, g)",
        {
            "s": (4,),
            "w": (kernel, kernel, channels, filters),
            "g": (batch, height, height, filters),
            "y": (batch, height, height, channels),
        },
        runtime=Runtime(intra_op_threads=threads),
    )
    assert buffers.scratch_bytes("y") == scratch_bytes


@pytest.mark.parametrize(
    ("threads", "rows", "channels", "scratch_bytes"),
    [(2, 512, 64, 512), (2, 512, 65, 0), (4, 512, 128, 2048), (2, 8, 5, 20), (2, 1, 10, 0)],
)
def test_scratch_memory_of_bias_gradients(
    threads: int, rows: int, channels: int, scratch_bytes: int
) -> None:
    """As measured on TensorFlow 2.21."""
    buffers = Buffers(
        "g = A()\ny = BiasAddGrad(g)",
        {"g": (rows, channels), "y": (channels,)},
        runtime=Runtime(intra_op_threads=threads),
    )
    assert buffers.scratch_bytes("y") == scratch_bytes


def test_a_gradient_of_pooling_may_put_its_copy_into_the_pooled_tensor() -> None:
    """It has two temporary tensors: places of 64 bits, and the pooled numbers once more."""
    tensors: Tensors = {
        "x": (2, 8, 8, 6),
        "p": (2, 4, 4, 6),
        "g": (2, 4, 4, 6),
        "y": (2, 8, 8, 6),
        "z": (1,),
    }
    text = "x = A()\np = A()\ng = A()\ny = MaxPoolGrad(x, p, g)\nz = B(x, p)"
    buffers = Buffers(text, tensors)
    image, pooled = 4 * 2 * 8 * 8 * 6, 4 * 2 * 4 * 4 * 6
    alone = buffers.run("x", "p", "g", "y")
    assert alone.usage_bytes[-1] == image + 2 * pooled + 2 * pooled
    crowded = buffers.run("x", "p", "g", "y", "z")
    assert crowded.usage_bytes[3] == 2 * image + 3 * pooled + 2 * pooled


def constant(name: str, *numbers: int) -> str:
    """A vector of 32-bit numbers as a line of text."""
    listed = "".join(f" int_val: {number}" for number in numbers)
    shape = f"dim {{ size: {len(numbers)} }}"
    tensor = f"<tensor {{ dtype: DT_INT32 tensor_shape {{ {shape} }}{listed} }}>"
    return f"{name} = Const() {{value={tensor}}}\n"


@pytest.mark.parametrize(
    ("shape", "axes", "result", "scratch_bytes"),
    [
        ((4, 5, 6, 7, 3), (1, 3), (4, 6, 3), 10080),
        ((4, 5, 6, 7, 3), (0, 2, 4), (5, 7), 10080),
        ((4, 64, 48), (0, 2), (64,), 0),
        ((4, 1, 6, 1, 3), (1, 3), (4, 6, 3), 0),
    ],
)
def test_scratch_memory_of_sums(
    shape: Shape, axes: Shape, result: Shape, scratch_bytes: int
) -> None:
    """As measured: a transposed copy where kept and reduced dimensions take turns too often."""
    whole = tensor_properties(INT32, (len(axes),))
    text = f"x = A()\n{constant('a', *axes)}y = Sum(x, a)"
    buffers = Buffers(text, {"x": shape, "a": [whole], "y": result})
    assert buffers.scratch_bytes("y") == scratch_bytes


@pytest.mark.parametrize(
    ("op", "scratch_bytes"),
    [
        ("DepthwiseConv2dNative", 576),
        ("DepthwiseConv2dNativeBackpropInput", 608),
        ("DepthwiseConv2dNativeBackpropFilter", 864),
    ],
)
def test_scratch_memory_of_depthwise_convolutions(op: str, scratch_bytes: int) -> None:
    """As measured on two images of 8 by 8 pixels and 6 channels, which are filled up to 8."""
    image, weights, sizes = (2, 8, 8, 6), (3, 3, 6, 1), (4,)
    inputs, result = {
        "DepthwiseConv2dNative": ((image, weights), image),
        "DepthwiseConv2dNativeBackpropInput": ((sizes, weights, image), image),
        "DepthwiseConv2dNativeBackpropFilter": ((image, sizes, image), weights),
    }[op]
    names = [f"i{slot}" for slot in range(len(inputs))]
    text = "".join(f"{name} = A()\n" for name in names) + f"y = {op}({', '.join(names)})"
    tensors: Tensors = {**dict(zip(names, inputs, strict=True)), "y": result}
    assert Buffers(text, tensors).scratch_bytes("y") == scratch_bytes


def measured(step: TrainingStep) -> tuple[MemoryTimeline, Measurement]:
    """A step in program order: as simulated, and as it ran in a fresh process."""
    return measure_in_order(Program.from_concrete_function(step.function, step.inputs))


def usage_by_operation(timeline: MemoryTimeline) -> dict[str, int]:
    names = (timeline.buffer_graph.nodes[node].name for node in timeline.sequence)
    usage = (usage - timeline.held_bytes for usage in timeline.usage_bytes)
    return dict(zip(names, usage, strict=True))


@pytest.mark.parametrize("model", ["mlp", pytest.param("bert", marks=pytest.mark.slow), "unet"])
def test_a_step_in_order_uses_what_is_simulated(model: str) -> None:
    """To the byte: the peak, and what is in use whenever an operation allocates something."""
    timeline, measurement = measured(tiny_step(model))
    assert timeline.step_peak_bytes == measurement.step_peak_bytes
    # Of hundreds of constants some differ that are evaluated in between.
    assert abs(timeline.held_bytes - measurement.held_bytes) < 512
    real: dict[str, int] = {}
    operation = ""
    for entry in measurement.timeline:
        if entry.kind == "allocate":
            # What a kernel's other threads allocate carries no name.
            operation = entry.operation or operation
            usage = entry.in_use_bytes - measurement.held_bytes
            real[operation] = max(real.get(operation, 0), usage)
    assert len(real) > 40
    predicted = usage_by_operation(timeline)
    assert real == {name: predicted.get(name) for name in real}


def test_a_step_with_loops_in_order_has_the_peak_that_is_simulated() -> None:
    """Within a thousandth: how long the tests of loops hold a byte is not followed."""
    timeline, measurement = measured(tiny_step("lstm"))
    difference = abs(timeline.step_peak_bytes - measurement.step_peak_bytes)
    assert difference * 1000 < measurement.step_peak_bytes


@pytest.mark.parametrize("sides", ["same, new", "new, same"])
def test_what_is_handed_on_is_in_use_in_place_of_what_is_made(sides: str) -> None:
    """`x` is read afterwards: where the other side is taken, there are two."""
    buffers = Buffers(
        f"""
        x0 = Placeholder() {{dtype=float}}
        p = Placeholder() {{dtype=bool}}
        x = Neg(x0) {{T=float}}
        switch = Switch(x, p) {{T=float}}
        same = Identity(switch) {{T=float}}
        new = Cumsum(switch:1, x0) {{T=float}}
        merge = Merge({sides}) {{N=2, T=float}}
        after = Cumsum(merge, x0) {{T=float}}
        again = Add(x, after) {{T=float}}
        """,
        {
            **dict.fromkeys(("x0", "x", "same", "new", "after", "again"), (1000,)),
            "p": [tensor_properties(BOOL, ())],
            "switch": [tensor_properties(FLOAT, (1000,))] * 2,
            "merge": [tensor_properties(FLOAT, (1000,)), tensor_properties(INT32, ())],
        },
    )
    assert buffers.made("new") == [4000]
    assert buffers.reads("after", "new")
    assert not buffers.reads("after", "x")
