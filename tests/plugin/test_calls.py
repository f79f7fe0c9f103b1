"""What the Python frames above tell of the call that a graph is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from support.bad_inputs import graph_def_of

from memopt.graph.op_types import DT_FLOAT, DT_INT32
from memopt.item import GrapplerItem
from memopt.plugin.calls import USUAL_BATCH, USUAL_SIZE, find_open_input, find_shapes, usual_shapes
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.shapes.tensor_properties import TensorProperties

FUNCTION = """
x = _Arg() {T=float, index=0}
y = Neg(x) {T=float}
result = _Retval(y) {T=float, index=0}
"""
FED = "x = Placeholder() {dtype=float, shape=[?,8]}\ny = Neg(x) {T=float}\n"
ELEMENTS = """
iterator = _Arg() {T=resource, index=0}
next = IteratorGetNext(iterator)
result = _Retval(next) {T=float, index=0}
"""


def declaring(text: str, node: int, attribute: str, *shapes: tuple[int, ...]) -> GraphDef:
    """A graph of which a node declares shapes that leave dimensions open."""
    graph_def = graph_def_of(text)
    for shape in shapes:
        proto = graph_def.node[node].attr[attribute].list.shape.add()
        for size in shape:
            proto.dim.add().size = size
    return graph_def


def known(graph_def: GraphDef) -> Properties:
    return Properties.of(GrapplerItem(graph_def, fetch=(graph_def.node[-1].name,)))


def call_function(graph_def: GraphDef, *tensor_inputs: Any) -> Any:
    """Called as the function of TensorFlow's is that calls functions."""
    assert tensor_inputs
    return find_shapes(graph_def, known(graph_def))


def test_arguments_have_the_shapes_that_the_call_gives() -> None:
    graph_def = declaring(FUNCTION, 0, "_output_shapes", (-1, 8))
    assert find_open_input(graph_def, known(graph_def)) == "x"
    assert call_function(graph_def, tf.zeros((3, 8))) == {"x": ((3, 8),)}
    # The graph of another function, which the call leads to.
    assert call_function(graph_def, tf.zeros((3, 8), tf.int32)) == {}
    assert call_function(graph_def, tf.zeros((3, 9))) == {}
    assert call_function(graph_def, "no tensor") == {}
    assert find_shapes(graph_def, known(graph_def)) == {}


def test_what_a_session_is_fed_has_the_shape_that_it_has() -> None:
    graph_def = graph_def_of(FED)
    graph = tf.Graph()
    with graph.as_default():
        placeholder = tf.compat.v1.placeholder(tf.float32, name="x")

    def _run(feed_dict_tensor: Any) -> Any:
        assert feed_dict_tensor
        return find_shapes(graph_def, known(graph_def))

    assert _run({placeholder.ref(): np.zeros((5, 8))}) == {"x": ((5, 8),)}
    assert _run({placeholder.ref(): 3}) == {}


def test_elements_have_the_batch_of_the_iterator_that_is_given() -> None:
    graph_def = declaring(ELEMENTS, 1, "output_shapes", (-1, 8), (-1,))
    types = graph_def.node[1].attr["output_types"].list.type
    types.extend([DT_FLOAT, DT_INT32])

    class Function:
        def __call__(self, *args: Any, **kwds: Any) -> Any:
            assert args or kwds
            return find_shapes(graph_def, known(graph_def))

    batches = iter(tf.data.Dataset.range(9).batch(4))
    expected = {"next": ((4, 8), (4,))}
    assert Function()(batches) == Function()(1, batches=batches) == expected
    assert Function()(iter(tf.data.Dataset.range(9))) == {}


def test_a_usual_shape_has_what_is_known_of_it() -> None:
    graph_def = declaring(ELEMENTS, 1, "output_shapes", (-1, -1, 8))
    graph_def.node[1].attr["output_types"].list.type.append(DT_FLOAT)
    assert usual_shapes(graph_def, known(graph_def)) == {
        "next": ((USUAL_BATCH, USUAL_SIZE, 8),),
    }
    known_ones = declaring(ELEMENTS, 1, "output_shapes", (4, 8))
    known_ones.node[1].attr["output_types"].list.type.append(DT_FLOAT)
    assert usual_shapes(known_ones, known(known_ones)) == {}


def test_a_usual_shape_has_the_batch_that_the_call_tells() -> None:
    """What the step itself pads, as texts of many words, is as long as nobody knows."""
    graph_def = declaring(ELEMENTS, 1, "output_shapes", (-1, -1, 8))
    graph_def.node[1].attr["output_types"].list.type.append(DT_FLOAT)
    graph_def.node.add(name="padded", op="RaggedTensorToTensor")
    nodes = {"next": (known_shape(-1, -1, 8),), "padded": (known_shape(-1, -1),)}
    shapes: dict[str, tuple[tuple[int, ...], ...]] = {"next": ((5, 70, 8),)}
    assert find_open_input(graph_def, Properties.given(nodes), shapes) == "padded"
    assert usual_shapes(graph_def, Properties.given(nodes), shapes) == {
        "padded": ((5, USUAL_SIZE),)
    }
    shapes["padded"] = ((5, 9),)
    assert find_open_input(graph_def, Properties.given(nodes), shapes) == ""
    assert usual_shapes(graph_def, Properties.given(nodes), shapes) == {}


def known_shape(*sizes: int) -> TensorProperties:
    return tensor_properties(DT_FLOAT, sizes)
