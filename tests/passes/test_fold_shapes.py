"""Shapes folded on small graphs, each case a text before and after, and values as kernels give."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.one_pass import run_case, run_pass
from support.text_cases import read_cases

from memopt.context import Context
from memopt.graph.functiondef import Library
from memopt.graph.graph import Graph
from memopt.graph.graphdef import to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.text import format_graph, parse_graph
from memopt.item import GrapplerItem
from memopt.passes.fold_shapes import SHAPE_OPS, FoldShapes
from memopt.shapes.integer_evaluation import as_array, evaluate, fits
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from support.text_cases import TextCase

CASES = read_cases(Path(__file__).parent / "cases" / "fold_shapes.txt")
PASS = FoldShapes()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    done = run_case(case, FoldShapes.parse(case.spec))
    assert done.text == case.after
    assert done.reasons == case.declined


def test_options_print_and_parse() -> None:
    assert str(FoldShapes(values=False)) == "fold-shapes{values=false}"
    assert FoldShapes.parse("fold-shapes{values=false}") == FoldShapes(values=False)


def test_an_edit_releases_what_no_reader_of_the_shape_reads() -> None:
    text = """
    x = Placeholder() {dtype=float, shape=[2,3]}
    a = Neg(x) {T=float}
    b = Exp(x) {T=float}
    s = ShapeN(a, b) {N=2, T=float, out_type=int32}
    r = Reshape(a, s:1) {T=float, Tshape=int32}
    z = Neg(s) {T=int32}
    """
    item = GrapplerItem(to_graph_def(parse_graph(text)), feed=("x:0",), fetch=("r:0", "z:0"))
    edit, _ = run_pass(item, PASS).edits
    assert edit.releases == ("b:0",)


def test_the_pass_tells_what_the_nodes_that_it_adds_are() -> None:
    case = next(case for case in CASES if case.name.startswith("of a ShapeN"))
    done = run_case(case, PASS)
    added = [name for edit in done.edits for name in edit.added if name in done.graph]
    assert added
    for name in added:
        (known,) = done.properties.outputs(name)
        assert known.size_bytes == 8


@pytest.mark.parametrize("name", ["vgg16", "unet", "convnet_v1"])
def test_no_model_has_to_ask_for_a_shape(
    name: str, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    item = tiny_item(name)
    assert SHAPE_OPS & {node.op for node in item.graph_def.node}
    done = run_pass(item, PASS)
    assert not SHAPE_OPS & {node.op for node in done.graph}
    assert not done.declined


def test_arguments_of_functions_may_have_another_shape_in_another_call() -> None:
    """The shapes of a body are those of one of its calls."""
    import tensorflow as tf

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def body(x: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.Shape(input=tf.square(x)) + tf.raw_ops.Shape(input=tf.zeros([7]))

    inner = body.get_concrete_function(tf.TensorSpec(None))
    caller = tf.function(lambda x, y: (inner(x), inner(y)), autograph=False)
    specs = tf.TensorSpec([2]), tf.TensorSpec([3])
    item = GrapplerItem.from_concrete_function(caller.get_concrete_function(*specs))
    library = Library(item.graph_def.library)
    (name,) = library.names()
    graph = library.graph(name)
    properties = Properties.of(item).function(name)
    assert properties.tensor("Square:0").shape == (2,)  # type: ignore[union-attr]
    rewriter = Rewriter(graph)
    fed, fetched = (frozenset(n.name for n in graph if n.op == op) for op in ("_Arg", "_Retval"))
    PASS.run(rewriter, Context(properties, fed=fed, fetched=fetched))
    assert [edit.changed for edit in rewriter.edits if edit.changed] == [("Shape_1",)]
    (declined,) = rewriter.declined
    assert declined.reason.endswith(f"because of {min(fed)!r}")


def test_every_edit_can_be_undone(tiny_item: Callable[[str], GrapplerItem]) -> None:
    item = tiny_item("convnet_v1")
    graph = parse_graph(CASES[2].before)
    rewriter = Rewriter(graph)
    before = format_graph(graph)
    start = rewriter.checkpoint()
    shapes = Properties.of(GrapplerItem(to_graph_def(graph)))
    PASS.run(rewriter, Context(shapes, fed=frozenset({"x"}), fetched=frozenset({"a", "b"})))
    assert format_graph(graph) != before
    rewriter.revert(start)
    assert format_graph(graph) == before
    assert run_pass(item, PASS).edits == run_pass(item, PASS).edits


# --- arithmetic, compared with TensorFlow's kernels -----------------------------------------------

Draw = tuple[str, list[Any], dict[str, Any]]


def draw(choice: random.Random) -> Draw:
    """An operation with inputs and attributes; some that the kernel refuses."""
    op = choice.choice(sorted(DRAWS))
    inputs, attributes = DRAWS[op](choice)
    return op, inputs, attributes


def vector(choice: random.Random, length: int | None = None, low: int = 0) -> list[int]:
    count = choice.randint(0, 4) if length is None else length
    return [choice.choice((1, 1, choice.randint(low, 5))) for _ in range(count)]


def _two_shapes(choice: random.Random) -> tuple[list[Any], dict[str, Any]]:
    shape = vector(choice)
    other = [1 if choice.random() < 0.4 else size for size in shape[choice.randint(0, 2) :]]
    if choice.random() < 0.1:
        other = vector(choice)
    pair = [shape, other]
    choice.shuffle(pair)
    return pair, {}


def _elementwise(choice: random.Random) -> tuple[list[Any], dict[str, Any]]:
    count = choice.randint(1, 4)
    values = [[choice.randint(-9, 9) for _ in range(count)] for _ in range(2)]
    if choice.random() < 0.3:
        values[0] = choice.randint(-9, 9)  # type: ignore[call-overload]
    return values, {}


def _concat_offset(choice: random.Random) -> tuple[list[Any], dict[str, Any]]:
    shape = vector(choice, choice.randint(1, 4))
    axis = choice.randint(-len(shape), len(shape) - 1)
    shapes = [list(shape) for _ in range(choice.randint(2, 4))]
    for one in shapes:
        one[axis] = choice.randint(0, 5)
    if choice.random() < 0.1:
        shapes[0][0] += 7
    return [axis, *shapes], {}


def _strided_slice(choice: random.Random) -> tuple[list[Any], dict[str, Any]]:
    value = [choice.randint(-9, 9) for _ in range(choice.randint(0, 6))]
    stride = choice.choice((1, 1, 2, -1, -2))
    masks = {name: choice.choice((0, 0, 1)) for name in ("begin_mask", "end_mask")}
    masks["shrink_axis_mask"] = choice.choice((0, 0, 1))
    return [value, [choice.randint(-8, 8)], [choice.randint(-8, 8)], [stride]], masks


def _pack(choice: random.Random) -> tuple[list[Any], dict[str, Any]]:
    count = choice.randint(1, 3)
    if choice.random() < 0.5:
        return [choice.randint(-9, 9) for _ in range(count)], {"axis": 0}
    return [vector(choice, 3) for _ in range(count)], {"axis": choice.choice((0, 1, -1))}


def _concat(choice: random.Random) -> tuple[list[Any], dict[str, Any]]:
    values = [vector(choice) for _ in range(choice.randint(2, 4))]
    return [*values, choice.choice((0, -1))], {}


def _gather(choice: random.Random) -> tuple[list[Any], dict[str, Any]]:
    values = vector(choice, choice.randint(1, 5))
    places = [choice.randint(0, 4) for _ in range(choice.randint(0, 4))]
    return [values, choice.choice((places, choice.randint(0, 3))), 0], {}


def _prod(choice: random.Random) -> tuple[list[Any], dict[str, Any]]:
    axes = choice.choice((0, [0], [], [-1]))
    return [vector(choice), axes], {"keep_dims": choice.random() < 0.5}


def _expand(choice: random.Random) -> tuple[list[Any], dict[str, Any]]:
    return [choice.choice((3, vector(choice))), choice.choice((0, -1))], {}


DRAWS: Mapping[str, Callable[[random.Random], tuple[list[Any], dict[str, Any]]]] = {
    **dict.fromkeys(("BroadcastArgs", "BroadcastGradientArgs"), _two_shapes),
    **dict.fromkeys(
        ("AddV2", "FloorDiv", "FloorMod", "Maximum", "Minimum", "Mul", "Sub"), _elementwise
    ),
    "ConcatOffset": _concat_offset,
    "ConcatV2": _concat,
    "ExpandDims": _expand,
    "GatherV2": _gather,
    "Pack": _pack,
    "Prod": _prod,
    "StridedSlice": _strided_slice,
}


def drawn() -> Iterator[Draw]:
    choice = random.Random(0)
    for _ in range(1500):
        yield draw(choice)


def ask_tensorflow(op: str, values: list[Any], attributes: Mapping[str, Any]) -> list[Any] | None:
    """What the kernel gives, or `None` where it fails."""
    import tensorflow as tf

    given = [tf.constant(value, tf.int32, shape=np.shape(value)) for value in values]
    keywords: dict[str, dict[str, Any]] = {
        "ConcatOffset": {"concat_dim": given[0], "shape": given[1:]},
        "ConcatV2": {"values": given[:-1], "axis": given[-1]},
        "Pack": {"values": given},
    }
    function = getattr(tf.raw_ops, op)
    if op in keywords:
        arguments = keywords[op]
    else:
        names = [arg for arg in function.__signature__.parameters if arg not in attributes]
        arguments = dict(zip(names, given, strict=False))
    try:
        outputs = function(**arguments, **attributes)
    except (tf.errors.InvalidArgumentError, ValueError):
        return None
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [np.asarray(output) for output in outputs]


def test_values_are_those_of_the_kernels() -> None:
    given = refused = left = 0
    for op, values, attributes in drawn():
        expected = ask_tensorflow(op, values, attributes)
        text = "".join(
            f", {key}={str(value).lower() if isinstance(value, bool) else value}"
            for key, value in attributes.items()
        )
        node = node_of(op, text.removeprefix(", "))
        found = evaluate(node, [as_array(value) for value in values])
        what = f"{op} of {values} with {attributes}"
        if expected is None:
            assert found is None, what
            refused += 1
            continue
        if found is None:
            left += 1
            continue
        given += 1
        assert len(found) == len(expected), what
        for ours, theirs in zip(found, expected, strict=True):
            assert fits(ours, 3), what
            assert ours.shape == theirs.shape, what
            assert ours.astype(np.int32).tobytes() == theirs.tobytes(), what
    assert given > 1000
    assert refused > 50
    assert left < 10


def node_of(op: str, attributes: str) -> Any:
    """A node of that op without edges."""
    graph = Graph()
    parsed = parse_graph(f"n = {op}() {{{attributes}}}" if attributes else f"n = {op}()")["n"]
    return graph.add_node("n", op, attributes=parsed.attributes)


@pytest.mark.parametrize(
    ("number", "dtype", "expected"),
    [(2**31 - 1, 3, True), (2**31, 3, False), (-(2**31), 3, True), (2**31, 9, True)],
)
def test_what_does_not_fit_its_type_is_no_value(number: int, dtype: int, expected: bool) -> None:
    assert fits(as_array([number]), dtype) is expected


def test_large_values_are_no_shapes() -> None:
    assert fits(as_array([1] * 64), 3)
    assert not fits(as_array([1] * 65), 3)
