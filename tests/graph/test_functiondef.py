"""FunctionDef in and out: bodies as graphs, and back without loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memopt.errors import InvalidGraphError
from memopt.graph.functiondef import Library, from_function_def, to_function_def
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.verify import verify_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.item import GrapplerItem


@pytest.fixture
def graph_def(tiny_item: Callable[[str], GrapplerItem]) -> GraphDef:
    """A graph with a while loop, whose bodies are functions."""
    return tiny_item("lstm").graph_def


def test_bodies_come_out_byte_for_byte(graph_def: GraphDef) -> None:
    library = Library(graph_def.library)
    assert len(graph_def.library.function) > 2
    for function in graph_def.library.function:
        graph = from_function_def(function, library)
        verify_graph(graph)
        copy = to_function_def(graph)
        assert copy.SerializeToString(deterministic=True) == function.SerializeToString(
            deterministic=True
        )


def test_a_changed_body_comes_out_with_the_graph(graph_def: GraphDef) -> None:
    graph = from_graph_def(graph_def)
    assert graph.library is not None
    # The order of a library differs from process to process.
    name, split = next(
        (name, node)
        for name in sorted(graph.library.names())
        for node in graph.library.graph(name)
        if node.op == "Split"
    )
    body = graph.library.graph(name)
    reader = split.output(1).uses[0][0]
    rewriter = Rewriter(body)
    with rewriter.edit("a test"):
        copy = rewriter.add_node(
            "copy", "Identity", inputs=[split.output(1)], attributes={"T": split.attributes["T"]}
        )
        rewriter.set_inputs(
            reader,
            [copy.output(0) if tensor is split.output(1) else tensor for tensor in reader.inputs],
        )

    functions = {f.signature.name: f for f in to_graph_def(graph).library.function}

    nodes = {node.name: node for node in functions[name].node_def}
    assert list(nodes["copy"].input) == [f"{split.name}:output:1"]
    assert "copy:output:0" in nodes[reader.name].input
    unchanged = [f for f in graph_def.library.function if f.signature.name != name]
    for function in unchanged:
        assert functions[function.signature.name] == function


def test_a_changed_result_is_written_back(graph_def: GraphDef) -> None:
    library = Library(graph_def.library)
    name = min(name for name in library.names() if "cond" in name and "grad" not in name)
    body = library.graph(name)
    result = next(node for node in body if node.op == "_Retval")
    rewriter = Rewriter(body)
    with rewriter.edit("a test"):
        twice = rewriter.add_node("twice", "LogicalNot", inputs=[result.inputs[0]], attributes={})
        rewriter.set_input(result, 0, twice.output(0))
    function = next(f for f in library.to_proto().function if f.signature.name == name)
    assert list(function.ret.values()) == ["twice:y:0"]


def test_bad_bodies_name_the_function(graph_def: GraphDef) -> None:
    copy = type(graph_def).FromString(graph_def.SerializeToString())
    function = copy.library.function[0]
    node = next(node for node in function.node_def if node.input)
    node.input[0] = "nowhere:output:0"
    with pytest.raises(InvalidGraphError, match=r"in function .*'nowhere:output:0' does not exist"):
        Library(copy.library).graph(function.signature.name)
    node.input[0] = "nowhere"
    producer = next(node for node in function.node_def if node.name != node.input)
    node.input[0] = f"{producer.name}:nothing:0"
    with pytest.raises(InvalidGraphError, match="is no output of its producer"):
        Library(copy.library).graph(function.signature.name)


def test_who_reads_what_became_another_op_spells_its_output_anew() -> None:
    """An output is called by the op that makes it: y of InvertPermutation, output of Const."""
    import tensorflow as tf

    @tf.function(autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def body(x: tf.Tensor) -> tf.Tensor:
        order = tf.raw_ops.InvertPermutation(x=tf.constant([1, 0]))
        return tf.transpose(x, order)

    inner = body.get_concrete_function(tf.TensorSpec([2, 3]))
    caller = tf.function(lambda x: -inner(x), autograph=False)
    graph_def = caller.get_concrete_function(tf.TensorSpec([2, 3])).graph.as_graph_def()
    library = Library(graph_def.library)
    (name,) = library.names()
    graph = library.graph(name)
    inverse, reader = graph["InvertPermutation"], graph["transpose"]
    constant = inverse.inputs[0].node
    rewriter = Rewriter(graph)
    with rewriter.edit("a test"):
        rewriter.set_inputs(inverse, ())
        rewriter.set_op(inverse, "Const", dict(constant.attributes))
    assert not reader.changed
    written = {node.name: list(node.input) for node in to_function_def(graph).node_def}
    assert written[reader.name] == ["x", "InvertPermutation:output:0"]
    from_function_def(to_function_def(graph), library)
